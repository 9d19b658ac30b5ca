"""Estimates over blocks: which blocks, how wide, and where the t interval must not be trusted."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_1samp
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_operator.judge.interval import GOOD_BLOCKS, MIN_BLOCKS, MOST_BLOCKS, Estimate, blocks_of, estimate

from tests.unit.evidence.evidences import pair_lists, series

pytestmark = pytest.mark.verdict


def found(pairs: list[tuple[int, int]]) -> Estimate:
    result = estimate(series(pairs))
    assert result is not None
    return result


def test_no_pairs_give_no_estimate() -> None:
    assert estimate(BlockSeries()) is None


def test_equal_blocks_give_the_textbook_t_interval() -> None:
    draw = random.Random(3)
    means = [draw.choice((-8, 0, 4, 8, 12, 16)) for _ in range(20)]
    pairs = [
        (j, 1 if i < s else 0) if s > 0 else (j, -1 if i < -s else 0) for j, s in enumerate(means) for i in range(20)
    ]
    ours = found(pairs)
    theirs = ttest_1samp([s / 20 for s in means], 0.0).confidence_interval(0.9)
    assert (ours.lower(0.05), ours.upper(0.05)) == pytest.approx((theirs.low, theirs.high), abs=0.01)
    assert ours.lower(0.05) <= theirs.low + 1e-9
    assert ours.upper(0.05) >= theirs.high - 1e-9
    assert (ours.blocks, ours.pairs) == (20, 400)


@given(pair_lists)
def test_bounds_enclose_the_mean_and_widen_as_the_level_falls(pairs: list[tuple[int, int]]) -> None:
    result = estimate(series(pairs))
    if result is None:
        return
    assert result.mean == pytest.approx(sum(z for _, z in pairs) / len(pairs))
    assert -1 <= result.lower(0.01) <= result.lower(0.05) <= result.mean + 1e-12
    assert result.mean - 1e-12 <= result.upper(0.05) <= result.upper(0.01) <= 1


@given(pair_lists)
def test_swapping_the_arms_mirrors_the_interval(pairs: list[tuple[int, int]]) -> None:
    ours, theirs = estimate(series(pairs)), estimate(series([(i, -z) for i, z in pairs]))
    if ours is not None and theirs is not None:
        assert ours.lower(0.05) == pytest.approx(-theirs.upper(0.05))


def test_outcomes_that_never_differ_still_leave_the_rule_of_three() -> None:
    result = found([(i, 0) for i in range(1000)])
    assert result.lower(0.05) == pytest.approx(-3 / 1000, rel=0.05)
    assert result.upper(0.05) == pytest.approx(3 / 1000, rel=0.05)


def test_a_constant_win_is_not_taken_as_certain() -> None:
    result = found([(i, 1) for i in range(100)])
    assert result.mean == 1.0
    assert 0.9 < result.lower(0.05) < 0.97


def test_blocks_that_happen_to_be_equal_do_not_give_a_zero_width() -> None:
    result = found([(i, z) for i in range(30) for z in (1, 0, 0, 0)])
    assert result.error == pytest.approx(0.0, abs=1e-12)
    wilson = binomtest(30, 120).proportion_ci(0.90, method="wilson")
    assert result.lower(0.05) <= wilson.low
    assert result.upper(0.05) >= wilson.high


def test_a_single_rare_loss_is_wider_than_the_t_interval() -> None:
    result = found([(i, -1 if i == 17 else 0) for i in range(1000)])
    t_only = result.mean - 1.7 * result.error
    assert result.lower(0.05) < t_only


@pytest.mark.parametrize(
    ("seconds", "per_second", "blocks", "level"),
    [
        (40, 20, 40, 0),  # already long enough
        (160, 1, 20, 3),  # 20 pairs a block would leave 8 blocks: the longest that leave 15
        (600, 2, 38, 4),
        (480, 100, 60, 3),  # enough pairs in the finest, but too many blocks
        (10, 50, 10, 0),  # never 15 blocks: the finest there is
    ],
)
def test_the_block_length_is_the_documented_one(seconds: int, per_second: int, blocks: int, level: int) -> None:
    chosen = blocks_of(series([(i, 0) for i in range(seconds) for _ in range(per_second)]))
    assert (len(chosen.sums), chosen.level) == (blocks, level)


@given(st.integers(1, 400), st.integers(1, 30))
def test_no_more_blocks_than_needed_and_no_fewer_than_there_could_be(seconds: int, per_second: int) -> None:
    whole = series([(i, 0) for i in range(seconds) for _ in range(per_second)])
    chosen = len(blocks_of(whole).sums)
    assert chosen >= min(len(whole.sums), GOOD_BLOCKS)
    assert chosen <= max(MOST_BLOCKS, GOOD_BLOCKS)


def test_few_blocks_decide_nothing() -> None:
    short = found([(i, 1) for i in range(MIN_BLOCKS - 1) for _ in range(100)])
    assert not short.decidable
    assert found([(i, 1) for i in range(MIN_BLOCKS) for _ in range(100)]).decidable
    single = found([(0, 1)])
    assert (single.lower(0.05), single.upper(0.05)) == (-1.0, 1.0)


def test_slow_load_noise_rarely_gives_a_false_bound() -> None:
    """AR(1) noise of the load, about 20 pairs long: the bound at 5 % may be wrong in at most what 400 runs allow."""
    draw, wrong, runs = random.Random(11), 0, 400
    for _ in range(runs):
        load, pairs = 0.0, []
        for i in range(600):
            load = 0.95 * load + math.sqrt(1 - 0.95**2) * draw.gauss(0, 1)
            challenger, baseline = draw.gauss(0, 1) + load < 0, draw.gauss(0, 1) < 0
            pairs.append((i // 2, int(challenger) - int(baseline)))
        wrong += found(pairs).lower(0.05) > 0
    assert binomtest(wrong, runs, 0.10, alternative="greater").pvalue > 0.01
