"""Passes and sweeps over runs that take another proxy's copies, or have several mirrors."""

import asyncio
import time
from typing import Any

import pytest
from shadowrun_operator.cluster.memory import Memory
from shadowrun_operator.cluster.observe import observe
from shadowrun_operator.cluster.replicas import Answer
from shadowrun_operator.cluster.runs import Runs
from shadowrun_operator.manifests import names
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.observation import Settings

from tests.unit.cluster_io.fake_cluster import FakeCluster
from tests.unit.cluster_io.wire import Request, answering, nobody
from tests.unit.reconcile.world import UID, deployment, service, spec

pytestmark = pytest.mark.operator

EXTERNAL = {"mode": "External", "proxy": None, "external": {"serviceName": "chat-copies"}}
SETTINGS = Settings(mirror_image="m:1", capture_image="c:1", namespace="ops", version="0.1.0")


def run(name: str = "x", uid: str = UID, **changes: Any) -> dict[str, Any]:
    """A ShadowRun as it is stored."""
    metadata = {"name": name, "namespace": "inference", "uid": uid, "generation": 1}
    created = {"creationTimestamp": times.written(time.time()), "finalizers": [names.FINALIZER]}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": metadata | created,
        "spec": spec(**changes),
        "status": {},
    }


def cluster_with(*bodies: dict[str, Any]) -> FakeCluster:
    """The user's objects and these runs."""
    cluster = FakeCluster()
    for item in (service(), deployment(), *bodies):
        cluster.put(item)
    return cluster


def ready(cluster: FakeCluster) -> None:
    """Every Deployment of ours is rolled out, each of its pods has an address of its own."""
    for (kind, _, name), item in list(cluster.objects.items()):
        if kind == "Deployment" and name != "chat":
            wanted = item["spec"]["replicas"]
            rolled = {"readyReplicas": wanted, "updatedReplicas": wanted}
            item["status"] = rolled | {"observedGeneration": item["metadata"]["generation"]}
            for number in range(wanted):
                labels = item["metadata"]["labels"]
                meta = {"name": f"{name}-{number}", "namespace": "inference", "uid": f"{name}-{number}"}
                conditions = [{"type": "Ready", "status": "True"}]
                cluster.put(
                    {
                        "kind": "Pod",
                        "metadata": meta | {"labels": labels},
                        "spec": {"nodeName": "node1"},
                        "status": {"podIP": f"{name}-{number}", "conditions": conditions},
                    }
                )
    cluster.put({"kind": "Node", "metadata": {"name": "node1", "namespace": "", "labels": {"gpu": "H200"}}})


async def passed(cluster: FakeCluster, runs: Runs, times_: int = 6) -> None:
    for _ in range(times_):
        await runs.pass_once("inference", "x")
        ready(cluster)


def status(cluster: FakeCluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.objects[names.KIND, "inference", "x"]["status"]
    return found


async def test_a_run_with_another_proxy_makes_one_service_and_no_capture() -> None:
    cluster = cluster_with(run(capture=EXTERNAL))
    runs = Runs(cluster, answering(nobody), SETTINGS, instance="test")  # type: ignore[arg-type]
    await passed(cluster, runs)
    assert status(cluster)["phase"] == "WarmingUp"
    assert cluster.names("Deployment") == ["chat", "x-baseline", "x-candidate", "x-mirror"]
    assert cluster.names("Service") == ["chat", "chat-copies", "x-baseline", "x-candidate", "x-mirror"]
    await passed(cluster, runs, 1)
    cluster.calls.clear()
    await runs.pass_once("inference", "x")
    assert cluster.calls == [], "a pass that finds everything as it should be writes nothing"
    await runs.close()


async def test_the_sweep_never_takes_the_service_that_another_proxy_sends_to() -> None:
    cluster = cluster_with(run(capture=EXTERNAL))
    runs = Runs(cluster, answering(nobody), SETTINGS, instance="test")  # type: ignore[arg-type]
    await passed(cluster, runs)
    del cluster.objects[names.KIND, "inference", "x"]
    await runs.sweep()
    await runs.sweep()
    assert "chat-copies" in cluster.names("Service")
    await runs.close()


async def test_its_service_is_its_own_although_it_has_no_owner() -> None:
    body = run(capture=EXTERNAL)
    cluster = cluster_with(body)
    runs = Runs(cluster, answering(nobody), SETTINGS, instance="test")  # type: ignore[arg-type]
    await passed(cluster, runs)
    seen = await observe(cluster, answering(nobody), SETTINGS, body, Memory())  # type: ignore[arg-type]
    assert ("Service", "chat-copies") in seen.objects
    assert seen.capture_service is not None
    assert seen.leftovers == ()
    await runs.close()


async def test_of_another_run_it_is_told_whether_it_stands_before_the_primary() -> None:
    first, second = run("y", "uid-y", capture=EXTERNAL), run("z", "uid-z")
    for body in (first, second):
        body["status"] = {
            "phase": "Running",
            "conditions": [
                {
                    "type": "Accepted",
                    "status": "True",
                    "reason": "Accepted",
                    "lastTransitionTime": times.written(time.time()),
                }
            ],
        }
    mine = run()
    cluster = cluster_with(mine, first, second)
    seen = await observe(cluster, answering(nobody), SETTINGS, mine, Memory())  # type: ignore[arg-type]
    assert {(o.name, o.primary, o.service_name) for o in seen.others} == {
        ("y", "", "chat-copies"),
        ("z", "chat", "chat-shadowed"),
    }


async def test_a_foreign_service_under_the_name_of_the_mirrors_pods_is_found_where_it_is_needed() -> None:
    foreign = {"kind": "Service", "metadata": {"name": "x-mirror-pods", "namespace": "inference"}, "spec": {}}
    several, alone = run(mirror={"replicas": 2}), run()
    for body, found in ((several, ("Service 'x-mirror-pods'",)), (alone, ())):
        cluster = cluster_with(body, foreign)
        seen = await observe(cluster, answering(nobody), SETTINGS, body, Memory())  # type: ignore[arg-type]
        assert seen.foreign == found


async def test_all_mirrors_are_told_at_once_so_that_a_silent_one_keeps_no_other_waiting() -> None:
    cluster = cluster_with(run(mirror={"replicas": 3}))
    together = asyncio.Barrier(3)
    told: set[str] = set()

    async def answer(request: Request) -> Answer:
        if request.method == "PUT":
            async with asyncio.timeout(5):
                await together.wait()
            told.add(request.host)
        return 503, b""

    runs = Runs(cluster, answering(answer), SETTINGS, instance="test")  # type: ignore[arg-type]
    await passed(cluster, runs)
    assert told == {"x-mirror-0", "x-mirror-1", "x-mirror-2"}
    await runs.close()


async def test_pods_of_mirror_and_capture_are_pulled_as_the_operator_was_told_and_arms_as_the_primary() -> None:
    cluster = cluster_with(run())
    own = Settings(mirror_image="m:1", capture_image="c:1", pull_policy="Always", pull_secrets=("registry",))
    runs = Runs(cluster, answering(nobody), own, instance="test")  # type: ignore[arg-type]
    await passed(cluster, runs)
    pods = {
        name: cluster.objects["Deployment", "inference", name]["spec"]["template"]["spec"]
        for name in ("x-mirror", "x-capture", "x-candidate")
    }
    assert [pods[name].get("imagePullSecrets") for name in pods] == [[{"name": "registry"}]] * 2 + [None]
    policies = {c.get("imagePullPolicy") for n in ("x-mirror", "x-capture") for c in pods[n]["containers"]}
    assert policies == {"Always"}
    await runs.close()
