"""Every reason to end: when it is met, that it is recorded, and whether it is judged."""

from collections.abc import Callable

import pytest
from shadowrun_operator.api.conditions import EndReason

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


CASES: list[tuple[str, Callable[[World], None], str]] = [
    ("stopped", _stop, "Stopped"),
    ("spec changed", _change_candidate, "SpecChanged"),
    ("evidence lost", _lose_evidence, "EvidenceLost"),
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
