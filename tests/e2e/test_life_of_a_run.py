"""One run through its whole life on a real cluster: planned, suspended, resumed, shortened, its arms kept; another one
that is deleted by itself. And what customers are left with afterwards."""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cluster.commands import ClusterError
from tests.e2e.funnel import assert_status_adds_up
from tests.e2e.world import World, condition, condition_reason, shadow_run, shadowed

pytestmark = [pytest.mark.operator, pytest.mark.e2e]


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def patch(world: World, name: str, **spec: Any) -> None:
    world.kubectl("patch", "shadowrun", name, "--type=merge", "-p", json.dumps({"spec": spec}))


def made(world: World, name: str) -> set[str]:
    """Kind and name of the Deployments and Services of a run."""
    found = world.all("deployments,services", f"shadowrun.dev/run={name}")
    return {f"{item['kind']}/{item['metadata']['name']}" for item in found}


@pytest.fixture(scope="module")
def started(world: World) -> None:
    """The one that never begins is over at once; the other begins in some seconds."""
    never = shadow_run("never", schedule={"startTime": in_seconds(3600)}, ttlAfterFinished="1s")
    life = shadow_run("life", schedule={"startTime": in_seconds(20)}, duration="10m", keepArms={"for": "40s"})
    world.apply(never, life)


def test_a_planned_run_says_when_it_begins_and_makes_nothing_before(world: World, started: None) -> None:
    status = world.wait("life", "plan", lambda s: condition_reason(s, "Accepted") == "Scheduled", 30)
    assert condition(status, "Accepted") == "Unknown"
    assert status.get("phase") == "Pending"
    status = world.wait("never", "plan", lambda s: condition_reason(s, "Accepted") == "Scheduled", 30)
    assert made(world, "never") == set()
    patch(world, "never", stop={"reason": "not needed"})
    world.wait_phase("life", "Preparing", 60)
    world.serve_customers()


def test_a_suspended_run_stands_still_and_goes_on(world: World, started: None) -> None:
    world.wait("life", "counted pair", lambda s: s.get("pairs", 0) > 0, 150)
    patch(world, "life", suspend=True)
    world.wait("life", "pause", lambda s: condition_reason(s, "Complete") == "Suspended", 30)

    def in_flight(status: dict[str, Any]) -> int:
        funnel = status["funnel"]["requests"]
        return int(funnel["inTransit"]) + sum(int(arm["inFlight"]) for arm in funnel["arms"])

    status = world.wait("life", "last pair in flight", lambda s: in_flight(s) == 0, 40)
    time.sleep(12)  # counts are written every ten seconds
    still = world.status("life")
    assert still["funnel"]["requests"]["selected"] == status["funnel"]["requests"]["selected"]
    assert_status_adds_up(still)
    patch(world, "life", suspend=False)
    world.wait("life", "further pair", lambda s: s.get("pairs", 0) > still["pairs"], 60)


def test_a_duration_is_only_ever_shortened_and_a_shorter_one_ends_the_run(world: World, started: None) -> None:
    with pytest.raises(ClusterError, match="duration can only be shortened"):
        patch(world, "life", duration="20m")
    patch(world, "life", duration="11s")
    status = world.wait_complete("life", 120)
    assert status["endReason"] == "DurationReached"
    assert_status_adds_up(status)
    changes = [(c["field"], c["value"]) for c in world.report("life")["facts"]["changes"]]
    assert changes[-3:] == [("spec.suspend", "true"), ("spec.suspend", "false"), ("spec.duration", "11s")]


def test_kept_arms_stay_without_copies_and_go_by_themselves(world: World, started: None) -> None:
    arms = {f"{kind}/life-{arm}" for kind in ("Deployment", "Service") for arm in ("baseline", "candidate")}
    assert made(world, "life") == arms | {f"Service/{shadowed('chat')}"}
    world.wait("life", "removal of the arms", lambda s: "armsKeptUntil" not in s, 60)
    world.until("event of the removal", lambda: "ArmsRemoved" in world.events("life"), 10)
    assert made(world, "life") == {f"Service/{shadowed('chat')}"}
    assert world.all("networkpolicies", "shadowrun.dev/run=life") == []


def test_a_run_with_a_time_to_live_is_deleted_after_its_end(world: World, started: None) -> None:
    world.until("the run that never began is deleted", lambda: world.get("shadowrun", "never") is None, 90)


def test_customers_were_served_and_follow_the_primary_when_it_is_switched(world: World, started: None) -> None:
    seen = world.customers()
    assert seen.failed == 0, seen.failures
    world.kubectl("label", "pods", "-l", "app=chat", "color=green", "--overwrite")
    world.kubectl("patch", "service", "chat", "-p", '{"spec": {"selector": {"app": "chat", "color": "green"}}}')

    def follows() -> bool:
        service = world.get("service", shadowed("chat"))
        return service is not None and service["spec"]["selector"] == {"app": "chat", "color": "green"}

    world.until("the Service left behind follows", follows, 60)
    assert world.endpoints(shadowed("chat")) == world.endpoints("chat") != []
