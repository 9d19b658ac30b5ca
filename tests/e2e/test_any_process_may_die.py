"""Processes of ours die in the middle of a run: nothing is counted twice, nothing is lost uncounted, it still ends."""

import time

import pytest

from tests.e2e.funnel import assert_status_adds_up
from tests.e2e.world import World, condition, shadow_run

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

SERVICE = "chat-shadowed"


@pytest.fixture(scope="module", autouse=True)
def served(world: World) -> None:
    """Customers in front of the first run's capture Service, through all of it."""
    world.apply(shadow_run("operator-killed", duration="45s"))
    world.serve_customers("customers", SERVICE)


def running(world: World, name: str) -> None:
    world.wait(name, "counted pairs", lambda s: s.get("phase") == "Running" and s.get("pairs", 0) > 20, 150)


def test_an_operator_killed_while_a_run_is_counting_goes_on_and_counts_nothing_twice(world: World) -> None:
    running(world, "operator-killed")
    before = world.status("operator-killed")
    world.cluster.kubectl(
        "-n",
        "shadowrun-system",
        "delete",
        "pod",
        "-l",
        "app.kubernetes.io/name=shadowrun",
        "--grace-period=0",
        "--force",
    )
    status = world.wait_complete("operator-killed", 240)
    assert (status["verdict"], status["endReason"]) == ("Pass", "DurationReached"), status["message"]
    assert status["startTime"] == before["startTime"]
    assert status["pairs"] > before["pairs"]
    assert_status_adds_up(status)
    assert status["funnel"]["requests"]["seen"] <= world.customers().sent, "counted twice"


def test_a_killed_mirror_is_a_counted_loss(world: World) -> None:
    world.apply(shadow_run("mirror-killed", duration="45s"))
    running(world, "mirror-killed")
    world.kubectl("delete", "pod", "-l", "shadowrun.dev/run=mirror-killed,shadowrun.dev/component=mirror", "--force")
    status = world.wait_complete("mirror-killed", 240)
    assert_status_adds_up(status)
    lost = {loss["reason"]: loss["requests"] for loss in status["dropped"]}
    assert lost.get("LostInTransit", 0) + lost.get("MirrorLost", 0) > 0, (lost, status["message"])
    assert status["verdict"] != "Fail", "a mirror's death says nothing about the candidate"


def test_a_run_ends_by_itself_without_the_operator(world: World) -> None:
    """Expiry passes while no operator runs: the mirror has stopped by itself, and the next operator says so."""
    world.apply(
        shadow_run("expired", duration="20s", startDeadline="50s", endConditions={"minDuration": "20s"}),
    )
    running(world, "expired")
    world.scale_operator(0)
    try:
        expiry = world.status("expired")["expiryTime"]
        world.until("the expiry", lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) > expiry, 240)
        time.sleep(3)
        pods = world.all("pods", "shadowrun.dev/run=expired,shadowrun.dev/component=mirror")
        assert pods, "without an operator nothing is removed"
        log = world.kubectl("logs", pods[0]["metadata"]["name"])
        assert "expired" in log
        capture = world.all("pods", "shadowrun.dev/run=expired,shadowrun.dev/component=capture")
        assert len(capture) == 2, "customers are still served by capture"
    finally:
        world.scale_operator(1)
    status = world.wait_complete("expired", 120)
    assert (status["verdict"], status["endReason"]) == ("Inconclusive", "Expired"), status["message"]
    assert condition(status, "Succeeded") == "False"
    assert_status_adds_up(status)


def test_no_customer_noticed_any_of_it(world: World) -> None:
    seen = world.customers()
    assert seen.failed == 0, seen.failures
    assert seen.ok > 200, seen
