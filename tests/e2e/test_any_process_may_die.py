"""Processes of ours die in the middle of a run: nothing is counted twice, nothing is lost uncounted, it still ends.

Two namespaces, each with an operator of its own that watches nothing else: other tests keep theirs.
"""

import time
from collections.abc import Iterator

import pytest

from tests.cluster.base import Cluster
from tests.cluster.plugin import RunOnce
from tests.e2e.conftest import own_namespaces, world_with_operator
from tests.e2e.funnel import assert_status_adds_up
from tests.e2e.world import Manifest, World, condition, shadow_run

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

PRIMARIES = ("chat", "chat-two")


@pytest.fixture(scope="module")
def forsaken(installed: Cluster, once: RunOnce) -> Iterator[World]:
    """Where the operator goes as soon as its run counts, which would else be over before anybody looks.

    Its run begins first, for from there to its expiry it takes more than three minutes.
    """
    with world_with_operator(installed, own_namespaces(once)[0]) as one:
        one.apply(shadow_run("expired", duration="20s", startDeadline="3m"))
        one.serve_customers()
        try:
            one.wait_phase("expired", "Running", 150)
            one.scale_operator(0)
            yield one
        finally:
            one.scale_operator(1)


@pytest.fixture(scope="module", autouse=True)
def world(installed: Cluster, once: RunOnce, forsaken: World) -> Iterator[World]:
    """Where processes are killed: two runs side by side, from when the other run has lost its operator."""
    with world_with_operator(installed, own_namespaces(once)[1]) as one:
        one.add_primaries(PRIMARIES[1])
        one.apply(
            shadow_run("operator-killed", duration="75s"),
            shadow_run("mirror-killed", primary=PRIMARIES[1], duration="75s"),
        )
        for primary in PRIMARIES:
            one.serve_customers(primary)
        yield one


@pytest.fixture(scope="module")
def killed(world: World) -> dict[str, Manifest]:
    """What each run said when its process was killed, which is as soon as it counts: either may be the first.

    One that still warms up would lose what isn't counted.
    """
    mirrors = "shadowrun.dev/run=mirror-killed,shadowrun.dev/component=mirror"
    at_once = ("--grace-period=0", "--force")
    deaths = {
        "operator-killed": lambda: world.of_operator("delete", "pod", "-l", world.release.operator_pods, *at_once),
        "mirror-killed": lambda: world.kubectl("delete", "pod", "-l", mirrors, *at_once),
    }
    before: dict[str, Manifest] = {}

    def all_killed() -> bool:
        for name in deaths.keys() - before.keys():
            status = world.status(name)
            if status.get("phase") == "Running" and status.get("pairs", 0) > 15:
                deaths[name]()
                before[name] = status
        return before.keys() == deaths.keys()

    world.until("both runs count", all_killed, 200)
    return before


def test_an_operator_killed_while_a_run_is_counting_goes_on_and_counts_nothing_twice(
    world: World, killed: dict[str, Manifest]
) -> None:
    before = killed["operator-killed"]
    status = world.wait_complete("operator-killed", 240)
    assert status["endReason"] == "DurationReached", status["message"]
    assert status["verdict"] != "Fail", "an operator's death says nothing about the candidate"
    assert status["startTime"] == before["startTime"]
    assert status["pairs"] > before["pairs"]
    assert_status_adds_up(status)
    assert status["funnel"]["requests"]["seen"] <= world.customers().sent, "counted twice"


def test_a_killed_mirror_is_a_counted_loss(world: World, killed: dict[str, Manifest]) -> None:
    status = world.wait_complete("mirror-killed", 240)
    assert_status_adds_up(status)
    lost = {loss["reason"]: loss["requests"] for loss in status["dropped"]}
    assert lost.get("LostInTransit", 0) + lost.get("MirrorLost", 0) > 0, (lost, status["message"])
    assert status["verdict"] != "Fail", "a mirror's death says nothing about the candidate"


def test_a_run_ends_by_itself_without_the_operator(forsaken: World) -> None:
    """Expiry passes while no operator runs: the mirror has stopped by itself, and the next operator says so."""
    ours = "shadowrun.dev/run=expired,shadowrun.dev/component"
    expiry = forsaken.status("expired")["expiryTime"]
    forsaken.until("the expiry", lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) > expiry, 300)
    mirror = forsaken.all("pods", f"{ours}=mirror")[0]["metadata"]["name"]  # without an operator nothing is removed
    forsaken.until("the mirror says it", lambda: "expired" in forsaken.kubectl("logs", mirror), 30)
    assert len(forsaken.all("pods", f"{ours}=capture")) == 1, "customers are still served by capture"
    forsaken.scale_operator(1)
    status = forsaken.wait_complete("expired", 120)
    assert (status["verdict"], status["endReason"]) == ("Inconclusive", "Expired"), status["message"]
    assert condition(status, "Succeeded") == "False"
    assert_status_adds_up(status)


def test_no_customer_noticed_any_of_it(world: World, forsaken: World) -> None:
    for seen in (*(world.customers(primary) for primary in PRIMARIES), forsaken.customers()):
        assert seen.failed == 0, seen.failures
        assert seen.ok > 100, seen
