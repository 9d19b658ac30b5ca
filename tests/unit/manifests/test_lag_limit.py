"""How late a mirror may stamp before a pair is flagged follows from what the run is judged by."""

import pytest
from shadowrun_mirror.config import Indicator, Metric
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.manifests.configuration import lag_limit_s

from tests.unit.reconcile.world import spec

pytestmark = pytest.mark.operator

CLASSES = [{"name": "long", "when": {"stream": True}, "slo": {"e2e": "200ms"}}]


def indicator(metric: Metric, limit: float | None) -> Indicator:
    return Indicator(criterion="c", metric=metric, baseline_limit_s=limit, challenger_limit_s=limit)


@pytest.mark.parametrize(
    ("changes", "indicators", "limit"),
    [
        ({"slo": {"ttft": "3s"}}, (), 0.3),
        ({"slo": {"ttft": "3s"}, "classes": CLASSES}, (), 0.02),
        ({"slo": {"ttft": "3s"}}, (indicator("TTFT", 0.15), indicator("E2E", 2.0)), 0.015),
        ({"slo": {"ttft": "3s"}}, (indicator("TTFT", 0.02),), 0.005),
        ({"slo": {"ttft": "3s"}}, (indicator("TPOT", 0.02), indicator("Failures", None)), 0.3),
    ],
)
def test_it_is_a_tenth_of_the_shortest_time_judged_and_at_least_five_milliseconds(
    changes: dict[str, object], indicators: tuple[Indicator, ...], limit: float
) -> None:
    assert lag_limit_s(Spec.model_validate(spec(**changes)), indicators) == pytest.approx(limit)


def test_without_any_time_it_is_five_milliseconds() -> None:
    bare = spec(criteria=[{"name": "f", "metric": "Failures", "require": "NotWorse", "margin": "1%"}])
    del bare["slo"]
    assert lag_limit_s(Spec.model_validate(bare), ()) == 0.005
