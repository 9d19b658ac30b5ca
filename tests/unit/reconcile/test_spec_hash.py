"""What may change while a run is active does not change the hash; everything else does, and is named."""

from typing import Any

import pytest
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.reconcile.spec_hash import changed_fields, frozen_spec, spec_hash

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
    ],
)
def test_what_may_change_leaves_the_hash_alone(change: dict[str, Any]) -> None:
    assert spec_hash(_spec(**change)) == spec_hash(_spec())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"slo": {"ttft": "3s"}}, "spec.slo.ttft"),
        ({"arms": {"candidate": {"patch": {"spec": {"hostname": "b"}}}}}, "spec.arms.candidate"),
        ({"sampling": {"onMissingKey": "Skip"}}, "spec.sampling.onMissingKey"),
        ({"capture": {"paths": ["/v1/completions"]}}, "spec.capture.paths"),
        ({"criteria": [{"name": "e", "metric": "Failures", "require": "NotWorse", "margin": "1%"}]}, "spec.criteria"),
        ({"hardware": {"matchLabelKeys": ["a"]}}, "spec.hardware.matchLabelKeys"),
    ],
)
def test_what_decides_the_evidence_changes_the_hash_and_is_named(change: dict[str, Any], field: str) -> None:
    before = frozen_spec(_spec())
    assert spec_hash(_spec(**change)) != spec_hash(_spec())
    assert changed_fields(before, _spec(**change)) == [field]


def test_an_unchanged_spec_has_no_changed_fields() -> None:
    assert changed_fields(frozen_spec(_spec()), _spec()) == []
