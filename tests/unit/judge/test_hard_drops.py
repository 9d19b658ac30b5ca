"""DroppedHardRequests at every look: found early, not by chance, and not by one wave of failures.

What matters and may be chance is no Fail, but no Pass either.
"""

import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.config import Indicator
from shadowrun_mirror.evidence import Amount
from shadowrun_operator.judge.hard_drops import HARD_BLOCKS, MOST_BLOCKS, block_level, scores
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


def failing(times: Iterable[int], size: int = 3000) -> BlockSeries:
    found = BlockSeries()
    for at in times:
        found.add(at, size, 1)
    return found


def is_shown(failed: BlockSeries, seconds: Iterable[int], ended: Amount = ENDED) -> bool:
    """By the product, where a pair was counted in each of these seconds."""
    counted = BlockSeries()
    for at in seconds:
        counted.add(at, 0)
    return scores(failed, ended, block_level([counted, failed])).are_beyond_chance


@pytest.mark.parametrize("count", [50, 500])
def test_failures_of_one_wave_count_as_one_however_many_they_are(count: int) -> None:
    wave = failing(3000 + i * 60 // count for i in range(count))
    assert not is_shown(wave, range(7200))
    spread = failing(i * 7200 // count for i in range(count))
    assert is_shown(spread, range(7200))


def test_a_wave_is_one_where_few_other_pairs_were_counted_too() -> None:
    wave = failing(range(3000, 3060))
    assert not is_shown(wave, range(0, 7200, 120))


def test_hours_without_pairs_are_no_part_of_the_run() -> None:
    window = [day * 86_400 + second for day in range(5) for second in range(3600)]
    failed = failing(day * 86_400 + at for day in range(5) for at in range(300, 3600, 300))
    assert is_shown(failed, window)
    assert block_level([failing(window)]) == block_level([failing(range(5 * 3600))])
    once_a_day = failing(day * 86_400 + at for day in range(5) for at in range(11))
    assert not is_shown(once_a_day, window)


def test_a_baseline_that_fails_as_much_is_no_worse_and_no_better() -> None:
    both = failing(100 * i for i in range(60))
    for i in range(60):
        both.add(100 * i + 50, 3000, -1)
    assert not is_shown(both, range(6000))


def test_failures_of_mean_length_single_nothing_out() -> None:
    assert not is_shown(failing((100 * i for i in range(60)), size=1000), range(6000))
    assert is_shown(failing((100 * i for i in range(60)), size=1001), range(6000))


def test_one_huge_request_is_not_many() -> None:
    some = failing((100 * i for i in range(60)), size=990)
    some.add(50, 10**9, 1)
    assert not is_shown(some, range(6000))


def test_few_blocks_say_nothing_and_none_no_more() -> None:
    assert not is_shown(failing(range(HARD_BLOCKS - 1)), range(40))
    assert is_shown(failing(range(HARD_BLOCKS + 4)), range(40))
    assert not is_shown(BlockSeries(), range(40))
    assert not is_shown(failing([1]), [], Amount())


def day(failed_at: Iterable[int], *, size: int = 80_000, baseline_too: bool = False) -> Recorder:
    """24 hours, a pair of 4 kB in 9 s; and at these seconds one of `size` bytes that the candidate fails."""
    draw, recorder = random.Random(7), Recorder()
    recorder.indicators = (Indicator(criterion="slo", metric="WithinSLO"),)
    times = [(at, 4000, False) for at in range(0, 86_400, 9)] + [(at, size, True) for at in failed_at]
    for at, length, failed in sorted(times):
        seconds = 0.5 * math.exp(draw.gauss(0, 0.3))
        ttft = {
            "baseline": math.inf if failed and baseline_too else seconds,
            "candidate": math.inf if failed else seconds,
        }
        recorder.pair(1, 1_000_000 + at, ttft, size=length)
    return recorder


NIGHT = range(7200, 14_400, 180)  # 40 of 9,640 requests, 8 % of the tokens
BURST = [50_000 + i for i in range(100)] + [4000 * i + at for i in range(20) for at in (0, 1)]
KEPT = Rules(criteria=(Criterion(name="slo", metric="WithinSLO", require="NotWorse", margin=0.1),))


@pytest.mark.parametrize("failed_at", [NIGHT, BURST], ids=["a nightly batch", "a burst and a few"])
def test_what_matters_and_may_be_chance_forbids_a_pass(failed_at: Iterable[int]) -> None:
    report = judged(day(failed_at), KEPT)
    assert report.criteria[0].outcome == "Pass"
    assert (report.verdict, report.reason) == ("Inconclusive", "LongRequestsFailed")
    assert "of the tokens" in report.message
    assert "Whether that is chance can't be told" in report.message


def test_the_same_spread_over_the_day_is_a_fail() -> None:
    assert judged(day(range(1000, 86_400, 2000)), KEPT).reason == "DroppedHardRequests"


@pytest.mark.parametrize(
    "recorder",
    [day([]), day(NIGHT[:9]), day(NIGHT, size=4000), day(NIGHT, baseline_too=True), day(NIGHT, size=40_000)],
    ids=["nothing failed", "too few", "of usual length", "both arms alike", "few of the tokens"],
)
def test_what_does_not_matter_passes(recorder: Recorder) -> None:
    assert judged(recorder, KEPT).verdict == "Pass"


@given(st.integers(HARD_BLOCKS, 4 * MOST_BLOCKS), st.sampled_from([0.05, 0.01, 0.0005]))
def test_what_is_asked_can_be_met_and_rises_with_the_level(blocks: int, alpha: float) -> None:
    assert 1 < least_score(blocks, alpha) < math.sqrt(blocks)
    assert least_score(blocks, alpha) < least_score(blocks, alpha / 2)
