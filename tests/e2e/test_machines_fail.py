"""What fails below and around a run: machines, memory, clocks, registries, quotas, its namespace.

Each is said, ends as it should, and no customer notices. All of it goes on at once.
"""

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from examples.demo.scenarios import TRAFFIC
from tests.cluster import spare
from tests.cluster.base import Cluster
from tests.cluster.commands import ClusterError
from tests.cluster.local import LocalCluster
from tests.cluster.topology import L40S
from tests.e2e.funnel import assert_status_adds_up
from tests.e2e.world import (
    Manifest,
    World,
    condition_message,
    condition_reason,
    env_patch,
    shadow_run,
    without_device,
)

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

PRIMARIES = ("chat", "chat-two")
LATE, CUT_OFF = "late", "cut-off"
HOG = "import os; kept = os.memfd_create('x'); [os.write(kept, bytes(1 << 20)) for _ in range(2048)]"
"""Fills the memory of its container with pages of no process, so that the kernel ends the largest one there."""
CLOCK = """
import os, time, zlib
right, late = time.time, 3600 + zlib.crc32(os.uname().nodename.encode()) % 36_000
time.time = lambda: right() - late
"""
"""Puts the clock of a Python process back by more than an hour, in each pod by so many seconds of its own."""
DEVICE = "example.com/device"


def never_starts(name: str, candidate: Manifest, template: Manifest | None = None) -> Manifest:
    """A run that takes the copies of a proxy that nobody has."""
    of = {"deploymentRef": {"name": "chat"}} if template is None else {"podTemplate": template}
    return shadow_run(
        name,
        capture={"mode": "External", "external": {"serviceName": f"{name}-copies"}},
        arms={"template": of, "candidate": candidate},
        startDeadline="75s",
    )


def cut_off() -> Manifest:
    """A run whose candidate alone goes to the spare node."""
    template = without_device()
    template["spec"]["tolerations"] = [{"key": spare.TAINT, "operator": "Exists"}]
    template["spec"]["nodeSelector"] = {"topology.kubernetes.io/region": "local"}
    there = {"spec": {"nodeSelector": {"topology.kubernetes.io/region": spare.SPARE.region}}}
    return shadow_run(
        CUT_OFF,
        primary="chat-two",
        arms={
            "template": {"podTemplate": template},
            "candidate": {"patch": there},
            "warmup": {"duration": "4s", "requests": 30},
        },
        hardware={
            "matchLabelKeys": ["nvidia.com/gpu.product"],
            "nodeSelector": {"nvidia.com/gpu.product": L40S.product},
        },
        duration="10m",
    )


def anywhere() -> Manifest:
    """The same where no node can be lost."""
    return shadow_run(CUT_OFF, primary="chat-two", duration="10m")


@pytest.fixture(scope="module")
def doomed(installed: Cluster) -> Iterator[World]:
    """A namespace that goes with its run in it."""
    one = World(installed, f"e2e-doomed-{uuid.uuid4().hex[:4]}")
    one.create()
    one.apply(shadow_run("doomed", duration="10m"))
    yield one
    installed.kubectl("delete", "namespace", one.namespace, "--ignore-not-found", "--wait=false")


@pytest.fixture(scope="module", autouse=True)
def started(world: World, doomed: World) -> None:
    """All that need no machine of their own."""
    needy = without_device()
    needy["spec"]["containers"][0]["resources"]["limits"][DEVICE] = "1"
    quota = {"hard": {f"requests.{DEVICE}": "0"}}
    world.add_primaries(*PRIMARIES[1:])
    world.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-devices"}, "spec": quota},
        shadow_run(LATE, mirror={"replicas": 2}, duration="10m"),
        never_starts("crash-loop", {"patch": env_patch(SPEED="none")}),
        never_starts("no-image", {"image": "registry.invalid/engine:1"}),
        never_starts("over-quota", {"patch": env_patch(SPEED="2")}, needy),
    )
    world.serve_customers()
    doomed.serve_customers(rate=2)


@pytest.fixture(scope="module", autouse=True)
def lonely(world: World, started: None) -> Iterator[LocalCluster | None]:
    """A machine that only an arm goes to, where the provider is one that can add it. It leaves nothing."""
    with ExitStack() as stack:
        local = world.cluster if isinstance(world.cluster, LocalCluster) else None
        if local is not None:
            stack.enter_context(spare.plugged_in(local, [TRAFFIC.tag]))
        world.apply(cut_off() if local is not None else anywhere())
        world.serve_customers("chat-two")
        yield local


def test_a_mirror_that_is_killed_for_its_memory_is_back_and_its_end_is_said(world: World) -> None:
    before = world.running(CUT_OFF)
    with suppress(ClusterError):  # it dies with its container
        world.kubectl("exec", f"deployment/{CUT_OFF}-mirror", "--", "python", "-c", HOG, timeout=120)
    world.until("the restart is said", lambda: world.said(CUT_OFF, "Restarted") != [], 60)
    said = world.said(CUT_OFF, "Restarted")[0]
    assert f"Container mirror of {CUT_OFF}-mirror" in said
    assert "OOMKilled (exit code 137)" in said
    after = world.running(CUT_OFF, pairs=before["pairs"] + 10)
    assert after["startTime"] == before["startTime"]
    assert_status_adds_up(after)


@pytest.fixture(scope="module")
def unplugged(world: World, lonely: LocalCluster | None) -> Manifest:
    """The arms of the run as they were when the candidate's node was lost. The cluster finds out in a minute."""
    before = world.running(CUT_OFF)
    if lonely is not None:
        spare.pull_the_plug(lonely)
    return {arm["name"]: arm["nodes"] for arm in before["arms"]}


def test_mirrors_whose_clocks_are_off_are_said_move_no_end_and_leave_no_verdict(
    world: World, unplugged: Manifest
) -> None:
    before = world.running(LATE)
    world.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "clock"}, "data": {"sitecustomize.py": CLOCK}}
    )
    container = {
        "name": "mirror",
        "env": [{"name": "PYTHONPATH", "value": "/clock:/opt/shadowrun"}],
        "volumeMounts": [{"name": "clock", "mountPath": "/clock"}],
    }
    pods = {"containers": [container], "volumes": [{"name": "clock", "configMap": {"name": "clock"}}]}
    change = json.dumps({"spec": {"template": {"spec": pods}}})
    world.kubectl("patch", "deployment", f"{LATE}-mirror", "-p", change)
    world.until("the clock is said", lambda: world.said(LATE, "ClockOff") != [], 90)
    assert "s behind the operator's" in world.said(LATE, "ClockOff")[0]
    status = world.running(LATE, pairs=world.status(LATE)["pairs"] + 10)
    assert status["startTime"] == before["startTime"], "an hour earlier would end it at once"
    world.kubectl("patch", "shadowrun", LATE, "--type=merge", "-p", '{"spec": {"duration": "11s"}}')
    status = world.wait_complete(LATE, 120)
    ended = (status["endReason"], status["verdict"], status["reason"])
    assert ended == ("DurationReached", "Inconclusive", "ClocksApart"), status["message"]
    assert_status_adds_up(status)


@pytest.mark.parametrize(
    ("name", "why"),
    [("crash-loop", "exit code 2"), ("no-image", "registry.invalid/engine:1"), ("over-quota", "exceeded quota")],
)
def test_arms_that_never_start_say_why(world: World, name: str, why: str) -> None:
    def told(status: Manifest) -> bool:
        return why in condition_message(status, "ArmsReady") or why in status.get("message", "")

    world.wait(name, why, told, 120)
    status = world.wait_complete(name, 120)
    assert (status["endReason"], status["verdict"]) == ("StartDeadlineExceeded", "Inconclusive"), status["message"]
    assert "candidate" in status["message"]
    assert "StartDeadlineExceeded" in world.events(name)


def test_a_run_lets_go_in_a_namespace_that_is_being_deleted(doomed: World) -> None:
    """In which nothing can be made any more. What goes first there is up to Kubernetes; here it is the run."""
    doomed.running("doomed", pairs=0)
    doomed.cluster.kubectl("delete", "namespace", doomed.namespace, "--wait=false")
    doomed.delete_runs()
    assert doomed.all("shadowruns") == []


def test_an_arm_whose_node_is_lost_is_not_blamed_for_it(
    world: World, unplugged: Manifest, lonely: LocalCluster | None
) -> None:
    if lonely is None:
        pytest.skip("pulls the plug of a node of the local provider, and these tests run on another")
    assert unplugged["candidate"] == [spare.SPARE.name] != unplugged["baseline"]
    status = world.wait(CUT_OFF, "end", lambda s: s.get("verdict") is not None, 120)
    assert (status["endReason"], status["verdict"]) == ("NodeLost", "Inconclusive"), status["message"]
    assert f"Node {spare.SPARE.name} of the candidate is not ready" in status["message"]
    assert "NodeLost" in world.events(CUT_OFF)
    lonely.kubectl("delete", "node", spare.SPARE.name)  # as who runs the machines would
    status = world.wait_complete(CUT_OFF, 120)
    assert condition_reason(status, "Complete") == "NodeLost"
    assert_status_adds_up(status)
    lost = {loss["reason"]: loss["requests"] for loss in status["dropped"]}
    assert lost.get("LostInTransit", 0) + lost.get("MirrorLost", 0) > 0, "with the mirror that was killed"


def test_no_customer_noticed_any_of_it(world: World) -> None:
    for name in PRIMARIES:
        seen = world.customers(name)
        assert seen.failed == 0, seen.failures
        assert seen.ok > 100, seen
