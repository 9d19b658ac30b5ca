"""Replicas stamp by clocks of their own: one that is off moves no end of the run, and is said.

A mirror far enough ahead takes the run for expired, and then nothing is counted at all.
"""

import dataclasses

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.clocks import began
from shadowrun_operator.reconcile.reconcile import reconcile
from shadowrun_operator.reconcile.record import RunRecord

from tests.unit.reconcile.world import START, World, decoded

pytestmark = pytest.mark.operator

LOOK_S = 3.0
OFF = (-7200.0, -45.0, 45.0)


def phases(world: World) -> dict[str, float]:
    """When each phase was first seen."""
    seen: dict[str, float] = {}
    for _ in range(400):
        seen.setdefault(world.phase, world.now)
        if world.phase == "Complete":
            return seen
        world.turn()
    raise AssertionError(f"still {world.phase}")


@pytest.mark.parametrize("off", OFF)
def test_warm_up_and_duration_are_as_long_as_asked_whatever_the_mirror_takes_for_the_time(off: float) -> None:
    right, wrong = World.with_spec(), World.with_spec()
    wrong.ahead["mirror-0"] = off
    expected, found = phases(right), phases(wrong)
    assert found.keys() == expected.keys()
    for phase, at in expected.items():
        assert abs(found[phase] - at) <= 2 * LOOK_S, (phase, found, expected)
    for field in ("endReason", "verdict"):
        assert wrong.body["status"][field] == right.body["status"][field]
    begun = times.seconds(wrong.body["status"]["startTime"])
    assert abs(begun - times.seconds(right.body["status"]["startTime"])) <= 2 * LOOK_S


def test_a_clock_that_is_off_is_said_once() -> None:
    world = World.with_spec()
    world.ahead |= {"mirror-0": -45.0, "capture-1": 30.0}
    plans = []
    while world.phase != "Complete":
        plans.append(world.turn())
    said = [event.message for plan in plans for event in plan.events if event.reason == "ClockOff"]
    assert len(said) == 2
    assert any("mirror-0 is 45 s behind" in message and "too late" in message for message in said)
    assert any("capture-1 is 30 s ahead of" in message and "too early" in message for message in said)


def test_a_mirror_that_takes_the_run_for_expired_copies_nothing_and_the_run_says_why() -> None:
    world = World.with_spec()
    world.ahead["mirror-0"] = 7200.0
    world.until("Complete")
    assert world.longest_copying == 0.0
    status = world.body["status"]
    assert (status["endReason"], status["verdict"]) == ("StartDeadlineExceeded", "Inconclusive")
    assert "ClockOff" in world.events


def test_without_an_operator_a_mirror_behind_copies_no_longer_than_its_clock_is_behind() -> None:
    world = World.with_spec()
    world.ahead["mirror-0"] = -45.0
    world.until("Running")
    assert world.record is not None
    for _ in range(400):
        world.pass_time(LOOK_S)
    assert world.record.expiry < world.longest_copying + LOOK_S <= world.record.expiry + 45.0 + LOOK_S
    world.until("Complete")
    assert world.body["status"]["endReason"] == "Expired"


@pytest.mark.parametrize(("off", "verdict"), [(0.4, "Pass"), (45.0, "Inconclusive")])
def test_of_several_mirrors_with_clocks_apart_no_verdict_follows(off: float, verdict: str) -> None:
    world = World.with_spec(mirror={"replicas": 2})
    world.ahead["mirror-1"] = off
    world.until("Complete")
    status = world.body["status"]
    assert status["verdict"] == verdict, status["message"]
    if verdict == "Inconclusive":
        assert status["reason"] == "ClocksApart"
        assert "The clock of mirror-1 was 45 s ahead of that of mirror-0" in status["message"]


def judged_on_the_clocks_of(world: World) -> bool:
    """Whether the verdict, once there is one, is that the mirrors' clocks were apart."""
    world.until("Complete")
    return bool(world.body["status"]["reason"] == "ClocksApart")


def test_mirrors_that_are_each_off_a_little_are_apart() -> None:
    world = World.with_spec(mirror={"replicas": 2})
    world.ahead |= {"mirror-0": -1.0, "mirror-1": 1.0}
    assert judged_on_the_clocks_of(world)
    assert "The clock of mirror-1 was 2 s ahead of that of mirror-0" in world.body["status"]["message"]
    assert "ClockOff" not in world.events, "neither is off by more than is allowed"


def test_an_operator_whose_clock_is_set_right_tells_no_mirrors_apart() -> None:
    world = World.with_spec(mirror={"replicas": 2})
    world.silent.add("mirror-1")
    world.ahead["mirror-0"] = 5.0  # as an operator 5 s behind sees it
    world.until("WarmingUp")
    world.turn()
    assert "ClockOff" in world.events
    world.ahead.clear()
    world.silent.clear()
    assert not judged_on_the_clocks_of(world)


def test_an_operator_whose_clock_drifts_tells_no_mirrors_apart() -> None:
    world = World.with_spec(mirror={"replicas": 2})
    for look in range(400):
        world.ahead |= dict.fromkeys(("mirror-0", "mirror-1"), look * 0.1)
        if world.phase == "Complete":
            break
        world.turn()
    assert "ClockOff" in world.events
    assert not judged_on_the_clocks_of(world)


def test_a_clock_that_drifts_off_is_written_down_at_every_doubling() -> None:
    world = World.with_spec(duration="10m")
    world.until("Running")
    written = []
    for look in range(100):
        world.ahead["mirror-0"] = look * LOOK_S
        world.turn()
        assert world.record is not None
        assert world.record.apart == {}, "there is one mirror alone"
        written.append(world.record.clocks.get("mirror-0", 0.0))
    assert len(set(written)) <= 9
    assert all(off >= at * LOOK_S / 2 for at, off in enumerate(written))


def test_mirrors_that_drift_apart_are_written_down_at_every_doubling() -> None:
    world = World.with_spec(duration="10m", mirror={"replicas": 3})
    world.until("Running")
    written = set()
    for look in range(100):
        world.ahead["mirror-1"] = -look * LOOK_S
        world.turn()
        assert world.record is not None
        written.add(tuple(world.record.apart.items()))
        assert world.record.apart.get("mirror-1", 0.0) <= -look * LOOK_S / 2
        assert len(world.record.apart) in (0, 2)
    assert len(written) <= 9


def test_what_is_known_of_clocks_outlives_the_operator() -> None:
    world = World.with_spec()
    world.ahead["mirror-0"] = -45.0
    world.until("Running")
    world.turn(seconds=30)
    world.turn()
    assert world.record is not None
    assert decoded(world.record).counting_since == world.record.counting_since > START
    world.restart_operator()
    seen = dataclasses.replace(world.observe(), record=decoded(world.record))
    assert "ClockOff" not in [event.reason for event in reconcile(seen).events]


def test_a_record_of_an_operator_that_did_not_look_at_clocks_is_read() -> None:
    world = World.with_spec()
    world.until("Running")
    kept = msgspec.json.decode(msgspec.json.encode(world.record), type=dict)
    new = ("warming_since", "told_to_count", "counting_since", "clocks", "apart", "restarts")
    old = msgspec.json.encode({key: value for key, value in kept.items() if key not in new})
    world.record = msgspec.json.decode(old, type=RunRecord)
    world.until("Complete")
    assert world.body["status"]["endReason"] == "DurationReached"


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 60)), min_size=1, max_size=10), st.floats(1e3, 1e6))
def test_the_beginning_never_moves_and_lies_between_what_the_operator_knows(
    looks: list[tuple[float, float]], told: float
) -> None:
    now, known = told, 0.0
    first_look = told + looks[0][1]
    for first, later in looks:
        now += later
        found = began(known, first, told, now)
        assert found is not None
        assert told <= found <= first_look
        assert not known or found == known
        known = found
