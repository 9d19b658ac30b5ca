"""A plan says what a simulated run then does: enough pairs decide, and what it says to change is enough."""

import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_operator.judge.interval import FULL_BLOCKS, MIN_BLOCKS, PAIRS_PER_BLOCK, estimate
from shadowrun_operator.judge.plan import Length, RunPlan, Traffic, expected_gap, needed_pairs, planned
from shadowrun_operator.judge.rules import Criterion, Require, Rules

pytestmark = pytest.mark.verdict

SLO = Criterion(name="slo", metric="WithinSLO", require="NotWorse", margin=0.01)
P95 = Criterion(name="p95", metric="TTFT", quantile=0.95, require="NotWorse", margin=0.1, traffic_class="long")
BETTER = Criterion(name="better", metric="TTFT", quantile=0.5, require="Better")
DAY = Length(duration_s=86_400, least_s=3600, start_s=1800, warm_up_s=120)
NAMES = ("long", "default")


def plan(*criteria: Criterion, rate: float, length: Length = DAY, **more: object) -> RunPlan:
    rules = Rules(criteria=criteria)
    return planned(rules, Traffic(pairs_per_second=rate, **more), length, NAMES)  # type: ignore[arg-type]


def test_enough_pairs_decide_and_too_few_do_not() -> None:
    assert plan(SLO, rate=2).decidable
    short = plan(SLO, rate=2, length=msgspec.structs.replace(DAY, duration_s=600))
    assert not short.decidable
    assert short.criteria[0].coming == 1200


@pytest.mark.parametrize("crossover", [False, True], ids=["stay", "change places"])
@pytest.mark.parametrize("criterion", [SLO, P95, BETTER], ids=lambda c: str(c.name))
def test_what_a_plan_says_to_change_is_enough(criterion: Criterion, crossover: bool) -> None:
    length = msgspec.structs.replace(DAY, duration_s=600, start_s=86_400, crossover=crossover)
    (found,) = plan(criterion, rate=0.5, length=length).criteria
    assert not found.decidable
    assert found.rate is not None
    assert found.seconds is not None
    assert plan(criterion, rate=1.01 * found.rate, length=length).decidable
    longer = msgspec.structs.replace(length, duration_s=found.seconds + 60)
    assert plan(criterion, rate=0.5, length=longer).decidable


def test_arms_that_change_places_have_the_pairs_of_the_second_half_after_its_warm_up() -> None:
    (found,) = plan(SLO, rate=2, length=msgspec.structs.replace(DAY, crossover=True)).criteria
    assert found.coming == 2 * (43_200 - 120)
    (none,) = plan(SLO, rate=2, length=msgspec.structs.replace(DAY, crossover=True, duration_s=200)).criteria
    assert (none.coming, none.rate) == (0, None)


def test_a_wider_margin_is_offered_and_the_median_where_it_would_do() -> None:
    (found,) = plan(P95, rate=0.05).criteria
    assert found.margin is not None
    assert found.median
    assert plan(msgspec.structs.replace(P95, margin=found.margin + 1e-6), rate=0.05).criteria[0].decidable
    assert plan(msgspec.structs.replace(P95, quantile=0.5), rate=0.05).criteria[0].decidable


def test_a_gain_that_is_not_expected_cannot_be_proven() -> None:
    demanding = msgspec.structs.replace(BETTER, margin=0.2)
    (found,) = plan(demanding, rate=100, effect=0.1).criteria
    assert (found.needed, found.rate, found.margin) == (None, None, None)
    assert plan(demanding, rate=100).criteria[0].needed is not None


def test_the_warm_up_of_the_rarest_class_must_come_before_the_start_deadline() -> None:
    rare = plan(SLO, P95, rate=1, class_shares={"long": 0.01})
    assert rare.ready_s == 120 + 200 / 0.01
    assert not rare.starts
    assert not rare.decidable
    assert plan(SLO, P95, rate=1, class_shares={"long": 0.0}).ready_s is None


def test_a_run_that_ends_by_its_pairs_has_no_more_than_those() -> None:
    few = plan(SLO, rate=2, length=msgspec.structs.replace(DAY, pairs=8000))
    assert few.criteria[0].coming == 8000
    at_least = plan(SLO, rate=2, length=msgspec.structs.replace(DAY, pairs=10))
    assert at_least.criteria[0].coming == 7200


def test_informational_criteria_do_not_decide_whether_a_run_can() -> None:
    hopeless = msgspec.structs.replace(P95, name="x", quantile=0.99, margin=0.001, informational=True)
    assert plan(SLO, hopeless, rate=2).decidable
    assert not plan(hopeless, rate=2).decidable


@given(st.floats(0.001, 0.2), st.floats(0.001, 0.2), st.sampled_from(["Better", "NotWorse"]))
def test_a_wider_margin_never_needs_more_pairs_for_not_worse_nor_fewer_for_better(
    a: float, b: float, require: Require
) -> None:
    narrow, wide = sorted((a, b))
    traffic = Traffic(pairs_per_second=1, effect=0.3)
    base = Criterion(name="x", metric="TTFT", quantile=0.5, require=require)
    needed = [needed_pairs(msgspec.structs.replace(base, margin=m), traffic, 0.05) or 0 for m in (narrow, wide)]
    assert needed[0] >= needed[1] if require == "NotWorse" else needed[0] <= needed[1]


def test_the_gap_of_a_latency_is_that_of_lognormal_answers() -> None:
    draw = random.Random(3)
    p, sigma, ratio = 0.9, 0.8, 1.1
    limit = math.exp(sigma * float(ndtri(p)))
    within = sum(math.exp(draw.gauss(0, sigma)) <= ratio * limit for _ in range(40_000)) / 40_000
    criterion = Criterion(name="x", metric="TTFT", quantile=p, require="NotWorse", margin=0.1)
    assert expected_gap(criterion, Traffic(pairs_per_second=1, spread=sigma)) == pytest.approx(within - p, abs=0.005)


def test_as_many_pairs_as_are_said_to_be_needed_do_decide_in_four_of_five_runs() -> None:
    """Equal arms that differ in 4 % of independent pairs, as the plan assumes; judged as a real series is."""
    draw = random.Random(11)
    needed = needed_pairs(SLO, Traffic(pairs_per_second=2), 0.05)
    assert needed is not None
    decided = 0
    for _ in range(50):
        series = BlockSeries()
        for i in range(needed):
            series.add(i // 2, draw.choice((-1, 1)) if draw.random() < 0.04 else 0)
        found = estimate(series)
        assert found is not None
        decided += found.lower(0.05) > -SLO.margin
    assert 34 <= decided <= 47


def test_a_short_run_pays_for_its_caution() -> None:
    """A gap so wide that the least number of blocks would do without it."""
    wide = Criterion(name="x", metric="WithinSLO", require="NotWorse", margin=0.2, min_pairs=1)
    traffic = Traffic(pairs_per_second=1, discordance=0.36)
    least, full = MIN_BLOCKS * PAIRS_PER_BLOCK, FULL_BLOCKS * PAIRS_PER_BLOCK
    assert needed_pairs(wide, traffic, 0.05) == full
    assert needed_pairs(wide, Traffic(pairs_per_second=1, discordance=0.1), 0.05) == least


def test_where_the_pairs_end_the_run_more_of_them_are_advised_and_no_higher_rate() -> None:
    length = msgspec.structs.replace(DAY, pairs=4000, least_s=60)
    found = plan(SLO, P95, rate=2, length=length, class_shares={"long": 0.1}).criteria
    assert [c.rate for c in found] == [None, None]
    for number, criterion in enumerate((SLO, P95)):
        pairs = found[number].pairs
        assert pairs is not None
        more = msgspec.structs.replace(length, pairs=pairs + 20, duration_s=10**7, start_s=10**5)
        assert plan(criterion, rate=2, length=more, class_shares={"long": 0.1}).decidable
        fewer = msgspec.structs.replace(more, pairs=pairs - 20)
        assert not plan(criterion, rate=2, length=fewer, class_shares={"long": 0.1}).decidable


def test_a_rate_is_not_advised_where_the_pairs_would_end_the_run_before_it_helps() -> None:
    length = msgspec.structs.replace(DAY, pairs=4000, duration_s=600, least_s=60)
    (found,) = plan(SLO, rate=1, length=length).criteria
    assert found.coming == 600
    assert found.rate is None
    (free,) = plan(SLO, rate=1, length=msgspec.structs.replace(length, pairs=None)).criteria
    assert free.rate is not None
    assert free.pairs is None


def test_where_nothing_comes_no_rate_and_no_duration_is_advised() -> None:
    found = plan(SLO, P95, rate=1, class_shares={"long": 0.0}).criteria[1]
    assert (found.coming, found.rate, found.seconds, found.pairs) == (0, None, None, None)
