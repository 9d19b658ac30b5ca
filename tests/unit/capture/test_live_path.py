"""Envoy's buckets become our bins without losing a value, and customers who leave are no error."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.capture.live_path import Bucket, first_byte_histogram, trouble
from shadowrun_mirror.histogram import GAMMA, Histogram

pytestmark = pytest.mark.path


def envoy_bucket(exponent: int, mantissa: int, count: int) -> Bucket:
    """A bucket of Envoy's scheme: two decimal digits of a number of microseconds."""
    return Bucket(mantissa / 10 * 10.0**exponent, 10.0**exponent / 10, count)


buckets = st.lists(
    st.builds(envoy_bucket, st.integers(0, 9), st.integers(10, 99), st.integers(1, 10**6)),
    max_size=40,
    unique_by=lambda each: each.lower_bound,
)


@given(buckets)
def test_no_value_is_lost_and_none_leaves_its_bucket(held: list[Bucket]) -> None:
    histogram = first_byte_histogram(held)
    assert histogram.count == sum(each.count for each in held)
    assert histogram.failed == 0
    assert all(count > 0 for count in histogram.bins.values())
    for index in histogram.bins:
        low, high = GAMMA ** (index - 1) * 1e6, GAMMA**index * 1e6
        assert any(low < (each.lower_bound + each.width) * 1.0001 and each.lower_bound < high * 1.0001 for each in held)
    assert histogram.total == pytest.approx(
        sum(each.count * (each.lower_bound + each.width / 2) for each in held) / 1e6
    )


@given(st.integers(0, 9), st.integers(10, 99), st.integers(100, 10**6))
def test_a_bucket_is_spread_evenly_over_the_bins_it_covers(exponent: int, mantissa: int, count: int) -> None:
    bucket = envoy_bucket(exponent, mantissa, count)
    median = first_byte_histogram([bucket]).quantile(0.5)
    assert median == pytest.approx((bucket.lower_bound + bucket.width / 2) / 1e6, rel=0.03)


def test_the_bins_are_those_of_our_own_histogram() -> None:
    mine = Histogram()
    mine.add(0.1005)
    assert first_byte_histogram([Bucket(100_500, 1, 1)]).bins == mine.bins
    zero = Histogram()
    zero.add(0.0)
    assert first_byte_histogram([Bucket(0, 0, 1)]).bins == zero.bins
    assert math.isnan(first_byte_histogram([]).quantile(0.5))


@pytest.mark.parametrize(
    ("status", "flags", "unanswered", "error"),
    [
        ("0", "DC", True, False),
        ("0", "UC", True, True),
        ("0", "-", True, True),
        ("500", "-", False, True),
        ("503", "DC", False, True),
        ("200", "UC", False, True),
    ],
)
def test_what_counts_as_an_error(status: str, flags: str, unanswered: bool, error: bool) -> None:
    ended = trouble(status, flags, 3)
    assert (ended.unanswered, ended.is_error, ended.count) == (unanswered, error, 3)
