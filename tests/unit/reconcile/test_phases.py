"""Every transition of the table happens, for the reason it should, and nothing else does, whatever dies meanwhile."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import get_args

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from shadowrun_operator.api.status import Phase
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.observation import OtherRun
from shadowrun_operator.reconcile.reconcile import PHASES, reconcile

from tests.unit.reconcile.test_any_process_may_die import MISHAPS, _happen
from tests.unit.reconcile.world import World

pytestmark = pytest.mark.operator

FOLLOWS: Mapping[Phase, tuple[Phase, ...]] = {
    "Pending": ("Preparing", "Complete"),
    "Preparing": ("WarmingUp", "Finishing", "Pending"),
    "WarmingUp": ("Running", "Finishing"),
    "Running": ("Finishing",),
    "Finishing": ("Complete",),
    "Complete": (),
}
"""By phase, those that may come next. Back to Pending goes a run that has made something and copied nothing: the API
server refused the candidate's patch, or an older run was accepted for the same primary at the same time. `Finishing` is
left out where nothing was made, and nothing follows `Complete`."""


def may_follow(before: Phase, after: Phase) -> bool:
    """Whether a status may show `after` once it has shown `before`: a phase can be over before it was ever written."""
    reached, ahead = {before}, [before]
    while ahead:
        new = [phase for phase in FOLLOWS[ahead.pop()] if phase not in reached]
        reached.update(new)
        ahead += new
    return after in reached


def _nothing(world: World) -> None:
    """What happens by itself."""


def _stop(world: World) -> None:
    world.body["spec"]["stop"] = {"reason": "enough"}


def _refuse_patch(world: World) -> None:
    world.refuse = "args: must be strings"


def _older_run(world: World) -> None:
    world.others = (OtherRun(name="older", primary="chat", service_name="other", older=True),)


def _too_late(world: World) -> None:
    world.users.clear()
    world.now += 3600


Change = Callable[[World], None]
TRANSITIONS: list[tuple[Phase, Phase, Change]] = [
    ("Pending", "Preparing", _nothing),
    ("Pending", "Complete", _stop),
    ("Pending", "Complete", _too_late),
    ("Preparing", "WarmingUp", _nothing),
    ("Preparing", "Finishing", _stop),
    ("Preparing", "Pending", _refuse_patch),
    ("Preparing", "Pending", _older_run),
    ("WarmingUp", "Running", _nothing),
    ("WarmingUp", "Finishing", _stop),
    ("Running", "Finishing", _nothing),
    ("Running", "Finishing", _stop),
    ("Finishing", "Complete", _nothing),
]


def _brought_to(phase: Phase) -> World:
    """A run in a phase, by itself."""
    world = World.with_spec()
    if phase == "Pending":
        kept = dict(world.users)
        world.users.clear()
        world.turn()
        world.users.update(kept)
    world.until(phase)
    return world


@pytest.mark.parametrize(
    ("before", "after", "change"), TRANSITIONS, ids=[f"{b}-{a}-{c.__name__.strip('_')}" for b, a, c in TRANSITIONS]
)
def test_a_phase_is_followed_by(before: Phase, after: Phase, change: Change) -> None:
    world = _brought_to(before)
    change(world)
    for _ in range(200):
        world.turn()
        if world.phase != before:
            break
    assert world.phase == after


def test_the_table_has_every_phase_and_the_tests_every_transition() -> None:
    assert set(FOLLOWS) == set(get_args(Phase))
    assert {(b, a) for b, a, _ in TRANSITIONS} == {(b, a) for b, following in FOLLOWS.items() for a in following}
    assert set(PHASES) == set(FOLLOWS) - {"Pending", "Complete"}


def test_the_documents_have_the_same_table() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| ([A-Z][a-zA-Z]+) \|[^|]*\|([^|]*)\|$", text.partition("## Phases")[2], re.MULTILINE)
    told = {
        phase: {word for word in get_args(Phase) if re.search(rf"\b{word}\b", following)} for phase, following in rows
    }
    assert told == {phase: set(following) for phase, following in FOLLOWS.items()}


def test_complete_is_reached_from_everywhere_and_left_for_nothing() -> None:
    assert all(may_follow(phase, "Complete") for phase in FOLLOWS)
    assert [phase for phase in FOLLOWS if may_follow("Complete", phase)] == ["Complete"]
    assert not may_follow("WarmingUp", "Pending")
    assert not may_follow("Running", "WarmingUp")
    assert may_follow("Preparing", "Running"), "the status of a phase in between may never have been written"


@given(mishaps=st.lists(st.sampled_from([*MISHAPS, "kept", "hours"]), max_size=40), warm=st.integers(0, 25))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_happens_no_status_shows_what_the_table_does_not_have(mishaps: list[str], warm: int) -> None:
    world = World.with_spec(keepArms={"for": "1m"})
    before: Phase = "Pending"
    for mishap in [*["turn"] * warm, *mishaps, *["turn"] * 3]:
        if mishap == "kept":
            world.body["spec"]["keepArms"] = None
        elif mishap == "hours":
            hour = times.written(world.now + 3600)[11:16]
            world.body["spec"]["schedule"] = {"dailyWindow": {"from": hour, "to": times.written(world.now)[11:16]}}
        else:
            _happen(world, mishap)
        written = world.run.status.phase
        planned = reconcile(world.observe()).status.phase
        assert may_follow(before, written), (before, written, mishap)
        assert may_follow(written, planned), (written, planned, mishap)
        before = written
