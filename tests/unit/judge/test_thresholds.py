"""Limits from the warm-up: which edge, when none, and what ties do."""

import math
import random

import pytest
from scipy.stats import binomtest
from shadowrun_mirror.histogram import GAMMA, Histogram
from shadowrun_operator.judge.rules import Criterion, Rules
from shadowrun_operator.judge.thresholds import Position, indicators, levels, position, shortfalls, tie_shift

from tests.unit.judge.synthetic import BETTER, NOT_SLOWER, SLO_KEPT, Recorder, equal, judged, recorded

pytestmark = pytest.mark.verdict

P95 = Criterion(name="p95", metric="TTFT", quantile=0.95, require="NotWorse", margin=0.1)
TIGHT_BETTER = Criterion(name="better", metric="TTFT", quantile=0.95, require="Better")


def of(values: list[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


def warmed(values: list[float], name: str = "default") -> Recorder:
    recorder = Recorder()
    for i, value in enumerate(values):
        recorder.pair(0, i, {"baseline": value, "candidate": value}, name=name)
    return recorder


SPREAD = [0.01 * 1.05**i for i in range(200)]


@pytest.mark.parametrize(
    ("require", "margin", "ratio"), [("NotWorse", 0.1, 1.1), ("Better", 0.1, 0.9), ("Better", 0.0, 1.0)]
)
def test_the_challengers_limit_carries_the_margin(require: str, margin: float, ratio: float) -> None:
    criterion = Criterion(name="c", metric="TTFT", quantile=0.95, require=require, margin=margin)  # type: ignore[arg-type]
    (found,) = indicators(Rules(criteria=(criterion,)), warmed(SPREAD).windows[0])
    expected = of(SPREAD).quantile(0.95)
    assert found.baseline_limit_s == expected
    assert found.challenger_limit_s == pytest.approx(ratio * expected)


def test_without_a_warm_up_latencies_have_no_limit_and_shares_need_none() -> None:
    found = indicators(Rules(criteria=(P95, SLO_KEPT)))
    assert [(i.criterion, i.baseline_limit_s) for i in found] == [("p95", None), ("slo", None)]


@pytest.mark.parametrize(
    ("values", "what", "have", "need"),
    [
        (SPREAD[:199], "pairs", 199, 200),
        (SPREAD[:100] + [math.inf] * 100, "answers that did not fail", 100, 190),
    ],
)
def test_a_warm_up_that_is_not_enough_says_what_is_missing(
    values: list[float], what: str, have: int, need: int
) -> None:
    (found,) = shortfalls(Rules(criteria=(P95,)), warmed(values).windows[0])
    assert (found.what, found.have, found.need) == (what, have, need)


def test_too_few_answers_for_the_quantile_give_no_limit() -> None:
    rules = Rules(criteria=(Criterion(name="c", metric="TTFT", quantile=0.99, require="Better"),), warm_up_requests=1)
    window = warmed(SPREAD[:99]).windows[0]
    assert indicators(rules, window)[0].baseline_limit_s is None
    assert [(s.what, s.have, s.need) for s in shortfalls(rules, window)] == [("answers", 99, 100)]
    assert shortfalls(rules, warmed(SPREAD[:100]).windows[0]) == ()


def test_a_criterion_of_a_class_looks_at_that_class_only() -> None:
    rules = Rules(criteria=(Criterion(name="c", metric="TTFT", quantile=0.5, require="Better", traffic_class="long"),))
    assert shortfalls(rules, warmed(SPREAD).windows[0])[0].have == 0
    assert shortfalls(rules, warmed(SPREAD, name="long").windows[0]) == ()


def test_chance_repeats_are_not_ties() -> None:
    draw = random.Random(5)
    values = [math.exp(draw.gauss(0, 0.8)) for _ in range(200)]
    histogram = of(values)
    assert tie_shift(P95, histogram, histogram.quantile(0.95)) == 0.0


def test_with_ties_the_criterion_still_asks_for_the_quantile() -> None:
    histogram = of([1.0] * 200)
    assert tie_shift(P95, histogram, histogram.quantile(0.95)) == pytest.approx(0.95 - 1.0)
    (better,) = indicators(Rules(criteria=(TIGHT_BETTER,)), warmed([1.0] * 200).windows[0])
    assert better.baseline_limit_s == pytest.approx(1.0 / GAMMA)
    assert tie_shift(TIGHT_BETTER, histogram, 1.0 / GAMMA) == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("factor", "outcomes"), [(1.0, ("Pass", "Fail")), (0.5, ("Pass", "Pass")), (2.0, ("Fail", "Fail"))]
)
def test_latencies_that_never_vary_are_judged_sensibly(factor: float, outcomes: tuple[str, str]) -> None:
    rules = Rules(criteria=(P95, TIGHT_BETTER))
    recorder = warmed([1.0] * 200)
    recorder.indicators = indicators(rules, recorder.windows[0])
    for i in range(600):
        recorder.pair(1, i, {"baseline": 1.0, "candidate": factor})
    assert tuple(r.outcome for r in judged(recorder, rules).criteria) == outcomes


def test_a_limit_that_stays_the_quantile_has_not_drifted() -> None:
    place = position(of(SPREAD), of(SPREAD).quantile(0.95), 200)
    assert place is not None
    assert place.low <= 0.95 <= place.high
    assert not place.drifted(0.95)


@pytest.mark.parametrize(
    ("counted", "frozen_from", "drifted"),
    [(4000, 1000, True), (4000, 20, False), (20, 1000, False)],  # ten points away: chance explains it for 20 answers
)
def test_a_limit_has_drifted_only_if_chance_does_not_explain_it(counted: int, frozen_from: int, drifted: bool) -> None:
    place = position(of((SPREAD * 20)[:: 4000 // counted]), of(SPREAD).quantile(0.85), frozen_from)
    assert place is not None
    assert place.drifted(0.95) == drifted


def test_without_answers_there_is_no_position() -> None:
    assert position(Histogram(), 1.0, 200) is None


@pytest.mark.parametrize("p", [0.5, 0.95])
def test_equal_traffic_rarely_counts_as_drift(p: float) -> None:
    draw, drifts, runs = random.Random(31), 0, 200
    for _ in range(runs):
        warm_up, counted = (of([math.exp(draw.gauss(0, 0.8)) for _ in range(n)]) for n in (200, 1500))
        place = position(counted, warm_up.quantile(p), warm_up.count)
        assert place is not None
        drifts += place.drifted(p)
    assert binomtest(drifts, runs, 0.05, alternative="greater").pvalue > 0.01


def placed(baseline: list[float], limit_s: float) -> Position:
    place = position(of(baseline), limit_s, 400)
    assert place is not None
    return place


def test_levels_reach_from_the_quantile_asked_for_to_that_of_the_limit() -> None:
    median = Criterion(name="c", metric="TTFT", quantile=0.5, require="Better")
    found = levels(median, of(SPREAD), of([0.8 * v for v in SPREAD]), placed(SPREAD, of(SPREAD).quantile(0.8)))
    assert found[0].share == pytest.approx(0.5, abs=0.01)
    assert found[-1].share == pytest.approx(0.8, abs=0.01)
    assert all(0 < level.least <= level.most for level in found)
    worse = levels(median, of(SPREAD), of([1.3 * v for v in SPREAD]), placed(SPREAD, of(SPREAD).quantile(0.2)))
    assert worse[0].share == pytest.approx(0.2, abs=0.01)
    assert all(level.least <= level.most < 0 for level in worse)


def test_equal_arms_are_equal_at_every_level() -> None:
    median = Criterion(name="c", metric="TTFT", quantile=0.5, require="Better")
    found = levels(median, of(SPREAD), of(SPREAD), placed(SPREAD, of(SPREAD).quantile(0.8)))
    assert all(level.least == pytest.approx(0.0) for level in found)


def test_failures_of_the_candidate_never_help_at_any_level() -> None:
    place = placed(SPREAD, of(SPREAD).quantile(0.8))
    faster = [0.8 * v for v in SPREAD]
    whole, failing = (levels(P95, of(SPREAD), of(v), place) for v in (faster, [*faster[20:], *[math.inf] * 20]))
    assert all(b.least <= a.least and b.most <= a.most for a, b in zip(whole, failing, strict=True))


def test_where_failures_of_the_baseline_reach_there_are_no_levels() -> None:
    failing = [*SPREAD[:150], *[math.inf] * 50]
    assert levels(P95, of(failing), of(SPREAD), placed(failing, of(failing).quantile(0.5))) == ()


def test_an_equal_candidate_meets_not_worse_and_not_better() -> None:
    report = judged(
        recorded(candidate=equal, rules=Rules(criteria=(BETTER, NOT_SLOWER)), pairs=1500),
        Rules(criteria=(BETTER, NOT_SLOWER)),
    )
    assert [r.outcome for r in report.criteria] == ["Inconclusive", "Pass"]


def test_an_informational_criterion_holds_no_warm_up_up_and_says_that_it_has_no_limit() -> None:
    rare = Criterion(
        name="rare", metric="TTFT", quantile=0.99, require="NotWorse", traffic_class="b", informational=True
    )
    rules = Rules(criteria=(SLO_KEPT, rare))
    assert shortfalls(rules, warmed(SPREAD).windows[0]) == ()
    report = judged(recorded(rules), rules)
    assert [(r.name, r.gap) for r in report.criteria if r.informational] == [("rare", "NoThreshold")]
    assert report.verdict == "Pass"
    alone = Rules(criteria=(rare,))
    assert [s.criterion for s in shortfalls(alone, warmed(SPREAD).windows[0])] == ["rare", "rare"]
