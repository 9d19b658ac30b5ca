"""Histograms of latencies: exact merge, bounded error, failures kept."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.histogram import GAMMA, Histogram

from tests.unit.evidence.evidences import histograms, seconds

pytestmark = pytest.mark.verdict


@given(histograms(), histograms(), histograms())
def test_merging_is_associative_and_commutative(a: Histogram, b: Histogram, c: Histogram) -> None:
    assert a.merged(b) == b.merged(a)
    assert a.merged(b).merged(c) == a.merged(b.merged(c))


@given(st.lists(seconds, max_size=20), st.lists(seconds, max_size=20))
def test_two_replicas_together_are_one_that_saw_everything(first: list[float], second: list[float]) -> None:
    one, two, both = Histogram(), Histogram(), Histogram()
    for value in first:
        one.add(value)
    for value in second:
        two.add(value)
    for value in first + second:
        both.add(value)
    assert one.merged(two) == both


@given(histograms())
def test_merging_leaves_both_sides_as_they_were(a: Histogram) -> None:
    before = dict(a.bins), a.failed, a.total
    a.merged(Histogram(bins={1: 1})).add(1.0)
    assert before == (a.bins, a.failed, a.total)


@given(st.lists(st.floats(1e-6, 1e5), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_quantile_is_the_true_one_to_within_a_bin(values: list[float], p: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = sorted(values)[math.ceil(p * len(values)) - 1]
    assert exact * (1 - 1e-9) <= histogram.quantile(p) <= exact * GAMMA * (1 + 1e-9)


@given(st.floats(1e-6, 1e5))
def test_a_value_is_within_the_edge_of_its_own_bin(value: float) -> None:
    histogram = Histogram()
    histogram.add(value)
    assert histogram.share_at_most(histogram.quantile(1.0)) == 1.0


def test_failures_are_the_slowest_and_never_left_out() -> None:
    histogram = Histogram()
    for value in (1.0, 1.0, math.inf, math.inf):
        histogram.add(value)
    assert (histogram.count, histogram.quantile(0.5), histogram.quantile(0.51)) == (4, 1.0, math.inf)
    assert histogram.share_at_most(1e9) == 0.5


def test_an_empty_histogram_has_no_quantile() -> None:
    assert math.isnan(Histogram().quantile(0.5))
    assert math.isnan(Histogram().share_at_most(1.0))
