"""Ends other than a verdict from evidence: each is Inconclusive, says why with the number, and cleans up."""

from typing import Any

import pytest

from tests.e2e.funnel import assert_status_adds_up
from tests.e2e.world import L40S, World, condition, condition_message, condition_reason, env_patch, shadow_run

pytestmark = [pytest.mark.operator, pytest.mark.e2e]


def arms(deployment: str, **candidate: Any) -> dict[str, Any]:
    return {"template": {"deploymentRef": {"name": deployment}}, "candidate": candidate}


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no-deployment": ({"arms": arms("nowhere", patch={})}, "DeploymentNotFound", "nowhere"),
    "no-service": ({"primary": "absent"}, "PrimaryNotFound", "absent"),
    "bad-patch": ({"patch": {"spec": {"containers": [{"name": "engin", "env": []}]}}}, "PatchInvalid", "engin"),
    "refused-patch": ({"patch": {"spec": {"containers": [{"name": "engine", "image": ""}]}}}, "PatchInvalid", "image"),
    "not-yet": ({"comparison": {"output": "Distribution"}}, "NotImplemented", "comparison"),
}


@pytest.fixture(scope="module", autouse=True)
def primaries(world: World) -> None:
    """One for each run that goes on at the same time, and one for those that are refused."""
    world.add_primaries("slow", "uneven", "spare")


@pytest.fixture(scope="module")
def started(world: World) -> None:
    """Three runs at once."""
    on_another_pool = {"spec": {"nodeSelector": {"nvidia.com/gpu.product": L40S}}}
    world.apply(
        shadow_run("never-ready", primary="slow", patch=env_patch(READY_AFTER="-1"), startDeadline="35s"),
        shadow_run("mismatch", primary="uneven", patch=on_another_pool),
        shadow_run("stopped"),
    )
    world.serve_customers()


def assert_inconclusive(status: dict[str, Any], reason: str) -> None:
    assert (status["verdict"], status["endReason"]) == ("Inconclusive", reason), status
    assert condition(status, "Succeeded") == "False"
    assert_status_adds_up(status)


def test_arms_on_different_pools_end_as_a_hardware_mismatch(world: World, started: None) -> None:
    status = world.wait_complete("mismatch", 120)
    assert_inconclusive(status, "HardwareMismatch")
    assert condition(status, "HardwareMatched") == "False"
    assert L40S in condition_message(status, "HardwareMatched")
    assert status.get("startTime") is None, "the clock never starts on unequal hardware"


def test_a_candidate_that_is_never_ready_ends_at_the_start_deadline(world: World, started: None) -> None:
    status = world.wait_complete("never-ready", 120)
    assert_inconclusive(status, "StartDeadlineExceeded")
    assert "candidate" in status["message"]
    world.until_no_pods("shadowrun.dev/run=never-ready")


def test_a_stopped_run_says_why_it_was_stopped_and_never_passes(world: World, started: None) -> None:
    world.wait("stopped", "counted pair", lambda s: s.get("pairs", 0) > 0, 150)
    world.kubectl("patch", "shadowrun", "stopped", "--type=merge", "-p", '{"spec":{"stop":{"reason":"wrong image"}}}')
    status = world.wait_complete("stopped", 90)
    assert_inconclusive(status, "Stopped")
    assert "wrong image" in status["message"]
    seen = world.customers()
    assert seen.failed == 0, seen.failures


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_gets_one_clear_message_and_nothing_runs(world: World, name: str) -> None:
    change, reason, says = REFUSED[name]
    world.apply(shadow_run(name, **{"primary": "spare", **change}))
    status = world.wait(name, "refusal", lambda s: condition(s, "Accepted") == "False", 30)
    assert condition_reason(status, "Accepted") == reason
    assert says in condition_message(status, "Accepted")
    made = f"shadowrun.dev/run={name}"
    world.until("nothing left", lambda: world.all("deployments,services", made) == [], 10)
    assert world.all("pods", made) == []
    world.delete_runs(name)


def test_a_refused_spec_is_accepted_once_it_is_put_right(world: World) -> None:
    world.apply(shadow_run("mended", primary="spare", arms=arms("nowhere", patch={})))
    world.wait("mended", "refusal", lambda s: condition(s, "Accepted") == "False", 30)
    world.apply(shadow_run("mended", primary="spare"))
    world.wait("mended", "acceptance", lambda s: condition(s, "Accepted") == "True", 30)
