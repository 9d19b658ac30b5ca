"""Criteria that weigh pairs by the tokens of their prompts: bounded, exact, and judged like any other."""

import math
import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shadowrun_mirror.blocks import STEPS, BlockSeries, weight_of
from shadowrun_mirror.config import Indicator, encode
from shadowrun_mirror.evidence import Amount
from shadowrun_operator.judge.interval import Estimate, estimate
from shadowrun_operator.judge.plan import Traffic, needed_pairs
from shadowrun_operator.judge.report import Report, decode_report
from shadowrun_operator.judge.rules import Criterion, Rules
from shadowrun_operator.judge.thresholds import HEAVIEST, indicators, shortfalls
from shadowrun_operator.judge.verdict import judged_again

from tests.unit.evidence.evidences import series
from tests.unit.judge.synthetic import Recorder, judged, lognormal

pytestmark = pytest.mark.verdict

REQUESTS = Criterion(name="slo", metric="WithinSLO", require="NotWorse", margin=0.05)
TOKENS = msgspec.structs.replace(REQUESTS, name="slo-tokens", weight="Tokens")
NO_ERRORS = Criterion(name="errors", metric="Failures", require="NotWorse", margin=0.05, weight="Tokens")
FASTER = Criterion(name="faster", metric="TTFT", quantile=0.5, require="Better", weight="Tokens")
NOT_SLOWER = Criterion(name="not-slower", metric="TTFT", quantile=0.5, require="NotWorse", margin=0.1, weight="Tokens")

Answer = Callable[[random.Random, float, int], float]
weighed_pairs = st.lists(
    st.tuples(st.integers(0, 3000), st.sampled_from((-1, 0, 1)), st.integers(1, STEPS)), min_size=1, max_size=60
)


def weighed(pairs: list[tuple[int, int, int]]) -> BlockSeries:
    found = BlockSeries()
    for at, z, weight in pairs:
        found.add_weighed(at, z, weight, 0)
    return found


def found(known: BlockSeries) -> Estimate:
    result = estimate(known)
    assert result is not None
    return result


def run(rules: Rules, candidate: Answer, control: Answer | None = None, pairs: int = 1200) -> Recorder:
    """Prompts of 1 to 40 kB. A time to first token knows nothing of its prompt unless an arm makes it so."""
    draw, recorder = random.Random(3), Recorder()
    for number, count in ((0, 400), (1, pairs)):
        recorder.indicators = indicators(rules, recorder.windows[0]) if number else ()
        for i in range(count):
            size, baseline = int(1000 * 40 ** draw.random()), lognormal(draw)
            ttft = {"baseline": baseline, "candidate": candidate(draw, baseline, size)}
            if control is not None:
                ttft["control"] = control(draw, baseline, size)
            recorder.pair(number, 1_000_000 + i // 2, ttft, size=size)
    return recorder


def same(_draw: random.Random, baseline: float, _size: int) -> float:
    return baseline


def faster(_draw: random.Random, baseline: float, _size: int) -> float:
    return 0.6 * baseline


def slow_when_long(_draw: random.Random, baseline: float, size: int) -> float:
    return 9.0 if size > 36_000 else baseline  # 3 % of the requests, 10 % of the bytes


def failing_when_long(_draw: random.Random, baseline: float, size: int) -> float:
    return math.inf if size > 36_000 else baseline


def again(report: Report) -> Report:
    stored = decode_report(encode(report))
    assert stored == report
    assert judged_again(stored) == report
    return report


@pytest.mark.parametrize("criterion", [TOKENS, NO_ERRORS, NOT_SLOWER])
def test_an_equal_candidate_is_not_worse_in_tokens(criterion: Criterion) -> None:
    rules = Rules(criteria=(criterion,))
    assert again(judged(run(rules, same), rules)).verdict == "Pass"


def test_few_long_requests_are_few_requests_and_many_tokens() -> None:
    rules = Rules(
        criteria=(msgspec.structs.replace(REQUESTS, margin=0.06), msgspec.structs.replace(TOKENS, margin=0.06))
    )
    report = again(judged(run(rules, slow_when_long, pairs=4000), rules))
    by_requests, by_tokens = report.criteria
    assert (by_requests.outcome, by_tokens.outcome) == ("Pass", "Fail")
    assert by_tokens.difference == pytest.approx(-0.10, abs=0.02)
    assert by_tokens.candidate == pytest.approx((by_tokens.baseline or 0) - 0.10, abs=0.02)
    assert "by prompt tokens" in report.message
    assert "share within the SLO by tokens" in report.message


def test_failures_of_long_requests_count_by_their_tokens() -> None:
    rules = Rules(criteria=(NO_ERRORS,))
    (result,) = judged(run(rules, failing_when_long, pairs=4000), rules).criteria
    assert result.outcome == "Fail"
    assert result.difference == pytest.approx(-0.10, abs=0.02)


def test_a_faster_candidate_is_better_in_tokens_too() -> None:
    rules = Rules(criteria=(FASTER,))
    assert again(judged(run(rules, faster), rules)).verdict == "Pass"


@pytest.mark.parametrize(
    ("criterion", "control", "noisy"),
    [
        (NOT_SLOWER, same, False),
        (NOT_SLOWER, faster, True),
        (TOKENS, same, False),
        (TOKENS, slow_when_long, True),
    ],
)
def test_the_control_is_held_to_what_an_equal_arm_would_show(
    criterion: Criterion, control: Answer, noisy: bool
) -> None:
    rules = Rules(criteria=(criterion,), control="control")
    reasons = [f.reason for f in judged(run(rules, same, control), rules).findings]
    assert ("NoisyBaseline" in reasons) == noisy


def test_the_heaviest_request_is_a_multiple_of_the_mean_of_the_warm_up() -> None:
    rules = Rules(criteria=(TOKENS, REQUESTS))
    recorder = run(rules, same, pairs=0)
    heavy, plain = indicators(rules, recorder.windows[0])
    warm = recorder.windows[0].classes["default"].admitted
    assert heavy.heaviest == math.ceil(HEAVIEST * warm.bytes / warm.requests)
    assert (heavy.weight, plain.weight, plain.heaviest) == ("Tokens", "Requests", None)


def test_without_a_warm_up_there_is_no_weight_and_so_no_outcome() -> None:
    rules = Rules(criteria=(TOKENS,), warm_up_requests=0)
    recorder = run(rules, same)
    assert [(s.what, s.need) for s in shortfalls(rules, Recorder().windows[0])] == [("pairs", 20)]
    recorder.indicators = indicators(rules)
    report = judged(recorder, rules)
    assert (report.verdict, report.reason) == ("Inconclusive", "NoThreshold")


@given(st.integers(1, STEPS), st.integers(0, 9))
def test_equal_weights_change_neither_mean_nor_error(weight: int, seed: int) -> None:
    draw = random.Random(seed)
    pairs = [(i // 2, draw.choice((-1, 0, 0, 1))) for i in range(900)]
    plain, heavy = found(series(pairs)), found(weighed([(at, z, weight) for at, z in pairs]))
    assert (heavy.pairs, heavy.blocks, heavy.block_s, heavy.full) == (
        plain.pairs,
        plain.blocks,
        plain.block_s,
        plain.full,
    )
    assert heavy.mean == pytest.approx(plain.mean)
    assert heavy.error == pytest.approx(plain.error)
    assert heavy.lower(0.05) <= plain.lower(0.05) + 1e-9
    if weight >= STEPS // HEAVIEST:  # as the mean of the warm-up, or more: many differ, and the two bounds agree
        assert heavy.lower(0.05) == pytest.approx(plain.lower(0.05), abs=0.005)


def test_outcomes_that_never_differ_count_as_fewer_heavy_requests() -> None:
    light = found(weighed([(i, 0, STEPS // 5) for i in range(1000)]))
    heavy = found(series([(i, 0) for i in range(200)]))
    assert light.trials == heavy.trials == 200
    assert -0.025 < light.lower(0.05) < -0.018


@pytest.mark.parametrize("z", [-1, 1])
def test_one_huge_request_carries_no_verdict(z: int) -> None:
    """Whatever its size it weighs as much as the heaviest; among much lighter ones that decides nothing."""
    pairs = [(i, 0, 1) for i in range(600)]
    pairs[300] = (300, z, STEPS)
    result = found(weighed(pairs))
    assert abs(result.mean) > 0.6
    assert result.lower(0.05) < -0.5
    assert result.upper(0.01) > 0.5


@given(weighed_pairs, st.data())
def test_a_pair_lost_instead_of_won_never_raises_the_mean(
    pairs: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(pairs) - 1))
    worse = [*pairs[:at], (pairs[at][0], -1, pairs[at][2]), *pairs[at + 1 :]]
    assert found(weighed(worse)).mean <= found(weighed(pairs)).mean


@given(weighed_pairs, weighed_pairs, st.randoms())
def test_neither_replicas_nor_the_order_of_pairs_matter(
    ours: list[tuple[int, int, int]], theirs: list[tuple[int, int, int]], draw: random.Random
) -> None:
    mixed = [*ours, *theirs]
    draw.shuffle(mixed)
    assert estimate(weighed(ours).merged(weighed(theirs))) == estimate(weighed(mixed))


@given(weighed_pairs)
def test_bounds_enclose_the_mean_and_widen_as_the_level_falls(pairs: list[tuple[int, int, int]]) -> None:
    result = found(weighed(pairs))
    assert -1 <= result.lower(0.01) <= result.lower(0.05) <= result.mean + 1e-9
    assert result.mean - 1e-9 <= result.upper(0.05) <= result.upper(0.01) <= 1


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 60), st.integers(0, 60))
def test_failing_more_long_requests_never_improves_a_verdict(few: int, more: int) -> None:
    rank = {"Fail": 0, "Inconclusive": 1, "Pass": 2}
    rules = Rules(criteria=(NO_ERRORS, TOKENS))

    def verdict(failed: int) -> int:
        draw, recorder = random.Random(5), Recorder()
        for number, count in ((0, 100), (1, 500)):
            recorder.indicators = indicators(rules, recorder.windows[0]) if number else ()
            for i in range(count):
                lost = number and i % 8 == 0 and i // 8 < failed
                ttft = {"baseline": 0.5, "candidate": math.inf if lost else 0.5}
                recorder.pair(number, i // 2, ttft, size=draw.randrange(1000, 40_000))
        return rank[judged(recorder, rules).verdict]

    assert verdict(max(few, more)) <= verdict(min(few, more))


def test_what_is_missing_counts_by_the_most_that_it_may_weigh() -> None:
    rules = Rules(criteria=(REQUESTS, TOKENS))
    recorder = run(rules, same)
    recorder.drop(1, "Shed", 20, size=100_000)
    by_requests, by_tokens = judged(recorder, rules).worst_cases
    assert by_requests.share == pytest.approx(20 / 1220)
    weight = recorder.windows[1].pairs["candidate"]["slo-tokens"].weight
    assert by_tokens.share == pytest.approx(20 * STEPS / (20 * STEPS + weight))
    assert by_tokens.low == pytest.approx(-by_tokens.share)


def shed(present: list[int], missing: list[int], mean: int, oversized: int = 0) -> Report:
    """A run by tokens without a difference, of pairs and of requests that were shed, both by their sizes in bytes."""
    rules, recorder = Rules(criteria=(TOKENS,)), Recorder()
    recorder.indicators = (Indicator(criterion=TOKENS.name, metric="WithinSLO", weight="Tokens", heaviest=5 * mean),)
    for i, size in enumerate(present):
        recorder.pair(1, i, {"baseline": 0.5, "candidate": 0.5}, size=size)
    for size in missing:
        recorder.drop(1, "Shed", 1, size=size)
    return judged(recorder, rules, oversized=Amount(requests=oversized, bytes=0))


def test_a_larger_share_of_the_weight_may_be_missing_than_of_requests_and_tokens() -> None:
    report = shed([65_000] * 10 + [258] * 970, [5000] * 20, 1000)
    assert report.worst_cases[0].share == pytest.approx(0.249, abs=0.001)
    assert (report.verdict, report.reason) == ("Inconclusive", "LowCoverage")
    assert "up to 24.9%" in report.message
    assert '"slo-tokens"' in report.message
    assert shed([1000] * 980, [1000] * 20, 1000).verdict == "Pass"


def test_requests_of_unknown_size_may_weigh_the_most() -> None:
    assert shed([1000] * 970, [], 1000, oversized=30).worst_cases[0].share == pytest.approx(30 / (30 + 0.2 * 970))


@given(st.lists(st.integers(1, 9000), min_size=1, max_size=30), st.lists(st.integers(1, 9000), max_size=30))
def test_no_more_of_the_weight_is_missing_than_is_said(present: list[int], missing: list[int]) -> None:
    gone, there = (sum(weight_of(size, 5000) for size in sizes) for sizes in (missing, present))
    assert shed(present, missing, 1000).worst_cases[0].share >= gone / (gone + there) - 1e-12


def test_a_plan_asks_for_more_pairs_where_they_weigh_by_tokens() -> None:
    by_requests = msgspec.structs.replace(NOT_SLOWER, weight="Requests")
    plain, heavy = (needed_pairs(c, Traffic(pairs_per_second=2.0), 0.05) for c in (by_requests, NOT_SLOWER))
    assert plain is not None
    assert heavy is not None
    assert heavy > 1.8 * plain
