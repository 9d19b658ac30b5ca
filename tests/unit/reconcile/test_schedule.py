"""A run begins when it is planned to, copies in its daily window only, and its clock is the one on the wall."""

from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from shadowrun_mirror.config import wants_copies
from shadowrun_mirror.directive import directive_of
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.judge.hours import hours
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.judging import stored_report
from shadowrun_operator.reconcile.reconcile import reconcile
from shadowrun_operator.reconcile.schedule import (
    LONGEST_S,
    changes,
    copy_until,
    deadline_after,
    pause,
    start_deadline,
    waits_until,
)
from shadowrun_operator.reconcile.spec_hash import changed_fields, frozen_spec

from tests.unit.reconcile.test_any_process_may_die import MISHAPS, _happen
from tests.unit.reconcile.world import START, World, spec

pytestmark = pytest.mark.operator

HOUR = 3600.0
assert times.written(START) == "2027-01-15T08:00:00Z"


def window(begins: str, ends: str, zone: str = "Etc/UTC") -> dict[str, Any]:
    return {"schedule": {"dailyWindow": {"from": begins, "to": ends, "timeZone": zone}}}


def open_at(written: str, begins: str, ends: str, zone: str) -> bool:
    return pause(Spec.model_validate(spec(**window(begins, ends, zone))), times.seconds(written)) is None


@pytest.mark.parametrize(
    ("written", "begins", "ends", "zone", "is_open"),
    [
        ("2027-01-15T09:00:00Z", "09:00", "17:00", "Etc/UTC", True),
        ("2027-01-15T16:59:59Z", "09:00", "17:00", "Etc/UTC", True),
        ("2027-01-15T17:00:00Z", "09:00", "17:00", "Etc/UTC", False),
        ("2027-01-15T08:00:00Z", "09:00", "17:00", "Europe/Zurich", True),
        ("2027-07-15T07:00:00Z", "09:00", "17:00", "Europe/Zurich", True),
        ("2027-07-15T15:00:00Z", "09:00", "17:00", "Europe/Zurich", False),
        ("2027-01-15T23:30:00Z", "22:00", "06:00", "Etc/UTC", True),
        ("2027-01-15T05:59:59Z", "22:00", "06:00", "Etc/UTC", True),
        ("2027-01-15T06:00:00Z", "22:00", "06:00", "Etc/UTC", False),
        ("2027-01-15T23:30:00Z", "18:00", "00:00", "Etc/UTC", True),
        ("2027-01-15T16:00:00Z", "00:00", "04:00", "Asia/Tokyo", True),
        # Clocks go forward at 02:00 in Zurich on 28 March 2027: 02:30 is read as 03:30.
        ("2027-03-28T01:15:00Z", "02:30", "05:00", "Europe/Zurich", False),
        ("2027-03-28T01:30:00Z", "02:30", "05:00", "Europe/Zurich", True),
    ],
)
def test_the_window_is_local_time_and_may_reach_over_midnight(
    written: str, begins: str, ends: str, zone: str, is_open: bool
) -> None:
    assert open_at(written, begins, ends, zone) is is_open


@given(
    at=st.integers(int(START), int(START) + 400 * 86_400),
    begins=st.times(),
    ends=st.times(),
    zone=st.sampled_from(["Etc/UTC", "Europe/Zurich", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]),
)
@settings(max_examples=200, deadline=None)
def test_copying_ends_exactly_when_the_pause_begins_and_the_next_change_is_never_missed(
    at: int, begins: Any, ends: Any, zone: str
) -> None:
    if begins.replace(second=0, microsecond=0) == ends.replace(second=0, microsecond=0):
        return
    of = Spec.model_validate(spec(**window(f"{begins:%H:%M}", f"{ends:%H:%M}", zone)))
    ahead = changes(of, at)
    assert ahead
    first = min(ahead)
    assert (pause(of, at) is None) == (pause(of, first - 0.5) is None), "nothing changes in between"
    if pause(of, at) is None:
        assert copy_until(of, at) == first
        until = copy_until(of, at)
        assert until is not None
        assert until - at <= 25 * HOUR


def test_a_run_waits_for_its_start_time_makes_nothing_and_says_until_when() -> None:
    world = World.with_spec(schedule={"startTime": times.written(START + 2 * HOUR)})
    plan = world.turn()
    status = world.body["status"]
    assert (world.phase, plan.steps, plan.record, world.objects) == ("Pending", (), None, {})
    assert "2027-01-15T10:00:00Z" in status["message"]
    accepted = next(c for c in status["conditions"] if c["type"] == "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("Unknown", "Scheduled")
    assert world.events == ["Scheduled"]
    world.turn()
    assert world.events == ["Scheduled"], "said once"
    world.now = START + 2 * HOUR - 2
    assert reconcile(world.observe()).requeue_after == pytest.approx(2)
    world.now += 2
    world.until("Complete")
    assert world.body["status"]["verdict"] == "Pass"


def test_the_start_deadline_counts_from_the_start_time_and_a_wrong_spec_is_told_before() -> None:
    world = World.with_spec(schedule={"startTime": times.written(START + 2 * HOUR)})
    assert start_deadline(world.observe()) == START + 2 * HOUR + 300
    world.users.clear()
    world.turn()
    assert next(c for c in world.body["status"]["conditions"] if c["type"] == "Accepted")["status"] == "False"
    world.now = START + 2 * HOUR + 301
    world.turn()
    assert (world.phase, world.body["status"]["endReason"]) == ("Complete", "StartDeadlineExceeded")


def test_a_start_time_in_the_past_changes_nothing() -> None:
    world = World.with_spec(schedule={"startTime": times.written(START - HOUR)})
    assert waits_until(world.run.spec, world.now) is None
    assert start_deadline(world.observe()) == START + 300


def test_a_scheduled_run_can_be_stopped_while_it_waits() -> None:
    world = World.with_spec(schedule={"startTime": times.written(START + HOUR)})
    world.turn()
    world.body["spec"]["stop"] = {"reason": "never mind"}
    world.turn()
    assert (world.phase, world.body["status"]["endReason"]) == ("Complete", "Stopped")


def test_a_run_begins_in_the_first_window_and_the_deadline_counts_its_hours_only() -> None:
    world = World.with_spec(**window("09:00", "09:04"))
    seen = world.observe()
    assert waits_until(seen.run.spec, seen.now) == START + HOUR
    # Five minutes: four today, one tomorrow.
    assert start_deadline(seen) == START + 25 * HOUR + 60
    assert waits_until(seen.run.spec, START + HOUR + 239) is None


@pytest.mark.parametrize(("hours_of_day", "after"), [(window("08:00", "09:00"), 25 * HOUR), ({}, 2 * HOUR)])
def test_a_deadline_from_any_time_on_counts_the_hours_of_the_window_only(
    hours_of_day: dict[str, Any], after: float
) -> None:
    asked = Spec.model_validate(spec(startDeadline="2h", **hours_of_day))
    assert deadline_after(asked, START) == START + after


def test_the_report_says_which_hours_were_asked_for_and_which_were_seen() -> None:
    world = World.with_spec(**window("08:00", "09:00"))
    world.until("Complete")
    report = stored_report(world.observe())
    assert report is not None
    seen = hours(report.rules, report.evidence)
    assert seen.of_the_day == (8,)
    assert "It copies from 08:00 to 09:00, Etc/UTC only." in seen.note
    assert world.body["status"]["provenance"]["hoursSeen"] == [8]


def test_outside_its_window_a_run_pauses_with_the_reason_and_goes_on_the_next_day() -> None:
    world = World.with_spec(**window("08:00", "08:03"), duration="30h")
    world.until("Running")
    assert world.now < START + 180
    while world.now < START + 170:
        world.turn()
    assert world.mirror is not None
    assert world.mirror.copying
    assert world.mirror.copy_until == START + 180
    world.turn(seconds=START + 181 - world.now)
    world.turn()
    world.turn()
    status = world.body["status"]
    assert not world.mirror.copying
    assert "paused until 2027-01-16T08:00:00Z" in status["message"]
    assert next(c for c in status["conditions"] if c["type"] == "Complete")["reason"] == "OutsideWindow"
    pairs = status["pairs"]
    world.turn(seconds=HOUR)
    world.turn()
    assert world.body["status"]["pairs"] == pairs
    world.turn(seconds=START + 24 * HOUR + 1 - world.now)
    world.turn()
    world.turn()
    assert world.mirror.copying
    assert world.body["status"]["pairs"] > pairs
    assert world.phase == "Running"


def test_the_duration_and_the_expiry_go_by_the_wall_and_not_by_the_hours_copied() -> None:
    world = World.with_spec(**window("08:00", "08:03"), duration="2h")
    world.until("Running")
    expiry = world.body["status"]["expiryTime"]
    assert times.seconds(expiry) == start_deadline(world.observe()) + 2 * HOUR + 10 + 60
    world.turn(seconds=2 * HOUR)
    world.until("Complete")
    assert world.body["status"]["endReason"] == "DurationReached"
    assert world.body["status"]["expiryTime"] == expiry


def test_the_next_look_is_no_later_than_the_window_s_end() -> None:
    world = World.with_spec(**window("08:00", "08:05"), duration="2h")
    world.until("Running")
    world.now = START + 299
    assert reconcile(world.observe()).requeue_after == pytest.approx(1)


def test_nothing_is_copied_outside_the_window_even_when_no_operator_lives() -> None:
    world = World.with_spec(**window("08:00", "08:05"))
    world.until("Running")
    config = world.mirror
    assert config is not None
    assert directive_of(config, START + 299).copying
    assert not directive_of(config, START + 300).copying
    assert not wants_copies(config, START + 300)


@given(mishaps=st.lists(st.sampled_from(MISHAPS), max_size=30), warm=st.integers(0, 25), minutes=st.integers(1, 8))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_happens_no_mirror_copies_outside_the_window(mishaps: list[str], warm: int, minutes: int) -> None:
    world = World.with_spec(**window("08:00", f"08:0{minutes}"), duration="30h")
    for mishap in [*["turn"] * warm, *mishaps]:
        _happen(world, mishap)
        copying = [config for config in world.configs.values() if wants_copies(config, world.now)]
        assert not copying or START <= world.now < START + 60 * minutes


def test_suspend_is_named_rather_than_the_window() -> None:
    world = World.with_spec(**window("09:00", "10:00"), suspend=True)
    found = pause(world.run.spec, START)
    assert found is not None
    assert found.reason == "Suspended"


def test_the_day_is_no_part_of_the_experiment_and_the_hours_are() -> None:
    plain = Spec.model_validate(spec())
    dated = Spec.model_validate(spec(schedule={"startTime": "2027-01-15T09:00:00Z"}))
    hours = Spec.model_validate(spec(**window("09:00", "10:00")))
    assert frozen_spec(plain) == frozen_spec(dated)
    assert changed_fields(frozen_spec(plain), hours) == ["spec.schedule"]


@pytest.mark.parametrize("written", ["2027-02-30T00:00:00Z", "2027-01-01T25:00:00Z", "2027-01-01 00:00:00Z"])
def test_an_instant_that_no_calendar_has_is_refused_by_the_models(written: str) -> None:
    with pytest.raises(ValueError, match="startTime"):
        Spec.model_validate(spec(schedule={"startTime": written}))


def test_a_zone_that_does_not_exist_is_refused_by_the_models() -> None:
    with pytest.raises(ValueError, match="not a time zone"):
        Spec.model_validate(spec(**window("09:00", "10:00", "Europe/Atlantis")))


def test_the_times_of_a_day_are_those_of_the_calendar() -> None:
    begin = datetime(2027, 3, 28, tzinfo=UTC)
    zone_spec = Spec.model_validate(spec(**window("00:00", "23:59", "Europe/Zurich")))
    until = copy_until(zone_spec, begin.timestamp())
    assert until == (begin + timedelta(hours=21, minutes=59)).timestamp(), "the day that clocks go forward has 23 hours"


def test_a_window_of_a_minute_does_not_put_the_end_off_for_years() -> None:
    world = World.with_spec(startDeadline="24h", **window("08:00", "08:01"))
    assert start_deadline(world.observe()) == START + LONGEST_S
    assert LONGEST_S == 7 * 24 * HOUR
    world = World.with_spec(startDeadline="24h", **window("08:00", "20:00"))
    assert start_deadline(world.observe()) == START + 36 * HOUR
    world = World.with_spec(startDeadline="24h")
    assert start_deadline(world.observe()) == START + 24 * HOUR
