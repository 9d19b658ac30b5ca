"""A container that ended and was started anew is said once, with what it ended with, whoever is operator then."""

import pytest

from tests.unit.reconcile.world import World

pytestmark = pytest.mark.operator


def said(world: World, turns: int = 1) -> list[str]:
    return [event.message for _ in range(turns) for event in world.turn().events if event.reason == "Restarted"]


def test_a_restart_is_said_once_and_the_next_one_again() -> None:
    world = World.with_spec()
    world.until("Running")
    world.restarts["mirror-0"] = 1
    world.pass_time(1)
    assert said(world, 3) == [
        "Container mirror of mirror-0 ended and was started anew (1 so far): OOMKilled (exit code 137)."
    ]
    world.restart_operator()
    assert said(world, 3) == []
    world.restarts |= {"mirror-0": 2, "candidate-0": 1}
    world.pass_time(1)
    assert len(said(world, 3)) == 2
    world.until("Complete")
    assert world.body["status"]["endReason"] == "DurationReached"


def test_a_restart_in_the_very_last_look_is_said_too() -> None:
    world = World.with_spec()
    world.until("Running")
    world.restarts["candidate-0"] = 1
    world.body["spec"]["stop"] = {"reason": "enough"}
    world.pass_time(1)
    assert len(said(world)) == 1
    assert world.phase == "Finishing"
