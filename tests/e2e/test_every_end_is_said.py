"""Ends other than a verdict from evidence: each is Inconclusive, says why with the number, and cleans up."""

import pytest

from tests.e2e.funnel import assert_status_adds_up
from tests.e2e.world import H100, L40S, World, condition, condition_message, condition_reason, env_patch, shadow_run

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

HARDWARE = {
    "matchLabelKeys": ["nvidia.com/gpu.product", "nvidia.com/gpu.memory"],
    "nodeSelector": {},
    "policy": "Require",
}


def assert_inconclusive(status: dict[str, object], reason: str) -> None:
    assert (status["verdict"], status["endReason"]) == ("Inconclusive", reason), status
    assert condition(status, "Succeeded") == "False"
    assert_status_adds_up(status)


def test_a_candidate_that_is_never_ready_ends_at_the_start_deadline(world: World) -> None:
    run = shadow_run("never-ready", service="never-ready", patch=env_patch(READY_AFTER="-1"), startDeadline="35s")
    world.apply(run)
    status = world.wait_complete("never-ready", 120)
    assert_inconclusive(status, "StartDeadlineExceeded")
    assert "candidate" in str(status["message"])
    assert world.all("deployments", "shadowrun.dev/run=never-ready") == []


def test_arms_on_different_pools_end_as_a_hardware_mismatch(world: World) -> None:
    patch = {"spec": {"nodeSelector": {"nvidia.com/gpu.product": L40S}}}
    hardware = {**HARDWARE, "nodeSelector": {"nvidia.com/gpu.product": H100}}
    world.apply(shadow_run("mismatch", service="mismatch", patch=patch, hardware=hardware))
    status = world.wait_complete("mismatch", 120)
    assert_inconclusive(status, "HardwareMismatch")
    assert condition(status, "HardwareMatched") == "False"
    assert L40S in condition_message(status, "HardwareMatched")
    assert status.get("startTime") is None, "the clock never starts on unequal hardware"


def test_a_stopped_run_says_by_whom_it_was_stopped_and_never_passes(world: World) -> None:
    world.apply(shadow_run("stopped", service="stopped"))
    world.serve_customers("stopping-customers", "stopped")
    world.wait("stopped", "counted pair", lambda s: s.get("pairs", 0) > 0, 150)
    world.kubectl("patch", "shadowrun", "stopped", "--type=merge", "-p", '{"spec":{"stop":{"reason":"wrong image"}}}')
    status = world.wait_complete("stopped", 90)
    assert_inconclusive(status, "Stopped")
    assert "wrong image" in str(status["message"])
    seen = world.customers("stopping-customers")
    assert seen.failed == 0, seen.failures


@pytest.mark.parametrize(
    ("name", "change", "reason", "says"),
    [
        (
            "no-deployment",
            {
                "arms": {
                    "template": {"deploymentRef": {"name": "nowhere"}},
                    "candidate": {"patch": env_patch(SPEED="2")},
                }
            },
            "DeploymentNotFound",
            "nowhere",
        ),
        ("no-service", {"primary": {"service": {"name": "absent", "port": 8000}}}, "PrimaryNotFound", "absent"),
        ("bad-patch", {"patch": {"spec": {"containers": [{"name": "engin", "env": []}]}}}, "PatchInvalid", "engin"),
        (
            "refused-patch",
            {"patch": {"spec": {"containers": [{"name": "engine", "image": ""}]}}},
            "PatchInvalid",
            "image",
        ),
        ("not-yet", {"comparison": {"output": "Parity"}}, "NotImplemented", "comparison"),
    ],
)
def test_bad_input_gets_one_clear_message_and_creates_nothing(
    world: World, name: str, change: dict[str, object], reason: str, says: str
) -> None:
    world.apply(shadow_run(name, service=name, **change))  # type: ignore[arg-type]
    status = world.wait(name, "refusal", lambda s: condition(s, "Accepted") == "False", 30)
    assert condition_reason(status, "Accepted") == reason
    assert says in condition_message(status, "Accepted")
    assert world.all("deployments,services,pods", f"shadowrun.dev/run={name}") == []
    world.kubectl("delete", "shadowrun", name, "--timeout=30s", timeout=40)


def test_a_refused_spec_is_accepted_once_it_is_put_right(world: World) -> None:
    absent = {"template": {"deploymentRef": {"name": "nowhere"}}, "candidate": {"patch": env_patch(SPEED="2")}}
    world.apply(shadow_run("mended", service="mended", arms=absent))
    world.wait("mended", "refusal", lambda s: condition(s, "Accepted") == "False", 30)
    world.apply(shadow_run("mended", service="mended"))
    world.wait("mended", "acceptance", lambda s: condition(s, "Accepted") == "True", 30)
    world.kubectl("delete", "shadowrun", "mended", "--timeout=90s", timeout=100)
