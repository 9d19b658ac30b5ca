"""Processes of ours die in the middle of a run: nothing is counted twice, nothing is lost uncounted, it still ends."""

import time

import pytest

from examples.demo.scenarios import RELEASE_NAMESPACE
from tests.e2e.funnel import assert_status_adds_up
from tests.e2e.world import OPERATOR_PODS, World, condition, shadow_run

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

PRIMARIES = ("chat", "chat-two", "chat-three")


@pytest.fixture(scope="module", autouse=True)
def started(world: World) -> None:
    """Two runs side by side under customers; the third comes later."""
    world.add_primaries(*PRIMARIES[1:])
    world.apply(
        shadow_run("operator-killed", duration="32s"),
        shadow_run("mirror-killed", primary="chat-two", duration="32s"),
    )
    for primary in PRIMARIES[:2]:
        world.serve_customers(primary)


def running(world: World, name: str) -> None:
    world.wait(name, "counted pairs", lambda s: s.get("phase") == "Running" and s.get("pairs", 0) > 15, 150)


def test_an_operator_killed_while_a_run_is_counting_goes_on_and_counts_nothing_twice(world: World) -> None:
    running(world, "operator-killed")
    running(world, "mirror-killed")  # one that still warms up would lose what isn't counted
    before = world.status("operator-killed")
    killed = ("delete", "pod", "-l", OPERATOR_PODS, "--grace-period=0", "--force")
    world.cluster.kubectl("-n", RELEASE_NAMESPACE, *killed)
    mirrors = "shadowrun.dev/run=mirror-killed,shadowrun.dev/component=mirror"
    world.kubectl("delete", "pod", "-l", mirrors, "--grace-period=0", "--force")
    status = world.wait_complete("operator-killed", 240)
    assert (status["verdict"], status["endReason"]) == ("Pass", "DurationReached"), status["message"]
    assert status["startTime"] == before["startTime"]
    assert status["pairs"] > before["pairs"]
    assert_status_adds_up(status)
    assert status["funnel"]["requests"]["seen"] <= world.customers().sent, "counted twice"


def test_a_killed_mirror_is_a_counted_loss(world: World) -> None:
    status = world.wait_complete("mirror-killed", 240)
    assert_status_adds_up(status)
    lost = {loss["reason"]: loss["requests"] for loss in status["dropped"]}
    assert lost.get("LostInTransit", 0) + lost.get("MirrorLost", 0) > 0, (lost, status["message"])
    assert status["verdict"] != "Fail", "a mirror's death says nothing about the candidate"


def test_a_run_ends_by_itself_without_the_operator(world: World) -> None:
    """Expiry passes while no operator runs: the mirror has stopped by itself, and the next operator says so."""
    third = PRIMARIES[2]
    world.apply(shadow_run("expired", primary=third, duration="15s", startDeadline="45s"))
    world.serve_customers(third)
    world.wait("expired", "counted pair", lambda s: s.get("phase") == "Running", 150)
    world.scale_operator(0)
    try:
        expiry = world.status("expired")["expiryTime"]
        world.until("the expiry", lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) > expiry, 240)
        time.sleep(3)
        pods = world.all("pods", "shadowrun.dev/run=expired,shadowrun.dev/component=mirror")
        assert pods, "without an operator nothing is removed"
        assert "expired" in world.kubectl("logs", pods[0]["metadata"]["name"])
        capture = world.all("pods", "shadowrun.dev/run=expired,shadowrun.dev/component=capture")
        assert len(capture) == 2, "customers are still served by capture"
    finally:
        world.scale_operator(1)
    status = world.wait_complete("expired", 120)
    assert (status["verdict"], status["endReason"]) == ("Inconclusive", "Expired"), status["message"]
    assert condition(status, "Succeeded") == "False"
    assert_status_adds_up(status)


def test_no_customer_noticed_any_of_it(world: World) -> None:
    for primary in PRIMARIES:
        seen = world.customers(primary)
        assert seen.failed == 0, seen.failures
        assert seen.ok > 100, seen
