"""The generator's arrivals have the shape that was fitted, whatever rate is asked for."""

import itertools
import random
from statistics import fmean, pvariance

import pytest

from examples.traffic.arrivals import (
    GAMMA_SHAPE,
    MEAN_TURNS,
    PROMPT_QUANTILES,
    SLOT_S,
    Shape,
    arrival_times,
    poisson,
    prompt_tokens,
    stratified,
    turns,
)

pytestmark = pytest.mark.surfaces

SLOTS = 20_000


def counts(shape: Shape, seed: int) -> list[int]:
    """Arrivals per slot over SLOTS slots."""
    found = [0] * SLOTS
    times = arrival_times(shape, random.Random(seed))
    for at in itertools.takewhile(lambda at: at < SLOTS * SLOT_S, times):
        found[int(at // SLOT_S)] += 1
    return found


def dispersion(numbers: list[int]) -> float:
    return pvariance(numbers) / fmean(numbers)


def test_at_the_traces_own_rate_mean_and_dispersion_are_those_of_the_trace() -> None:
    found = counts(Shape(rate=10.20 / SLOT_S), seed=1)
    assert fmean(found) == pytest.approx(10.20, rel=0.03)
    assert dispersion(found) == pytest.approx(5.79, rel=0.06)


def test_a_slower_site_is_bursty_to_the_degree_that_thinning_leaves() -> None:
    found = counts(Shape(rate=1.0), seed=2)
    assert fmean(found) == pytest.approx(3.0, rel=0.03)
    assert dispersion(found) == pytest.approx(1 + 3.0 / GAMMA_SHAPE, rel=0.06)


def test_without_burstiness_it_is_a_poisson_process() -> None:
    assert dispersion(counts(Shape(rate=1.0, burstiness=0), seed=3)) == pytest.approx(1.0, rel=0.05)


def test_arrivals_never_go_back_in_time() -> None:
    times = list(itertools.islice(arrival_times(Shape(rate=3.0), random.Random(4)), 5_000))
    assert times == sorted(times)


def test_the_same_seed_gives_the_same_arrivals_and_another_one_others() -> None:
    def first(seed: int) -> list[float]:
        return list(itertools.islice(arrival_times(Shape(rate=2.0), random.Random(seed)), 50))

    assert first(5) == first(5)
    assert first(5) != first(6)


def test_poisson_numbers_have_equal_mean_and_variance() -> None:
    source = random.Random(7)
    found = [poisson(4.0, source) for _ in range(20_000)]
    assert fmean(found) == pytest.approx(4.0, rel=0.03)
    assert pvariance(found) == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize(("p", "tokens"), PROMPT_QUANTILES[1:-1])
def test_prompt_lengths_have_the_quantiles_of_the_trace(p: float, tokens: int) -> None:
    assert prompt_tokens(Shape(rate=1.0), p) == tokens


def test_prompt_lengths_are_scaled_first_and_clipped_then() -> None:
    shape = Shape(rate=1.0, scale=0.04, shortest=120, longest=450)
    found = {prompt_tokens(shape, p) for p in itertools.islice(stratified(random.Random(9)), 2_000)}
    assert min(found) == 120
    assert max(found) == 450
    assert len(found) > 100


def test_what_is_no_quantile_has_no_length() -> None:
    with pytest.raises(ValueError, match="no quantile"):
        prompt_tokens(Shape(rate=1.0), 1.1)


def test_every_eight_lengths_in_a_row_come_from_every_eighth_and_each_is_uniform() -> None:
    drawn = list(itertools.islice(stratified(random.Random(11)), 8_000))
    for start in range(0, len(drawn), 8):
        assert sorted(int(p * 8) for p in drawn[start : start + 8]) == list(range(8))
    assert fmean(drawn[::8]) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("mean", [1.0, MEAN_TURNS, 6.0])
def test_conversations_have_the_turns_asked_for_on_average(mean: float) -> None:
    source = random.Random(10)
    found = [turns(Shape(rate=1.0, mean_turns=mean), source) for _ in range(20_000)]
    assert min(found) == 1
    assert fmean(found) == pytest.approx(mean, rel=0.04)
