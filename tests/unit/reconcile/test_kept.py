"""What stays after the end stays as long as the spec says, without copies, and goes by itself."""

import dataclasses

import pytest
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.kept import is_over, overdue_s
from shadowrun_operator.reconcile.plan import Delete
from shadowrun_operator.reconcile.reconcile import reconcile

from tests.unit.reconcile.world import World

pytestmark = pytest.mark.operator

ARMS = {
    ("Deployment", "x-baseline"),
    ("Deployment", "x-candidate"),
    ("Service", "x-baseline"),
    ("Service", "x-candidate"),
    ("NetworkPolicy", "x-arms"),
}
STAYS = {("ConfigMap", "x-evidence"), ("ConfigMap", "x-report"), ("Service", "chat-shadowed")}


def _complete(**spec: object) -> World:
    world = World.with_spec(**{"keepArms": {"for": "10m"}, **spec})
    world.until("Complete")
    return world


def test_kept_arms_stay_after_the_end_and_all_else_goes() -> None:
    world = _complete()
    assert set(world.objects) == STAYS | ARMS
    status = world.body["status"]
    assert times.seconds(status["armsKeptUntil"]) == times.seconds(status["completionTime"]) + 600
    assert (status["verdict"], status["endReason"]) == ("Pass", "DurationReached")
    ready = next(c for c in status["conditions"] if c["type"] == "ArmsReady")
    assert ready["status"] == "True", "the mirror is gone, and nobody asks for it"


def test_kept_arms_go_when_their_time_is_over_the_policy_last_and_nothing_goes_back_from_complete() -> None:
    world = _complete()
    until = times.seconds(world.body["status"]["armsKeptUntil"])
    waiting = reconcile(world.observe())
    assert (waiting.steps, waiting.push) == ((), None)
    assert 0 < waiting.requeue_after <= 30
    world.now = until - 5
    assert reconcile(world.observe()).requeue_after == pytest.approx(5)
    world.now = until
    first = world.turn()
    assert {s.name for s in first.steps if isinstance(s, Delete)} == {"x-baseline", "x-candidate"}
    assert ("NetworkPolicy", "x-arms") in world.objects
    phases = set()
    for _ in range(3):
        world.turn()
        phases.add(world.phase)
    assert phases == {"Complete"}
    assert set(world.objects) == STAYS
    assert "armsKeptUntil" not in world.body["status"]
    assert next(c for c in world.body["status"]["conditions"] if c["type"] == "ArmsReady")["reason"] == "Removed"
    assert world.events.count("ArmsRemoved") == 1


def test_a_kept_pod_that_lingers_keeps_its_network_policy() -> None:
    world = _complete()
    lingering = dataclasses.replace(world.pods["candidate-0"], leaving=True)
    world.now = times.seconds(world.body["status"]["armsKeptUntil"])
    for _ in range(20):
        world.pods["candidate-0"] = lingering
        world.carry_out(world.observe(), reconcile(world.observe()))
        world.pass_time(3)
    assert {kind for kind, _ in world.objects} == {"NetworkPolicy", "ConfigMap", "Service"}


@pytest.mark.parametrize(("change", "seconds"), [({"for": "1m"}, 60), ({"for": "1h"}, 3600), (None, 0)])
def test_how_long_they_stay_may_be_changed_afterwards(change: dict[str, str] | None, seconds: int) -> None:
    world = _complete()
    completed = times.seconds(world.body["status"]["completionTime"])
    world.body["spec"]["keepArms"] = change
    plan = world.turn()
    assert plan.status.arms_kept_until == times.written(completed + seconds)
    assert bool(plan.steps) is (seconds == 0)


def test_a_deleted_run_takes_its_kept_arms_along() -> None:
    world = _complete()
    world.body["metadata"]["deletionTimestamp"] = times.written(world.now)
    for _ in range(5):
        plan = world.turn()
    assert plan.released
    assert not ARMS & world.objects.keys()


def test_deletion_while_a_run_is_active_keeps_nothing() -> None:
    world = World.with_spec(keepArms={"for": "10m"})
    world.until("Running")
    world.body["metadata"]["deletionTimestamp"] = times.written(world.now)
    world.turn()
    assert not [key for key in world.objects if key[0] == "Deployment" and key[1] in ("x-baseline", "x-candidate")]


def test_arms_that_never_became_ready_are_kept_too_since_they_are_what_is_to_be_looked_at() -> None:
    world = World.with_spec(keepArms={"for": "10m"})
    world.starting = False
    world.until("Complete")
    assert world.body["status"]["endReason"] == "StartDeadlineExceeded"
    assert world.objects.keys() >= ARMS
    assert "armsKeptUntil" in world.body["status"]


def test_a_run_that_ends_before_it_made_an_arm_keeps_none() -> None:
    world = World.with_spec(keepArms={"for": "10m"})
    world.body["spec"]["stop"] = {"reason": "never mind"}
    world.users.clear()
    world.until("Complete")
    assert "armsKeptUntil" not in world.body["status"]


def test_no_copy_is_taken_while_arms_are_kept() -> None:
    world = _complete()
    last = world.longest_copying
    for _ in range(50):
        world.turn()
    assert world.longest_copying == last


@pytest.mark.parametrize(
    ("status", "over"),
    [
        ({"phase": "Complete", "completionTime": "2027-01-15T08:00:00Z"}, True),
        ({"phase": "Complete", "completionTime": "2027-01-15T08:00:01Z"}, False),
        ({"phase": "Complete", "completionTime": "2027-01-15T07:00:00Z", "armsKeptUntil": "x"}, False),
        ({"phase": "Complete"}, False),
        ({"phase": "Running", "completionTime": "2027-01-15T07:00:00Z"}, False),
        ({}, False),
    ],
)
def test_a_run_is_over_once_it_has_been_complete_for_long_enough(status: dict[str, str], over: bool) -> None:
    body = {"spec": {"ttlAfterFinished": "10m"}, "status": status}
    assert is_over(body, times.seconds("2027-01-15T08:10:00Z")) is over


def test_only_what_should_be_over_is_overdue() -> None:
    now = times.seconds("2027-01-15T08:10:00Z")
    earlier = "2027-01-15T08:00:00Z"
    assert overdue_s({"status": {"phase": "Running", "expiryTime": earlier}}, now) == 600
    assert overdue_s({"status": {"phase": "Complete", "expiryTime": earlier}}, now) < 0
    assert overdue_s({"status": {"phase": "Complete", "armsKeptUntil": earlier}}, now) == 600
    assert overdue_s({}, now) < 0
