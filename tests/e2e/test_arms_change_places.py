"""Arms change nodes halfway on a real cluster: the pods really move, both halves count, and customers see nothing."""

from typing import Any

import pytest

from tests.e2e.funnel import assert_status_adds_up
from tests.e2e.world import World, condition, condition_message, env_patch, shadow_run, without_device

pytestmark = [pytest.mark.verdict, pytest.mark.e2e]

HARDWARE = {"matchLabelKeys": ["nvidia.com/gpu.product"], "crossover": "Enabled"}
ONE_NODE = {"kubernetes.io/hostname": "node1"}


def nodes(status: dict[str, Any]) -> dict[str, list[str]]:
    """Where the arms' pods are, as the status says."""
    return {arm["name"]: arm["nodes"] for arm in status["arms"]}


@pytest.fixture(scope="module")
def stages(world: World) -> dict[str, dict[str, Any]]:
    """One run in its first half, in its second half, and at its end; and one whose arms find a single node."""
    world.add_primaries("chat-two")
    pool = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    world.apply(
        shadow_run("moved", duration="4m", hardware=HARDWARE | {"nodeSelector": pool}),
        shadow_run(
            "crowded",
            primary="chat-two",
            startDeadline="40s",
            hardware=HARDWARE | {"nodeSelector": ONE_NODE},
            arms={
                "template": {"podTemplate": without_device()},
                "candidate": {"patch": env_patch(SPEED="2")},
                "warmup": {"duration": "4s", "requests": 30},
            },
        ),
    )
    world.serve_customers()
    return {
        "first": world.wait("moved", "first half", lambda s: s.get("provenance", {}).get("window") == 1, 150),
        "second": world.wait("moved", "second half", lambda s: s.get("provenance", {}).get("window") == 3, 240),
        "end": world.wait_complete("moved", 200),
        "crowded": world.wait_complete("crowded", 60),
    }


def test_each_arm_stands_where_the_other_stood(stages: dict[str, dict[str, Any]]) -> None:
    first, second = nodes(stages["first"]), nodes(stages["second"])
    assert sorted(first["baseline"] + first["candidate"]) == ["node1", "node2"]
    assert second == {"baseline": first["candidate"], "candidate": first["baseline"]}
    assert condition(stages["second"], "HardwareMatched") == "True"
    assert stages["second"]["difference"] == stages["first"]["difference"], "moved, and otherwise the same"


def test_both_halves_are_judged_by_themselves(world: World, stages: dict[str, dict[str, Any]]) -> None:
    end, report = stages["end"], world.report("moved")
    assert end["endReason"] == "DurationReached", end["message"]
    assert end["reason"] not in ("HalfMissing", "CrossoverFailed"), end["message"]
    assert_status_adds_up(end)
    for criterion in report["criteria"]:
        first, second = criterion["halves"]
        assert first["pairs"] > 0
        assert second["pairs"] > 0
        assert criterion["pairs"] == first["pairs"] + second["pairs"]
        assert criterion["outcome"] == "Inconclusive" or criterion["outcome"] == first["outcome"] == second["outcome"]
    assert {arm["name"]: arm["first_nodes"] for arm in report["facts"]["arms"]} == nodes(stages["first"])


def test_what_happened_is_said_by_events(world: World, stages: dict[str, dict[str, Any]]) -> None:
    assert {"ChangingPlaces", "PlacesChanged"} <= set(world.events("moved"))


def test_customers_notice_nothing(world: World, stages: dict[str, dict[str, Any]]) -> None:
    seen = world.customers()
    assert seen.sent > 0
    assert seen.failed == 0, seen.failures


def test_arms_never_share_a_node(stages: dict[str, dict[str, Any]]) -> None:
    status = stages["crowded"]
    assert (status["verdict"], status["endReason"]) == ("Inconclusive", "StartDeadlineExceeded"), status["message"]
    assert "anti-affinity" in status["message"], (status["message"], condition_message(status, "ArmsReady"))
