"""DroppedHardRequests at every look: found early, not by chance, and not by one wave of failures."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.evidence import Amount
from shadowrun_operator.judge.hard_drops import HARD_BLOCKS, MOST_BLOCKS, is_beyond_chance
from shadowrun_operator.judge.rules import Criterion, Rules
from shadowrun_operator.judge.sequence import least_score

from tests.unit.judge.synthetic import Recorder, judged
from tests.unit.judge.test_survivors import conversations

pytestmark = pytest.mark.verdict

RULES = Rules(criteria=(Criterion(name="slo", metric="WithinSLO", require="NotWorse", margin=0.5),))


def run(seconds: int, per_second: int, lost: "random.Random | None" = None, *, names: int = 1) -> Recorder:
    """The candidate fails the longest tenth; or, given a generator, any tenth of the requests."""
    draw, recorder = random.Random(31), Recorder()
    tokens = conversations(draw, seconds * per_second)
    longest = sorted(tokens)[int(0.9 * len(tokens))]
    for i, length in enumerate(tokens):
        failed = length >= longest if lost is None else lost.random() < 0.1
        ttft = {"baseline": 0.5, "candidate": math.inf if failed else 0.5}
        recorder.pair(1, 7000 + i // per_second, ttft, size=4 * length, name=f"class-{i % names}")
    return recorder


def is_found(recorder: Recorder) -> bool:
    return "DroppedHardRequests" in [f.reason for f in judged(recorder, RULES).findings]


@pytest.mark.parametrize(("seconds", "names"), [(35, 1), (35, 2), (600, 1)])
def test_the_longest_tenth_is_missed_within_half_a_minute_and_later(seconds: int, names: int) -> None:
    assert is_found(run(seconds, 8, names=names))


@pytest.mark.parametrize("seed", range(5))
def test_any_tenth_is_no_dropping_of_the_hard_ones(seed: int) -> None:
    assert not is_found(run(120, 8, random.Random(seed)))


ENDED = Amount(requests=4000, bytes=4000 * 1000)


def failing(times: list[int], size: int = 3000) -> BlockSeries:
    found = BlockSeries()
    for at in times:
        found.add(at, size, 1)
    return found


@pytest.mark.parametrize("count", [50, 500])
def test_failures_of_one_wave_count_as_one_however_many_they_are(count: int) -> None:
    wave = failing([3000 + i * 60 // count for i in range(count)])
    assert not is_beyond_chance(wave, ENDED, 7200.0)
    spread = failing([i * 7200 // count for i in range(count)])
    assert is_beyond_chance(spread, ENDED, 7200.0)


def test_a_baseline_that_fails_as_much_is_no_worse_and_no_better() -> None:
    both = failing([100 * i for i in range(60)])
    for i in range(60):
        both.add(100 * i + 50, 3000, -1)
    assert not is_beyond_chance(both, ENDED, 6000.0)


def test_failures_of_mean_length_single_nothing_out() -> None:
    assert not is_beyond_chance(failing([100 * i for i in range(60)], size=1000), ENDED, 6000.0)
    assert is_beyond_chance(failing([100 * i for i in range(60)], size=1001), ENDED, 6000.0)


def test_one_huge_request_is_not_many() -> None:
    some = failing([100 * i for i in range(60)], size=990)
    some.add(50, 10**9, 1)
    assert not is_beyond_chance(some, ENDED, 6000.0)


def test_few_blocks_say_nothing_and_none_no_more() -> None:
    assert not is_beyond_chance(failing(list(range(HARD_BLOCKS - 1))), ENDED, 40.0)
    assert is_beyond_chance(failing(list(range(HARD_BLOCKS + 4))), ENDED, 40.0)
    assert not is_beyond_chance(BlockSeries(), ENDED, 40.0)
    assert not is_beyond_chance(failing([1]), Amount(), 0.0)


@given(st.integers(HARD_BLOCKS, 4 * MOST_BLOCKS), st.sampled_from([0.05, 0.01, 0.0005]))
def test_what_is_asked_can_be_met_and_rises_with_the_level(blocks: int, alpha: float) -> None:
    assert 1 < least_score(blocks, alpha) < math.sqrt(blocks)
    assert least_score(blocks, alpha) < least_score(blocks, alpha / 2)
