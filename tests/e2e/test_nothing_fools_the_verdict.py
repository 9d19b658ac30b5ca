"""A candidate that looks faster because it drops what is hard, and two runs that must not see each other."""

import json

import pytest

from tests.e2e.funnel import assert_status_adds_up
from tests.e2e.world import World, condition, condition_reason, env_patch, primary, shadow_run

pytestmark = [pytest.mark.verdict, pytest.mark.e2e]


@pytest.fixture(scope="module")
def both(world: World) -> dict[str, dict[str, object]]:
    """Two runs side by side, on two primaries: one candidate drops the longest prompts, the other changes nothing."""
    second = [_renamed(manifest) for manifest in primary()]
    world.apply(*second)
    world.kubectl("rollout", "status", "deployment/chat-two", "--timeout=90s", timeout=100)
    dropper = env_patch(PREFILL_FACTOR="1.25", DROP_LONGEST_OVER="150")
    world.apply(shadow_run("dropper", service="chat-shadowed", patch=dropper, duration="50s"))
    same = shadow_run("same", service="chat-two-shadowed", patch=env_patch(SEED="1"))
    same["spec"]["primary"]["service"]["name"] = "chat-two"
    same["spec"]["arms"]["template"]["deploymentRef"]["name"] = "chat-two"
    world.apply(same)
    world.serve_customers("customers", "chat-shadowed", rate=5)
    world.serve_customers("customers-two", "chat-two-shadowed", rate=5)
    return {name: world.wait_complete(name, 300) for name in ("dropper", "same")}


def _renamed(manifest: dict[str, object]) -> dict[str, object]:
    renamed: dict[str, object] = json.loads(json.dumps(manifest).replace('"chat"', '"chat-two"'))
    return renamed


def test_dropping_hard_requests_fails(both: dict[str, dict[str, object]]) -> None:
    status = both["dropper"]
    assert (status["verdict"], status["reason"]) == ("Fail", "DroppedHardRequests"), status["message"]
    assert condition(status, "Succeeded") == "False"
    assert condition_reason(status, "Complete") != ""
    assert_status_adds_up(status)


def test_an_equal_candidate_is_not_called_better(both: dict[str, dict[str, object]]) -> None:
    status = both["same"]
    assert status["verdict"] != "Pass", status["message"]
    assert status["reason"] != "DroppedHardRequests"
    assert_status_adds_up(status)


def test_runs_side_by_side_count_only_their_own(world: World, both: dict[str, dict[str, object]]) -> None:
    for name, customers in (("dropper", "customers"), ("same", "customers-two")):
        seen = world.status(name)["funnel"]["requests"]["seen"]
        assert 0 < seen <= world.customers(customers).sent
        assert world.customers(customers).failed == 0


def test_a_second_run_on_one_primary_is_refused(world: World, both: dict[str, dict[str, object]]) -> None:
    world.apply(shadow_run("first", duration="10m"))
    world.wait("first", "acceptance", lambda s: condition(s, "Accepted") == "True", 30)
    world.apply(shadow_run("second", duration="10m"))
    status = world.wait("second", "refusal", lambda s: condition(s, "Accepted") == "False", 30)
    assert condition_reason(status, "Accepted") == "CaptureInUse"
    world.kubectl("delete", "shadowrun", "second", "first", "--timeout=90s", timeout=100)
