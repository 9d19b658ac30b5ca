"""Runs of one spec are counted where they can't be forgotten, and what took part is said."""

from typing import Any

import pytest
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.attempts import LEDGER, MOST, earlier_attempts, ledger_entry
from shadowrun_operator.reconcile.judging import stored_report
from shadowrun_operator.reconcile.plan import Merge

from tests.unit.reconcile.world import World

pytestmark = pytest.mark.operator


def again(before: World, **changes: Any) -> World:
    """Another run in the same namespace after the first was deleted."""
    world = World.with_spec(**changes)
    world.ledger = before.ledger
    return world


def finished(world: World) -> dict[str, Any]:
    world.until("Complete")
    status: dict[str, Any] = world.body["status"]
    return status


def test_a_run_of_the_same_spec_is_another_attempt_though_the_first_was_deleted() -> None:
    first = World.with_spec()
    assert finished(first)["attempt"] == 1
    second = again(first)
    status = finished(second)
    assert status["attempt"] == 2
    assert status["message"].startswith("Attempt 2 of this spec. ")
    report = stored_report(second.observe())
    assert report is not None
    assert report.circumstances.attempt == 2


def test_a_run_of_another_spec_is_a_first_attempt_and_limits_that_may_change_are_no_other_spec() -> None:
    first = World.with_spec()
    finished(first)
    assert finished(again(first, slo={"ttft": "3s"}))["attempt"] == 1
    assert finished(again(first, duration="1m", sampling={"rate": "20%"}))["attempt"] == 2


def test_a_run_that_never_copied_is_no_attempt() -> None:
    world = World.with_spec()
    world.starting = False
    assert finished(world).get("attempt", 0) == 0
    assert world.ledger is None


def test_an_operator_that_dies_between_two_actions_counts_a_run_once() -> None:
    world = World.with_spec()
    for turn in range(400):
        if world.phase == "Complete":
            break
        world.turn(limit=turn % 4 or None)
    assert world.body["status"]["attempt"] == 1


def test_while_running_the_message_says_which_attempt_it_is_and_when_it_may_be_decided() -> None:
    first = World.with_spec()
    finished(first)
    world = again(first)
    world.until("Running")
    world.turn()
    world.turn()
    message = world.body["status"]["message"]
    assert message.startswith("Attempt 2 of this spec. ")
    assert "ecided" in message or "Decision expected" in message


def test_runs_that_are_still_there_count_where_the_ledger_was_deleted() -> None:
    assert earlier_attempts(None, ["a", "a", "b"]) == {"a": 2, "b": 1}
    ledger = ledger_entry("ns", None, "a", 5, 100.0)
    assert earlier_attempts(ledger, ["a", "b"]) == {"a": 5, "b": 1}


def test_the_ledger_forgets_the_oldest_specs_and_what_somebody_made_unreadable() -> None:
    world = World.with_spec()
    for number in range(MOST + 5):
        world.step(Merge(ledger_entry("ns", world.ledger, f"hash-{number}", 1, float(number))))
    ledger = world.ledger
    assert ledger is not None
    assert len(ledger["data"]) == MOST
    assert "hash-4" not in ledger["data"]
    assert f"hash-{MOST + 4}" in ledger["data"]
    ledger["data"] = {"a": "many", "b": "3 100"}
    assert earlier_attempts(ledger, ()) == {"b": 3}


def test_runs_that_start_at_once_leave_each_other_s_entry_alone() -> None:
    world = World.with_spec()
    world.step(Merge(ledger_entry("ns", None, "old", 7, 1.0)))
    known = world.ledger
    for spec_hash in ("a", "b"):
        world.step(Merge(ledger_entry("ns", known, spec_hash, 1, 100.0)))
    assert earlier_attempts(world.ledger, ()) == {"old": 7, "a": 1, "b": 1}


@pytest.mark.parametrize("turns", [0, 3])
def test_a_run_that_could_not_be_entered_when_copying_began_is_entered_while_warming_up(turns: int) -> None:
    world = World.with_spec()
    world.until("WarmingUp")
    for _ in range(turns):
        world.turn()
    world.ledger = None
    plan = world.turn()
    assert isinstance(plan.steps[-1], Merge)
    assert earlier_attempts(world.ledger, ()) == {world.body["status"]["provenance"]["specHash"]: 1}
    assert not any(isinstance(step, Merge) for step in world.turn().steps)


def test_a_config_map_of_that_name_that_somebody_else_made_is_left_alone() -> None:
    world = World.with_spec()
    world.ledger = {"kind": "ConfigMap", "metadata": {"name": LEDGER}, "data": {"a": "3 1"}}
    theirs = dict(world.ledger)
    assert finished(world)["attempt"] == 1
    assert world.ledger == theirs
    assert names.MANAGED_BY_LABEL not in theirs["metadata"]


def test_hours_and_versions_of_what_took_part_are_in_the_provenance() -> None:
    world = World.with_spec()
    provenance = finished(world)["provenance"]
    assert provenance["versions"] == {"operator": "0.1.0", "envoy": "1.40.0", "kubernetes": "v1.35.1"}
    assert provenance["hoursSeen"] == [8]
    report = stored_report(world.observe())
    assert report is not None
    assert report.circumstances.hours.of_the_day == tuple(provenance["hoursSeen"])
    assert report.facts.versions["envoy"] == "1.40.0"
