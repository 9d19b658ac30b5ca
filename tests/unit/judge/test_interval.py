"""Estimates over blocks: which blocks, how wide, at every look, and where few pairs differ."""

import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm, t, ttest_1samp
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_operator.judge.interval import (
    CAUTION,
    FEW_BLOCKS,
    FULL_BLOCKS,
    LEAST_FREEDOM,
    MIN_BLOCKS,
    PAIRS_PER_BLOCK,
    SHORT_FREEDOM,
    USUAL_ALPHA,
    Estimate,
    estimate,
)
from shadowrun_operator.judge.sequence import multiplier

from tests.unit.evidence.evidences import pair_lists, series

pytestmark = pytest.mark.verdict


def found(pairs: list[tuple[int, int]]) -> Estimate:
    result = estimate(series(pairs))
    assert result is not None
    return result


def test_no_pairs_give_no_estimate() -> None:
    assert estimate(BlockSeries()) is None


def test_at_one_look_equal_blocks_give_the_textbook_t_interval() -> None:
    draw = random.Random(3)
    means = [draw.choice((-8, 0, 4) if j % 2 else (8, 12, 16)) for j in range(60)]  # no neighbours are alike
    pairs = [(j, (1 if s > 0 else -1) if i < abs(s) else 0) for j, s in enumerate(means) for i in range(20)]
    ours = found(pairs)
    assert (ours.blocks, ours.pairs, ours.caution) == (60, 1200, 1.0)
    theirs = ttest_1samp([s / 20 for s in means], 0.0).confidence_interval(0.9)
    low, high = ours.once(0.05)
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=0.002)
    assert low <= theirs.low + 1e-9
    assert high >= theirs.high - 1e-9


@pytest.mark.parametrize(("seconds", "caution"), [(100, CAUTION), (1000, 1.0)])
def test_a_single_look_at_a_short_run_is_as_cautious_as_the_others(seconds: int, caution: float) -> None:
    draw = random.Random(3)
    ours = found([(i, draw.choice((-1, 1))) for i in range(seconds) for _ in range(2)])
    assert ours.caution == pytest.approx(caution)
    low, high = ours.once(0.05)
    reach = math.sqrt(caution) * ours.error * float(t(ours.blocks - 1).isf(0.05))
    assert (low, high) == pytest.approx((ours.mean - reach, ours.mean + reach), rel=0.05)
    assert ours.lower(0.05) < low
    assert high < ours.upper(0.05)


def test_bounds_for_every_look_lie_as_far_out_as_the_normal_mixture_says() -> None:
    draw = random.Random(5)
    ours = found([(j, draw.choice((-1, 0, 0, 1))) for j in range(200) for _ in range(20)])
    k = multiplier(ours.units, 0.05)
    assert 2.78 <= k <= 3.1
    by_blocks = float(t(ours.blocks - 1).isf(norm.sf(k))) * ours.error
    assert by_blocks <= ours.mean - ours.lower(0.05) <= 1.05 * by_blocks


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


def test_outcomes_that_never_differ_still_leave_a_few_in_n() -> None:
    result = found([(i, 0) for i in range(1000)])
    assert result.error == 0.0
    reach = multiplier(result.units, 0.05) ** 2 / 2
    assert 3.8 < reach < 4.7
    assert result.lower(0.05) == pytest.approx(math.expm1(-reach / 1000))
    assert result.upper(0.05) == pytest.approx(-math.expm1(-reach / 1000))


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


@pytest.mark.parametrize("seconds", [100, 1000])
def test_far_out_a_single_look_at_a_short_run_knows_its_variance_no_better(seconds: int) -> None:
    draw, alpha = random.Random(3), 0.025 / 4
    ours = found([(i, draw.choice((-1, 1))) for i in range(seconds) for _ in range(2)])
    freedom = min(ours.blocks - 1, SHORT_FREEDOM) if seconds == 100 else ours.blocks - 1
    low, high = ours.once(alpha)
    reach = math.sqrt(ours.caution) * ours.error * float(t(freedom).isf(alpha))
    assert (low, high) == pytest.approx((ours.mean - reach, ours.mean + reach), rel=0.02)


def waves(pairs: int, length: int) -> list[tuple[int, int]]:
    """Two pairs a second; how often one is won changes every `length` pairs."""
    draw = random.Random(5)
    shares = [draw.random() for _ in range(pairs // length + 1)]
    return [(i // 2, int(draw.random() < shares[i // length])) for i in range(pairs)]


@pytest.mark.parametrize(
    ("pairs", "freedom"),
    [
        (waves(200, 1), SHORT_FREEDOM),  # as many as there are blocks of 20
        (waves(460, 1), 23),
        (waves(200, 30), LEAST_FREEDOM),  # the noise is as long as the blocks
    ],
)
def test_degrees_of_freedom_are_parts_that_do_not_correlate(pairs: list[tuple[int, int]], freedom: float) -> None:
    assert found(pairs).freedom == pytest.approx(freedom)


def test_where_noise_is_known_a_large_loss_is_sooner_beyond_chance_than_ten_degrees_of_freedom_say() -> None:
    alpha = 0.01 / 4
    ours = found(waves(560, 10))
    assert ours.caution > 1
    assert SHORT_FREEDOM < ours.freedom < ours.blocks - 1
    ten = msgspec.structs.replace(ours, freedom=SHORT_FREEDOM)
    assert ten.lower(alpha) < ours.lower(alpha) - 0.02
    assert ten.lower(USUAL_ALPHA) == ours.lower(USUAL_ALPHA)


def test_a_single_rare_loss_is_wider_than_by_blocks() -> None:
    result = found([(i, -1 if i == 17 else 0) for i in range(1000)])
    assert result.lower(0.05) < result.mean - 3.3 * result.error


@pytest.mark.parametrize(
    ("seconds", "per_second", "blocks", "length"),
    [
        (40, 20, 40, 1),  # already long enough
        (600, 2, 60, 10),
        (90, 10, 45, 2),
        (170, 1, 19, 9),  # 20 pairs a block would leave 9 blocks: the longest that leave 18
        (16, 5, 16, 1),  # nor that: the longest that leave 15
        (10, 50, 10, 1),  # never 15 blocks: the finest there is
    ],
)
def test_the_block_length_is_the_documented_one(seconds: int, per_second: int, blocks: int, length: int) -> None:
    result = found([(i, 0) for i in range(seconds) for _ in range(per_second)])
    assert result.block_s == length
    assert abs(result.blocks - blocks) <= 1
    assert (result.caution == 1.0) == (blocks >= FULL_BLOCKS and per_second * length >= PAIRS_PER_BLOCK)


@given(st.integers(1, 400), st.integers(1, 30))
def test_blocks_are_long_enough_or_taken_with_caution(seconds: int, per_second: int) -> None:
    result = found([(i, i % 2) for i in range(seconds) for _ in range(per_second)])
    assert result.blocks >= min(seconds, MIN_BLOCKS)
    if result.caution == 1.0:
        assert result.pairs >= PAIRS_PER_BLOCK * result.blocks
    else:
        assert result.caution >= CAUTION
        assert result.blocks >= min(seconds, FEW_BLOCKS) or result.blocks >= MIN_BLOCKS or seconds < MIN_BLOCKS


def test_load_that_changes_slowly_makes_blocks_longer() -> None:
    draw = random.Random(8)
    waves = [(i, int(draw.random() < 0.5 + 0.4 * math.sin(i / 30))) for i in range(3000) for _ in range(5)]
    still = [(i, int(draw.random() < 0.5)) for i in range(3000) for _ in range(5)]
    calm, rough = found(still), found(waves)
    assert rough.block_s > 3 * calm.block_s
    assert rough.lower(0.05) < calm.lower(0.05)


def test_the_controls_load_makes_blocks_longer_too() -> None:
    draw = random.Random(8)
    waves = series([(i, int(draw.random() < 0.5 + 0.4 * math.sin(i / 30))) for i in range(3000) for _ in range(5)])
    still = series([(i, int(draw.random() < 0.5)) for i in range(3000) for _ in range(5)])
    alone, beside = estimate(still), estimate(still, beside=[waves])
    assert alone is not None
    assert beside is not None
    assert beside.block_s > 3 * alone.block_s
    assert estimate(still, beside=[BlockSeries()]) == alone


@given(pair_lists, pair_lists, st.randoms())
def test_neither_replicas_nor_the_order_of_pairs_matter(
    ours: list[tuple[int, int]], theirs: list[tuple[int, int]], draw: random.Random
) -> None:
    mixed = [*ours, *theirs]
    draw.shuffle(mixed)
    assert estimate(series(ours).merged(series(theirs))) == estimate(series(mixed))
    assert estimate(series(theirs).merged(series(ours))) == estimate(series(mixed))


@given(pair_lists.filter(bool), st.data())
def test_a_pair_lost_instead_of_won_never_raises_the_mean(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(pairs) - 1))
    worse = [*pairs[:index], (pairs[index][0], -1), *pairs[index + 1 :]]
    assert found(worse).mean <= found(pairs).mean


def test_few_blocks_decide_nothing() -> None:
    short = found([(i, 1) for i in range(MIN_BLOCKS - 1) for _ in range(100)])
    assert not short.decidable
    assert found([(i, 1) for i in range(MIN_BLOCKS) for _ in range(100)]).decidable
    single = found([(0, 1)])
    assert (single.lower(0.05), single.upper(0.05)) == (-1.0, 1.0)


@pytest.mark.parametrize(("phi", "share"), [(0.0, 0.0), (0.9, 0.3), (0.98, 0.3)])
def test_a_bound_looked_at_after_every_block_is_rarely_false(phi: float, share: float) -> None:
    """Equal arms under AR(1) load of each arm's own, looked at from 200 pairs on after every 40: at most 5 %."""
    draw, wrong, runs = random.Random(11), 0, 200
    for _ in range(runs):
        loads = [draw.gauss(0, 1), draw.gauss(0, 1)]
        known = BlockSeries()
        for i in range(1200):
            loads = [phi * load + math.sqrt(1 - phi * phi) * draw.gauss(0, 1) for load in loads]
            within = [math.sqrt(share) * load + math.sqrt(1 - share) * draw.gauss(0, 1) < 0 for load in loads]
            known.add(i // 2, int(within[0]) - int(within[1]))
            if i >= 199 and i % 40 == 39:
                result = estimate(known)
                assert result is not None
                if result.decidable and result.mean > 0 and result.lower(0.05) > 0:
                    wrong += 1
                    break
    assert binomtest(wrong, runs, 0.05, alternative="greater").pvalue > 0.01


@pytest.mark.parametrize(("pairs", "seconds"), [(140, 30), (137, 75)])
def test_half_a_minute_is_enough_for_a_large_effect(pairs: int, seconds: int) -> None:
    """A candidate three to four times as fast at p50, and shares without a loss against a margin of 5 points."""
    draw, decided, runs = random.Random(13), 0, 300
    for _ in range(runs):
        times = [draw.random() * seconds for _ in range(pairs)]
        result = found([(int(at), int(draw.random() < 0.99) - int(draw.random() < 0.5)) for at in times])
        equal = found([(int(at), 0) for at in times])
        decided += result.decidable and result.lower(0.05) > 0 and equal.lower(0.05) > -0.05
    assert decided >= 0.98 * runs
