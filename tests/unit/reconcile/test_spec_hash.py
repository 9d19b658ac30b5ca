"""What may change while a run is active is no change; everything else is one, and is named."""

from collections.abc import Callable
from typing import Any

import pytest
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.reconcile.spec_hash import changed_fields, frozen_spec

from tests.unit.reconcile.world import spec

pytestmark = pytest.mark.operator


def _spec(**changes: Any) -> Spec:
    return Spec.model_validate(spec(**changes))


@pytest.mark.parametrize(
    "change",
    [
        {"suspend": True},
        {"stop": {"reason": "x"}},
        {"duration": "61s"},
        {"admission": {"maxInFlight": 2}},
        {"sampling": {"rate": "3%"}},
        {"sampling": {"targetPairsPerSecond": "3"}},
    ],
)
def test_what_may_change_is_no_change(change: dict[str, Any]) -> None:
    assert changed_fields(frozen_spec(_spec()), _spec(**change)) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"slo": {"ttft": "3s"}}, "spec.slo.ttft"),
        ({"arms": {"candidate": {"patch": {"spec": {"hostname": "b"}}}}}, "spec.arms.candidate"),
        ({"sampling": {"onMissingKey": "Skip"}}, "spec.sampling.onMissingKey"),
        ({"sampling": {"classRates": [{"class": "default", "rate": "9%"}]}}, "spec.sampling.classRates"),
        ({"livePathGuard": {"maxErrorIncrease": "1%"}}, "spec.livePathGuard"),
        ({"capture": {"paths": ["/v1/completions"]}}, "spec.capture.paths"),
        ({"criteria": [{"name": "e", "metric": "Failures", "require": "NotWorse", "margin": "1%"}]}, "spec.criteria"),
        ({"hardware": {"matchLabelKeys": ["a"]}}, "spec.hardware.matchLabelKeys"),
    ],
)
def test_what_decides_the_evidence_is_a_change_and_is_named(change: dict[str, Any], field: str) -> None:
    assert changed_fields(frozen_spec(_spec()), _spec(**change)) == [field]


def _without_a_default(snapshot: dict[str, Any]) -> None:
    del snapshot["coverage"]


def _without_a_new_field(snapshot: dict[str, Any]) -> None:
    del snapshot["arms"]["warmup"]
    snapshot["arms"]["warmup"] = {"duration": "20s", "requests": 40}
    del snapshot["hardware"]["policy"]


def _with_a_field_that_went(snapshot: dict[str, Any]) -> None:
    snapshot["sampling"]["salt"] = "old"
    snapshot["retired"] = {"a": 1}


@pytest.mark.parametrize("older", [_without_a_default, _without_a_new_field, _with_a_field_that_went])
def test_a_snapshot_of_an_older_operator_is_read_by_today_s_model(older: Callable[[dict[str, Any]], None]) -> None:
    snapshot = frozen_spec(_spec())
    older(snapshot)
    assert changed_fields(snapshot, _spec()) == []
    assert changed_fields(snapshot, _spec(slo={"ttft": "3s"})) == ["spec.slo.ttft"]


def test_a_snapshot_that_cannot_be_read_is_a_change_of_the_whole() -> None:
    assert changed_fields({"primary": {}}, _spec()) == ["spec"]
