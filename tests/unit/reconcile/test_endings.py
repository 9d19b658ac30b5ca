"""Every reason to end: when it is met, that it is recorded, and whether it is judged."""

from collections.abc import Callable

import pytest
from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.reconcile.judging import stored_report
from shadowrun_operator.reconcile.plan import Apply

from tests.unit.reconcile.world import START, World

pytestmark = pytest.mark.operator


def _stop(world: World) -> None:
    world.body["spec"]["stop"] = {"reason": "the cluster is needed"}


def _change_candidate(world: World) -> None:
    world.body["spec"]["arms"]["candidate"]["model"] = "other"


def _lose_evidence(world: World) -> None:
    world.objects.pop(("ConfigMap", "x-evidence"))
    world.record = None


def _mismatch(world: World) -> None:
    world.nodes["node1"] = None


def _leap_past_expiry(world: World) -> None:
    world.now += 3600


def _lose_secret(world: World) -> None:
    del world.objects["Secret", "x-mirror"]


def _edit_arm(world: World) -> None:
    world.objects["Deployment", "x-baseline"]["metadata"]["generation"] += 1


def _replace_arm(world: World) -> None:
    world.objects["Deployment", "x-candidate"]["metadata"]["uid"] = "another"


def _delete_arm(world: World) -> None:
    del world.objects["Deployment", "x-baseline"]


CASES: list[tuple[str, Callable[[World], None], str]] = [
    ("stopped", _stop, "Stopped"),
    ("spec changed", _change_candidate, "SpecChanged"),
    ("evidence lost", _lose_evidence, "EvidenceLost"),
    ("secret lost", _lose_secret, "EvidenceLost"),
    ("arm edited", _edit_arm, "ArmChanged"),
    ("arm replaced", _replace_arm, "ArmChanged"),
    ("arm deleted", _delete_arm, "ArmChanged"),
    ("label gone", _mismatch, "HardwareMismatch"),
    ("past expiry", _leap_past_expiry, "Expired"),
]


@pytest.mark.parametrize(("change", "reason"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_an_end_that_is_not_a_normal_one_is_inconclusive_and_copying_stops_in_the_same_pass(
    change: Callable[[World], None], reason: str
) -> None:
    world = World.with_spec()
    world.until("Running")
    world.turn(seconds=30)
    change(world)
    world.turn()
    assert world.phase == "Finishing"
    world.until("Complete", turns=60)
    status = world.body["status"]
    assert (status["endReason"], status["verdict"]) == (reason, "Inconclusive")
    assert not next(word for word in EndReason if word == reason).judged
    assert next(c for c in status["conditions"] if c["type"] == "Complete")["reason"] == reason
    assert next(c for c in status["conditions"] if c["type"] == "Succeeded")["status"] == "False"
    assert world.mirror is None


def test_pairs_end_the_run_only_after_the_shortest_duration() -> None:
    world = World.with_spec(endConditions={"pairs": 20, "minDuration": "60s"})
    world.until("Running")
    for _ in range(15):
        world.turn()
    assert world.body["status"]["pairs"] > 20
    assert world.phase == "Running"
    world.until("Complete")
    assert world.body["status"]["endReason"] == "PairsReached"


def test_tokens_end_the_run() -> None:
    world = World.with_spec(endConditions={"tokens": 5000, "minDuration": "30s"})
    world.until("Complete")
    assert world.body["status"]["endReason"] == "TokensReached"


def test_a_shorter_duration_ends_a_running_run_and_is_judged() -> None:
    world = World.with_spec()
    world.until("Running")
    for _ in range(22):
        world.turn()
    assert world.phase == "Running"
    world.body["spec"]["duration"] = "1m"
    world.until("Complete", turns=40)
    assert world.body["status"]["endReason"] == "DurationReached"
    assert world.body["status"]["verdict"] == "Pass"


def test_the_start_deadline_names_what_is_not_ready_and_the_egress_as_a_cause() -> None:
    world = World.with_spec()
    world.starting = False
    world.until("Complete", turns=200)
    status = world.body["status"]
    assert status["endReason"] == "StartDeadlineExceeded"
    complete = next(c for c in status["conditions"] if c["type"] == "Complete")
    assert "baseline" in complete["message"]
    assert "spec.arms.egress" in complete["message"]


def test_a_run_without_traffic_ends_at_the_start_deadline() -> None:
    world = World.with_spec()
    world.rate = 0
    world.until("Complete", turns=200)
    assert world.body["status"]["endReason"] == "StartDeadlineExceeded"
    assert world.now < START + 300 + 60


def test_unequal_nodes_end_a_run_before_anything_is_copied() -> None:
    world = World.with_spec()
    world.nodes["node2"] = "A100"
    world.placement["candidate"] = "node2"
    world.until("Complete", turns=60)
    status = world.body["status"]
    assert (status["endReason"], status["verdict"]) == ("HardwareMismatch", "Inconclusive")
    assert world.longest_copying == 0
    assert "A100" in next(c for c in status["conditions"] if c["type"] == "Complete")["message"]


@pytest.mark.parametrize("gpu", ["A100", None])
def test_what_was_found_of_the_hardware_stays_when_the_arms_are_gone(gpu: str | None) -> None:
    world = World.with_spec()
    world.nodes["node2"] = gpu
    world.placement["candidate"] = "node2"
    found = set()
    while world.phase != "Complete":
        world.turn()
        if world.body["status"].get("endReason"):
            conditions = {c["type"]: c for c in world.body["status"]["conditions"]}
            found.add((conditions["HardwareMatched"]["status"], conditions["HardwareMatched"]["message"]))
    (only,) = found
    assert only[0] == "False"
    assert (gpu or "has no label gpu") in only[1]
    assert conditions["ArmsReady"]["reason"] == "Removed"
    report = stored_report(world.observe())
    assert report is not None
    assert (report.facts.hardware.matched, report.facts.hardware.message) == (False, only[1])


def test_what_is_true_of_arms_and_capture_is_said_until_they_are_removed() -> None:
    world = World.with_spec()
    world.until("Finishing")
    conditions = {c["type"]: c["reason"] for c in world.body["status"]["conditions"]}
    assert (conditions["ArmsReady"], conditions["CaptureReady"]) == ("Ready", "Ready")
    assert ("Deployment", "x-baseline") in world.objects


def test_a_changed_arm_is_named_with_what_happened_to_it() -> None:
    for change, said in ((_edit_arm, "baseline was edited"), (_replace_arm, "candidate was replaced")):
        world = World.with_spec()
        world.until("Running")
        change(world)
        world.turn()
        assert said in world.body["status"]["message"]


def test_no_new_seed_and_no_new_token_are_drawn_once_copying_has_begun() -> None:
    world = World.with_spec()
    world.until("Running")
    _lose_secret(world)
    while world.phase != "Complete":
        plan = world.turn()
        assert not [s for s in plan.steps if isinstance(s, Apply) and s.manifest["kind"] == "Secret"]
    assert "'x-mirror'" in world.body["status"]["message"]


def test_unequal_nodes_are_only_reported_where_the_spec_says_so() -> None:
    world = World.with_spec(hardware={"policy": "Report"})
    world.nodes["node2"] = "A100"
    world.placement["candidate"] = "node2"
    world.until("Running")
    condition = next(c for c in world.body["status"]["conditions"] if c["type"] == "HardwareMatched")
    assert (condition["status"], condition["reason"]) == ("False", "Mismatch")


def test_a_spec_change_names_the_field() -> None:
    world = World.with_spec()
    world.until("Running")
    _change_candidate(world)
    world.turn()
    assert "spec.arms.candidate" in world.body["status"]["message"]
