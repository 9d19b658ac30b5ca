"""Every reason to end: when it is met, that it is recorded, and whether it is judged."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.evidence import Amount
from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.judge.matches import MIN_COMPARED
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.endings import gpu_hours_reached
from shadowrun_operator.reconcile.endings.gpu_hours_reached import accelerators
from shadowrun_operator.reconcile.judging import stored_report
from shadowrun_operator.reconcile.plan import Apply
from shadowrun_operator.reconcile.standing import MATCH_RATE, VERDICT, holding_s, standings

from tests.unit.reconcile.world import START, World, decoded

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


def _lose_node(world: World) -> None:
    world.lost["node1"] = "is not ready: NodeStatusUnknown (Kubelet stopped posting node status.)"


def _lose_node_and_its_labels(world: World) -> None:
    world.lost["node1"], world.nodes["node1"] = "is gone", None


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
    ("node not ready", _lose_node, "NodeLost"),
    ("node gone", _lose_node_and_its_labels, "NodeLost"),
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


MATCHING: dict[str, Any] = {
    "duration": "20m",
    "comparison": {"output": "Parity"},
    "endConditions": {"matchRate": "95%", "minDuration": "90s"},
}


def test_a_proven_match_rate_ends_the_run_after_the_shortest_duration_and_once_it_has_stood() -> None:
    world = World.with_spec(**MATCHING)
    world.until("Running")
    proven: list[float] = []
    while world.phase == "Running":
        world.turn()
        assert world.record is not None
        if MATCH_RATE in world.record.standings:
            proven.append(world.record.standings[MATCH_RATE].since)
    assert len(set(proven)) == 1
    world.until("Complete")
    status = world.body["status"]
    assert status["endReason"] == "MatchRateReached"
    assert next(word for word in EndReason if word == status["endReason"]).judged
    assert world.record is not None
    ended = world.record.ended_at
    assert ended - proven[0] >= 10, "for the length of admission.timeout"
    assert 90 <= ended - times.seconds(status["startTime"]) < 120
    assert status["comparison"]["matched"] == status["comparison"]["compared"] == status["pairs"]
    assert float(status["comparison"]["matchRate"].rstrip("%")) >= 95


@pytest.mark.parametrize("differs_in", [5, 20])
def test_a_match_rate_that_is_not_proven_ends_nothing(differs_in: int) -> None:
    world = World.with_spec(**MATCHING | {"duration": "3m"})
    world.differs_in = differs_in  # 80 % match, and 95 %, which is what is asked for and not more
    world.until("Complete")
    status = world.body["status"]
    assert status["endReason"] == "DurationReached"
    assert status["comparison"]["differed"] == [
        {"kind": "Value", "pairs": status["comparison"]["compared"] - status["comparison"]["matched"]}
    ]


def test_a_match_rate_ends_nothing_before_enough_pairs_are_compared() -> None:
    world = World.with_spec(**MATCHING | {"duration": "4m"})
    world.rate = 1.0
    world.until("Running")
    while world.phase == "Running":
        world.turn()
    world.until("Complete")
    status = world.body["status"]
    assert status["comparison"]["compared"] >= MIN_COMPARED or status["endReason"] == "DurationReached"
    assert status["endReason"] == "MatchRateReached"


def test_answers_are_compared_for_the_report_without_any_end_by_it() -> None:
    world = World.with_spec(comparison={"output": "Parity"})
    world.until("Complete")
    status = world.body["status"]
    assert status["endReason"] == "DurationReached"
    assert status["verdict"] == "Pass"
    assert status["comparison"]["matched"] > 0
    plain = World.with_spec()
    plain.until("Complete")
    assert "comparison" not in plain.body["status"]


def _loses(world: World, criterion: str) -> None:
    """From now on nearly every pair is lost for one criterion: what is in the evidence is turned round."""
    for evidence in world.evidence.values():
        for window in evidence.windows.values():
            for of_arm in window.pairs.values():
                if criterion in of_arm:
                    sums = of_arm[criterion].sums
                    of_arm[criterion].sums = {block: (n, -abs(n) + abs(n) // 20) for block, (n, _) in sums.items()}


def _until_lost(world: World, criterion: str, *, turns: int = 30) -> None:
    for _ in range(turns):
        _loses(world, criterion)
        world.turn()
        if world.phase != "Running":
            return


def test_a_run_whose_criteria_are_decided_ends_after_the_shortest_duration_and_no_sooner() -> None:
    world = World.with_spec(duration="10m", endConditions={"decided": True, "minDuration": "90s"})
    world.until("Complete")
    status = world.body["status"]
    assert (status["endReason"], status["verdict"]) == ("Decided", "Pass")
    assert world.record is not None
    assert 90 <= world.record.ended_at - times.seconds(status["startTime"]) < 96


def _due_at(world: World, change: Callable[[World], None]) -> tuple[float, float]:
    """When a look first saw what was due, and when the run ended by it; `change` is made before every look."""
    for _ in range(60):
        change(world)
        world.turn()
        if world.record is not None and world.record.ended_at:
            break
    assert world.record is not None
    assert world.record.standings[VERDICT].outcome == "Fail"
    return world.record.standings[VERDICT].since, world.record.ended_at


def _loses_errors(world: World) -> None:
    _loses(world, "errors")


ERRORS = {"name": "errors", "metric": "Failures", "require": "NotWorse", "margin": "5%", "critical": True}


def test_no_run_ends_by_what_one_look_saw_and_the_operator_may_restart_meanwhile() -> None:
    world = World.with_spec(duration="24h", criteria=[ERRORS], endConditions={"minDuration": "24h"})
    world.until("Running")

    def restarted(world: World) -> None:
        _loses_errors(world)
        world.restart_operator()
        assert world.record is not None
        world.record = decoded(world.record)

    first, ended = _due_at(world, restarted)
    assert 10 <= ended - first < 16
    assert world.body["status"]["endReason"] == "FailureProven"


def test_a_refutation_that_comes_and_goes_ends_no_run() -> None:
    world = World.with_spec(duration="24h", criteria=[ERRORS], endConditions={"minDuration": "24h"})
    world.until("Running")
    refuted = 0
    for _ in range(40):
        world.turn()
        whole = {uid: copy.deepcopy(evidence.windows) for uid, evidence in world.evidence.items()}
        _loses_errors(world)
        world.turn(seconds=0.5)
        assert world.record is not None
        refuted += "errors" in world.record.standings and world.record.standings["errors"].outcome == "Fail"
        for uid, windows in whole.items():
            world.evidence[uid] = msgspec.structs.replace(world.evidence[uid], windows=windows)
    assert refuted > 20
    assert world.phase == "Running"


def test_with_coarser_blocks_an_outcome_must_stand_longer() -> None:
    assert holding_s([BlockSeries(level=2), BlockSeries(level=5)], 1, 10.0) == 32
    assert holding_s([BlockSeries(level=2)], 1, 10.0) == 10
    assert holding_s([], 1, 10.0) == 10


def test_an_outcome_that_changes_or_is_lost_begins_anew() -> None:
    first = standings({}, {"a": "Pass", "b": "Fail", "c": "Inconclusive"}, 5.0)
    assert {name: (s.outcome, s.since) for name, s in first.items()} == {"a": ("Pass", 5.0), "b": ("Fail", 5.0)}
    then = standings(first, {"a": "Pass", "b": "Pass", "c": "Pass"}, 8.0)
    assert {name: s.since for name, s in then.items()} == {"a": 5.0, "b": 8.0, "c": 8.0}
    assert standings(then, {}, 9.0) == {}


def test_a_run_that_is_not_asked_to_goes_on_after_all_is_decided() -> None:
    world = World.with_spec(duration="3m", endConditions={"minDuration": "1m"})
    world.until("Complete")
    assert world.body["status"]["endReason"] == "DurationReached"


def test_an_open_criterion_keeps_a_run_from_ending_as_decided() -> None:
    many = [
        {"name": "ttft", "metric": "TTFT", "quantile": "p50", "require": "NotWorse", "margin": "10%"},
        {"name": "rare", "metric": "Failures", "require": "NotWorse", "margin": "5%", "minPairs": 100000},
    ]
    world = World.with_spec(criteria=many, endConditions={"decided": True})
    world.until("Complete")
    assert world.body["status"]["endReason"] == "DurationReached"


def test_a_refuted_criterion_ends_the_run_before_the_shortest_duration_and_is_named() -> None:
    world = World.with_spec(duration="24h", endConditions={"decided": True, "minDuration": "24h"})
    world.until("Running")
    _until_lost(world, "ttft", turns=60)
    assert world.phase == "Finishing"
    assert '"ttft" is violated' in world.body["status"]["message"]
    assert world.body["status"]["endReason"] == "FailureProven"


@pytest.mark.parametrize("critical", [True, False])
def test_without_being_asked_only_a_critical_criterion_ends_the_run_when_refuted(critical: bool) -> None:
    errors = {"name": "errors", "metric": "Failures", "require": "NotWorse", "margin": "5%", "critical": critical}
    world = World.with_spec(duration="24h", criteria=[errors], endConditions={"minDuration": "24h"})
    world.until("Running")
    _until_lost(world, "errors", turns=60)
    assert (world.body["status"].get("endReason") == "FailureProven") is critical


def test_a_refutation_does_not_end_a_run_that_would_be_inconclusive() -> None:
    errors = {"name": "errors", "metric": "Failures", "require": "NotWorse", "margin": "5%", "critical": True}
    world = World.with_spec(duration="24h", criteria=[errors], endConditions={"minDuration": "24h"})
    world.until("Running")
    for _ in range(60):
        _loses(world, "errors")
        for evidence in world.evidence.values():
            evidence.windows[max(evidence.windows)].classes["default"].received += Amount(requests=1, bytes=1)
        world.turn()
    assert world.phase == "Running"


def _with_gpus(world: World, count: int) -> None:
    container = world.users["Deployment", "chat"]["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"nvidia.com/gpu": str(count), "cpu": "4", "memory": "1Gi"}}


def test_accelerator_hours_of_all_arms_end_the_run() -> None:
    """Two arms of 60 accelerators use up an hour in 30 seconds; the shortest duration comes later."""
    world = World.with_spec(duration="10m", endConditions={"gpuHours": 4, "minDuration": "30s"})
    _with_gpus(world, 60)
    world.until("Complete")
    status = world.body["status"]
    assert status["endReason"] == "GPUHoursReached"
    assert world.record is not None
    assert 120 <= world.record.ended_at - world.record.copying_since < 126
    assert "of 4 accelerator hours" in world.record.end_message


def test_arms_without_accelerators_use_up_no_hours() -> None:
    world = World.with_spec(endConditions={"gpuHours": 1, "minDuration": "30s"})
    world.until("Complete")
    assert world.body["status"]["endReason"] == "DurationReached"


@pytest.mark.parametrize(
    ("pod", "count"),
    [
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": 2}}}, {"resources": {}}, {}]}, 2),
        ({"containers": [{"resources": {"limits": {"amd.com/gpu": "1"}}}] * 2}, 2),
        ({"containers": [{"resources": {"limits": {"nvidia.com/mig-1g.10gb": "3", "cpu": "8"}}}]}, 3),
        ({"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]}, 0),
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpumem": "3k", "nvidia.com/gpucores": "30"}}}]}, 0),
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu.shared": "2", "gpu.intel.com/tiles": 4}}}]}, 2),
        ({"containers": [{"resources": {"limits": {"gpu.intel.com/xe": "1", "google.com/tpu": "4e0"}}}]}, 5),
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "many", "amd.com/gpu": "1k"}}}]}, 1000),
        (
            {
                "initContainers": [
                    {"resources": {"limits": {"nvidia.com/gpu": 4}}},
                    {"restartPolicy": "Always", "resources": {"limits": {"nvidia.com/gpu": 1}}},
                ],
                "containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}],
            },
            4,
        ),
    ],
)
def test_the_accelerators_of_a_pod_are_those_it_holds_at_once(pod: dict[str, Any], count: int) -> None:
    world = World.with_spec()
    for arm in ("baseline", "candidate"):
        found = {
            "kind": "Deployment",
            "metadata": {"name": f"x-{arm}"},
            "spec": {"replicas": 3, "template": {"spec": pod}},
        }
        world.objects["Deployment", f"x-{arm}"] = found
    assert accelerators(dataclasses.replace(world.observe(), objects=world.objects)) == 2 * 3 * count


def test_accelerators_are_not_counted_where_the_spec_asks_for_no_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(_: Any) -> int:
        raise AssertionError

    monkeypatch.setattr(gpu_hours_reached, "accelerators", counted)
    world = World.with_spec()
    world.until("Complete")
    assert world.body["status"]["endReason"] == "DurationReached"


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
