"""A candidate that looks faster because it drops what is hard, and two runs that must not see each other."""

from typing import Any

import pytest

from tests.e2e.funnel import assert_status_adds_up
from tests.e2e.world import World, condition, condition_reason, env_patch, shadow_run

pytestmark = [pytest.mark.verdict, pytest.mark.e2e]

PRIMARIES = {"dropper": "chat", "same": "chat-two"}


@pytest.fixture(scope="module")
def ended(world: World) -> dict[str, dict[str, Any]]:
    """Two runs side by side, on two primaries: one candidate drops the longest prompts, the other changes nothing."""
    world.add_primaries("chat-two")
    dropper = env_patch(PREFILL_FACTOR="1.25", DROP_LONGEST_OVER="150")
    world.apply(shadow_run("dropper", patch=dropper, duration="35s"), shadow_run("same", primary="chat-two", patch={}))
    for primary in PRIMARIES.values():
        world.serve_customers(primary)
    return {name: world.wait_complete(name, 300) for name in PRIMARIES}


def test_dropping_hard_requests_fails(ended: dict[str, dict[str, Any]]) -> None:
    status = ended["dropper"]
    assert (status["verdict"], status["reason"]) == ("Fail", "DroppedHardRequests"), status["message"]
    assert condition(status, "Succeeded") == "False"
    assert_status_adds_up(status)


def test_an_equal_candidate_is_not_called_better(ended: dict[str, dict[str, Any]]) -> None:
    status = ended["same"]
    assert status["verdict"] != "Pass", status["message"]
    assert status["reason"] != "DroppedHardRequests"
    assert_status_adds_up(status)


def test_runs_side_by_side_count_only_their_own(world: World, ended: dict[str, dict[str, Any]]) -> None:
    for name, primary in PRIMARIES.items():
        seen = world.customers(primary)
        assert 0 < ended[name]["funnel"]["requests"]["seen"] <= seen.sent
        assert seen.failed == 0, seen.failures


def test_a_second_run_on_one_primary_is_refused(world: World, ended: dict[str, dict[str, Any]]) -> None:
    world.apply(shadow_run("first", duration="10m"))
    world.wait("first", "acceptance", lambda s: condition(s, "Accepted") == "True", 30)
    world.apply(shadow_run("second", duration="10m"))
    status = world.wait("second", "refusal", lambda s: condition(s, "Accepted") == "False", 30)
    assert condition_reason(status, "Accepted") == "CaptureInUse"
