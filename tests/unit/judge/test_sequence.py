"""The formulas the bounds are made of: oracle numbers, and what must hold for any input."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import norm, t
from shadowrun_operator.judge.autocorrelation import autocorrelation_time
from shadowrun_operator.judge.likelihood import distance, highest_mean
from shadowrun_operator.judge.sequence import SHARPEST_AT, multiplier, of_few

pytestmark = pytest.mark.verdict


@pytest.mark.parametrize(("blocks", "alpha", "k"), [(15, 0.05, 3.04), (60, 0.05, 2.78), (1000, 0.05, 3.06)])
def test_the_multiplier_has_the_documented_values(blocks: int, alpha: float, k: float) -> None:
    assert multiplier(blocks, alpha) == pytest.approx(k, abs=0.005)


def test_the_multiplier_is_the_papers_boundary() -> None:
    """The radius of a one-sided confidence sequence, written down as in the paper, over s / sqrt(t)."""
    alpha, blocks = 0.01, 40
    rho2 = (-2 * math.log(2 * alpha) + math.log(-2 * math.log(2 * alpha) + 1)) / SHARPEST_AT
    inner = (blocks * rho2 + 1) / (blocks**2 * rho2) * math.log(1 + math.sqrt(blocks * rho2 + 1) / (2 * alpha))
    assert multiplier(blocks, alpha) / math.sqrt(blocks) == pytest.approx(math.sqrt(2 * inner))


def test_the_multiplier_is_smallest_near_where_it_is_meant_to_be() -> None:
    found = minimize_scalar(lambda blocks: multiplier(blocks, 0.05), bounds=(5, 500), method="bounded")
    assert 40 < found.x < 90


def test_few_blocks_have_the_same_tail_of_students_t() -> None:
    assert t(14).sf(of_few(3.0, 14)) == pytest.approx(norm.sf(3.0))
    assert of_few(3.0, 14) > of_few(3.0, 100) > 3.0


counts = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 200))


@given(counts, st.floats(-0.99, 0.99))
def test_no_shares_with_that_mean_are_likelier_than_the_ones_taken(found: tuple[int, int, int], mean: float) -> None:
    won, lost, equal = found
    pairs = won + lost + equal
    lowest, highest = max(0.0, -mean), (1 - mean) / 2

    def deviance(q: float) -> float:
        shares = ((won, q + mean), (lost, q), (equal, 1 - 2 * q - mean))
        return 2 * sum(n * math.log(n / (pairs * s)) for n, s in shares if n)

    tried = [lowest + (highest - lowest) * step / 200 for step in range(1, 200)]
    assert distance(pairs, won, lost, mean) <= min(deviance(q) for q in tried) + 1e-6


@given(counts)
def test_the_mean_seen_is_at_no_distance(found: tuple[int, int, int]) -> None:
    won, lost, equal = found
    pairs = won + lost + equal
    assert distance(pairs, won, lost, (won - lost) / pairs) == pytest.approx(0.0, abs=1e-9)
    highest = highest_mean(pairs, won, lost, 4.0)
    assert highest == 1.0 or distance(pairs, won, lost, highest) == pytest.approx(4.0, rel=1e-3)


@given(counts)
def test_a_pair_lost_instead_of_equal_lowers_the_highest_mean(found: tuple[int, int, int]) -> None:
    won, lost, equal = found
    pairs = won + lost + equal
    assert highest_mean(pairs, won, lost + 1, 4.0) <= highest_mean(pairs, won, lost, 4.0) + 1e-6


@pytest.mark.parametrize(("phi", "time"), [(0.0, 1.0), (0.5, 3.0), (0.9, 19.0)])
def test_the_autocorrelation_time_is_that_of_an_autoregression(phi: float, time: float) -> None:
    """(1 + phi) / (1 - phi) for AR(1)."""
    draw, value, found = random.Random(3), 0.0, []
    for _ in range(60_000):
        value = phi * value + math.sqrt(1 - phi * phi) * draw.gauss(0, 1)
        found.append(value)
    assert autocorrelation_time(np.array(found)) == pytest.approx(time, rel=0.15)


@pytest.mark.parametrize("values", [[1.0] * 100, [1.0, 2.0, 1.0], [0.0, 1.0] * 50])
def test_without_memory_the_autocorrelation_time_is_one(values: list[float]) -> None:
    assert autocorrelation_time(np.array(values)) == 1.0
