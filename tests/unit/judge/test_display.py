"""Quantiles come with intervals that hold, and shares, win rates and lengths are those of the evidence."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from shadowrun_mirror.evidence import ArmEvidence, Usage, Wins
from shadowrun_mirror.histogram import GAMMA, Histogram
from shadowrun_operator.judge.display import (
    ArmReport,
    class_reports,
    latencies,
    order_range,
    quantiles,
    rank_bounds,
    wilson,
)
from shadowrun_operator.judge.merge import scopes

from tests.unit.judge.synthetic import faster, judged, recorded

pytestmark = pytest.mark.verdict


def histogram(values: list[float]) -> Histogram:
    found = Histogram()
    for value in values:
        found.add(value)
    return found


@given(st.integers(1, 5000), st.sampled_from([0.5, 0.95, 0.99]))
def test_the_ranks_are_the_narrowest_that_the_binomial_allows(count: int, p: float) -> None:
    low, high = rank_bounds(count, p)
    law = binom(count, p)
    assert low == 0 or law.cdf(low - 1) <= 0.025
    assert law.cdf(low) > 0.025
    assert high == count + 1 or law.cdf(high - 1) >= 0.975
    assert high == 1 or law.cdf(high - 2) < 0.975


@pytest.mark.parametrize(("p", "n"), [(0.5, 40), (0.95, 300), (0.99, 1500)])
def test_the_interval_holds_the_true_quantile_as_often_as_it_says(p: float, n: int) -> None:
    draw = random.Random(5)
    true = -math.log(1 - p)  # of the exponential distribution
    held = 0
    for _ in range(400):
        found = order_range(histogram([draw.expovariate(1.0) for _ in range(n)]), p)
        held += (found.low or 0.0) <= true <= (math.inf if found.high is None else found.high)
    assert held >= 0.93 * 400


def test_an_interval_that_failures_reach_has_no_end() -> None:
    found = quantiles("TTFT", histogram([0.1] * 94 + [math.inf] * 6))
    assert found.p95 is None
    assert found.ranges[1].high is None
    assert found.ranges[1].low == pytest.approx(0.1, rel=0.03)
    assert found.p50 == pytest.approx(0.1, rel=0.03)
    assert found.failed == 6


def test_a_single_answer_bounds_nothing() -> None:
    found = order_range(histogram([1.0]), 0.5)
    assert (found.low, found.high) == (None, None)


def test_the_outer_edges_of_the_bins_are_shown() -> None:
    found = order_range(histogram([1.0] * 100), 0.5)
    assert found.low == pytest.approx(1 / GAMMA)
    assert found.high == pytest.approx(1.0)


def test_tokens_per_second_count_from_the_slow_end() -> None:
    results = ArmEvidence(per_token=histogram([0.01 * (1 + i / 100) for i in range(100)]))
    (found,) = latencies(results)
    assert found.metric == "TokensPerSecond"
    assert found.p50 is not None
    assert found.p95 is not None
    assert found.p50 == pytest.approx(1 / 0.015, rel=0.03)
    assert found.p95 < found.p50
    for value, within in zip((found.p50, found.p95), found.ranges, strict=False):
        assert within.low is not None
        assert within.low <= value * GAMMA


def by_arm(reports: tuple[ArmReport, ...], traffic_class: str = "") -> dict[str, ArmReport]:
    return {r.arm: r for r in reports if r.traffic_class == traffic_class}


def test_wins_lengths_and_shares_are_shown_beside_the_baseline() -> None:
    recorder = recorded(candidate=faster)
    part = recorder.windows[1].classes["default"]
    part.wins = {"candidate": Wins(pairs=600, won=400, lost=100)}
    for arm, output in (("baseline", 1000), ("candidate", 1500)):
        part.arms[arm].usage = Usage(
            answers=100, body_bytes=400_000, prompt_tokens=100_000, cached_tokens=30_000, output_tokens=output
        )
    report = judged(recorder)
    baseline, candidate = (by_arm(report.arms)[arm] for arm in ("baseline", "candidate"))
    assert baseline.against is None
    assert candidate.against is not None
    assert candidate.against.win_rate == (400 + 50) / 600
    assert candidate.against.output_ratio == 1.5
    assert candidate.shares.cached == 0.3
    assert (baseline.shares.output_tokens, candidate.shares.output_tokens) == (10.0, 15.0)
    counts = report.funnel.arms["candidate"]
    assert candidate.shares.within_slo == counts.within_slo.requests / 600
    assert candidate.shares.failed == 0.0
    within = candidate.against.win_range
    assert within.low is not None
    assert within.high is not None
    assert within.low < 0.75 < within.high


def test_a_run_whose_mirrors_counted_no_wins_shows_none() -> None:
    candidate = by_arm(judged(recorded()).arms)["candidate"].against
    assert candidate is not None
    assert (candidate.pairs, candidate.win_rate, candidate.win_range.low) == (0, None, None)


def test_times_before_the_arms_are_shown_for_each_class_that_has_them() -> None:
    recorder = recorded(names=("long", "default"))
    recorder.windows[1].classes["long"].forward = histogram([0.001] * 30)
    found = {r.traffic_class: r.times for r in class_reports(scopes(recorder.merged().counted))}
    assert [t.metric for t in found[""]] == [t.metric for t in found["long"]] == ["Forward"]
    assert found["default"] == ()


def test_wilson_never_leaves_the_unit_interval_and_holds_the_share() -> None:
    for won in (0, 1, 10, 19, 20):
        found = wilson(won / 20, 20)
        assert found.low is not None
        assert found.high is not None
        assert 0 <= found.low <= won / 20 <= found.high <= 1
