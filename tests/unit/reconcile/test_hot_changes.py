"""What may change while a run is active takes effect at once, loses nothing, and is remembered with its time."""

from typing import Any

import msgspec
import pytest
from shadowrun_mirror.directive import directive_of
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.cli.circumstances import circumstances_sections
from shadowrun_operator.cli.report import Circumstances, SpecChange
from shadowrun_operator.judge.circumstances import circumstances
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.history import MOST, noted
from shadowrun_operator.reconcile.judging import stored_report
from shadowrun_operator.reconcile.reconcile import reconcile

from tests.unit.reconcile.world import START, World, spec

pytestmark = pytest.mark.operator


def _running(**changes: Any) -> World:
    world = World.with_spec(**{"duration": "1h", **changes})
    world.until("Running")
    world.turn()
    return world


def _funnel(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.body["status"]["funnel"]["requests"]
    return found


def _assert_adds_up(world: World) -> None:
    counts = _funnel(world)
    assert counts["seen"] == counts["notSelected"] + counts["selected"]
    assert counts["selected"] == counts["dropped"] + counts["inTransit"] + counts["admitted"]
    for arm in counts["arms"]:
        assert counts["admitted"] == arm["completed"] + arm["failed"] + arm["inFlight"]


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_suspended_run_copies_nothing_keeps_its_books_and_goes_on_where_it_was(replicas: int) -> None:
    world = _running(mirror={"replicas": replicas})
    world.body["spec"]["suspend"] = True
    plan = world.turn(seconds=0.1)
    assert plan.push is not None
    assert not directive_of(plan.push.config, world.now).copying
    assert not any(config.copying for config in world.configs.values()), "in the very pass that saw it"
    last = world.longest_copying
    for _ in range(12):
        world.turn()
        _assert_adds_up(world)
    paused = world.body["status"]["pairs"]
    assert world.longest_copying == last
    arms = [arm["inFlight"] for arm in _funnel(world)["arms"]]
    assert arms == [replicas - 1] * 2, "what was in flight stays in flight until it ends or its mirror does"
    world.body["spec"]["suspend"] = False
    world.turn()
    for _ in range(5):
        world.turn()
        _assert_adds_up(world)
    assert world.body["status"]["pairs"] > paused
    world.body["spec"]["stop"] = {"reason": "seen enough"}
    world.until("Complete")
    _assert_adds_up(world)


def test_the_clock_goes_on_while_a_run_is_suspended() -> None:
    world = World.with_spec()
    world.until("Running")
    world.turn()
    world.turn()
    started = times.seconds(world.body["status"]["startTime"])
    world.body["spec"]["suspend"] = True
    world.until("Finishing")
    assert world.record is not None
    assert 120 <= world.record.ended_at - started < 127
    assert world.record.end_reason == "DurationReached"


def test_a_run_that_is_suspended_from_the_start_ends_at_its_start_deadline() -> None:
    world = World.with_spec(suspend=True)
    world.until("Complete")
    assert world.body["status"]["endReason"] == "StartDeadlineExceeded"
    assert world.longest_copying == 0


def test_a_shorter_duration_ends_the_run_when_it_has_passed_and_the_expiry_stays() -> None:
    world = _running()
    world.turn()
    started, expiry = times.seconds(world.body["status"]["startTime"]), world.body["status"]["expiryTime"]
    world.body["spec"]["duration"] = "90s"
    ahead = reconcile(world.observe()).requeue_after
    assert ahead <= 3
    world.until("Complete")
    assert world.record is not None
    assert world.record.end_reason == "DurationReached"
    assert 90 <= world.record.ended_at - started < 97
    assert world.body["status"]["expiryTime"] == expiry
    assert world.body["status"]["verdict"] == "Pass"


def test_a_duration_that_has_passed_already_ends_the_run_in_the_next_pass() -> None:
    world = _running()
    world.turn(seconds=200)
    world.body["spec"]["duration"] = "90s"
    world.turn()
    assert world.phase == "Finishing"


CHANGES: list[tuple[str, dict[str, Any], str]] = [
    ("spec.suspend", {"suspend": True}, "true"),
    ("spec.duration", {"duration": "30m"}, "30m"),
    ("spec.sampling.rate", {"sampling": {"unit": "Request", "rate": "10%"}}, "10%"),
    ("spec.admission.maxInFlight", {"admission": {"maxInFlight": 3, "timeout": "10s"}}, "3"),
    ("spec.admission.timeout", {"admission": {"maxInFlight": 8, "timeout": "7s"}}, "7s"),
]


@pytest.mark.parametrize(("field", "change", "value"), CHANGES, ids=[c[0] for c in CHANGES])
def test_a_hot_change_is_in_the_report_with_its_time_and_beside_what_it_was(
    field: str, change: dict[str, Any], value: str
) -> None:
    world = _running()
    at = world.now
    world.body["spec"] |= change
    world.turn()
    world.body["spec"]["stop"] = {"reason": "seen enough"}
    world.until("Complete")
    report = stored_report(world.observe())
    assert report is not None
    assert world.record is not None
    began = [c for c in report.facts.changes if c.at == world.record.copying_since]
    later = [c for c in report.facts.changes if c.at != world.record.copying_since]
    assert field in {c.field for c in began}
    assert [(c.field, c.value, c.at) for c in later] == [(field, value, at)]


def test_new_limits_reach_the_mirrors_divided_among_them() -> None:
    world = _running(mirror={"replicas": 2})
    world.body["spec"]["admission"] = {"maxInFlight": 5, "timeout": "7s"}
    world.turn()
    assert {(c.admission.max_in_flight, c.admission.timeout_s) for c in world.configs.values()} == {(2, 7.0)}


def test_a_history_keeps_how_it_began_and_the_latest() -> None:
    known = noted((), Spec.model_validate(spec()), START)
    began = known
    assert noted(known, Spec.model_validate(spec()), START + 1) is known
    for i in range(2 * MOST):
        known = noted(known, Spec.model_validate(spec(suspend=i % 2 == 0)), START + 1 + i)
    assert len(known) == MOST
    assert known[: len(began)] == began
    assert known[-1].at == START + 2 * MOST


def test_the_command_shows_what_was_changed_and_what_it_was_before() -> None:
    changes = (
        SpecChange(at=START, field="spec.suspend", value="false"),
        SpecChange(at=START, field="spec.duration", value="2h"),
        SpecChange(at=START + 60, field="spec.duration", value="1h"),
    )
    text = dict(circumstances_sections(Circumstances(changes=changes)))["Changed while it ran"]
    assert "2027-01-15T08:01:00Z" in text
    assert "spec.duration" in text
    assert text.endswith("When copying began: spec.duration 2h.")
    assert "suspend" not in text
    assert dict(circumstances_sections(Circumstances(changes=changes[:2])))["Changed while it ran"] == ""


def test_what_the_judge_says_of_changes_is_what_the_command_reads() -> None:
    world = _running()
    world.body["spec"]["suspend"] = True
    world.turn()
    world.body["spec"]["stop"] = {"reason": "seen enough"}
    world.until("Complete")
    report = stored_report(world.observe())
    assert report is not None
    found = circumstances(
        report.rules, report.evidence, report.facts, report.funnel, report.evidence.counted.classes["default"]
    )
    read = msgspec.json.decode(msgspec.json.encode(found.changes), type=tuple[SpecChange, ...])
    assert [c.field for c in read if c.at != read[0].at] == ["spec.suspend"]
