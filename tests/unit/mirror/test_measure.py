import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.client import Exchange
from shadowrun_mirror.config import SLO, Indicator, Metric
from shadowrun_mirror.measure import (
    ArmResult,
    TokenSource,
    arm_result,
    comparable,
    is_within,
    pair_indicator,
    token_sources_differ,
)
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.shapes import Tokens
from shadowrun_mirror.stream import Answer

pytestmark = pytest.mark.mirror

SENT = Exchange(failure=None, written_at=10.0, whole=True)


def answer(
    first: float | None = 10.5,
    last: float = 12.5,
    chunks: int = 5,
    output: int | None = None,
    gap: float | None = None,
) -> Answer:
    tokens = None if output is None else Tokens(prompt=1, cached=0, output=output)
    return Answer(failure=None, first_at=first, last_at=last, gap=gap, chunks=chunks, tokens=tokens)


def test_latencies_follow_from_the_stamps() -> None:
    result = arm_result(SENT, answer(output=9), streamed=True, slo=SLO())
    assert (result.failure, result.ttft, result.tpot, result.e2e) == (None, 0.5, 0.25, 2.5)


def test_without_usage_content_events_are_the_count_and_usage_stays_out() -> None:
    result = arm_result(SENT, answer(chunks=5), streamed=True, slo=SLO())
    assert (result.tpot, result.tokens) == (0.5, None)


@pytest.mark.parametrize(
    ("output", "chunks", "first", "per_token", "source"),
    [
        (10, 5, 10.5, 0.25, TokenSource.USAGE),
        (10, 1, 10.5, 0.25, TokenSource.USAGE),  # bundled: no TPOT, but this
        (None, 5, 10.5, 0.5, TokenSource.EVENTS),
        (10, 0, None, 0.25, TokenSource.USAGE),
        (None, 0, None, None, TokenSource.NONE),  # buffered, and not told
        (0, 0, None, None, TokenSource.USAGE),  # an embedding
        (1, 1, 10.5, 2.5, TokenSource.USAGE),
        (1, 5, 10.5, 0.5, TokenSource.EVENTS),  # text in five events is no single token
        (0, 2, 10.5, 1.25, TokenSource.EVENTS),
        (2, 400, 10.5, 1.25, TokenSource.USAGE),  # a smaller count only makes it look slower
    ],
)
def test_time_per_token_is_the_whole_time_over_the_tokens_there_were(
    output: int | None, chunks: int, first: float | None, per_token: float | None, source: TokenSource
) -> None:
    result = arm_result(SENT, answer(first, chunks=chunks, output=output), streamed=first is not None, slo=SLO())
    assert (result.per_token, result.token_source) == (per_token, source)


def test_a_gap_is_handed_on_and_a_failed_answer_has_none() -> None:
    assert arm_result(SENT, answer(gap=1.5), streamed=True, slo=SLO()).gap == 1.5
    cut = Answer(failure=FailureReason.STREAM_CUT, first_at=10.5, last_at=12.5, gap=1.5, chunks=5)
    failed = arm_result(SENT, cut, streamed=True, slo=SLO())
    assert (failed.gap, failed.per_token) == (None, None)


@pytest.mark.parametrize("output", [0, 1])
def test_one_token_has_no_time_between_tokens(output: int) -> None:
    result = arm_result(SENT, answer(output=output, chunks=1), streamed=True, slo=SLO(tpot_s=0.0))
    assert result.tpot is None
    assert result.within_slo


@pytest.mark.parametrize("output", [0, 1])
def test_an_answer_said_to_be_one_token_does_not_escape_a_limit_that_its_stream_misses(output: int) -> None:
    indicator = Indicator(criterion="c", metric="TPOT", baseline_limit_s=1.0, challenger_limit_s=0.4)
    result = arm_result(SENT, answer(output=output, chunks=5), streamed=True, slo=SLO(tpot_s=0.4))
    assert (result.tpot, result.within_slo) == (0.5, False)
    assert result.tokens is not None
    assert (result.tokens.prompt, result.tokens.output) == (1, output)
    assert pair_indicator(indicator, arm_result(SENT, answer(), streamed=True, slo=SLO()), result) == -1
    assert token_sources_differ((result_of(1.0), result))  # so it is flagged, and says nothing beside a usage


@given(st.integers(2, 500), st.integers(2, 50), st.integers(2, 50))
def test_cutting_the_text_finer_makes_no_reported_answer_faster(output: int, chunks: int, more: int) -> None:
    results = [
        arm_result(SENT, answer(output=output, chunks=n), streamed=True, slo=SLO()) for n in (chunks, chunks + more)
    ]
    assert results[0] == results[1]


@given(st.integers(0, 50), st.none() | st.integers(0, 50))
def test_a_tpot_is_a_time_between_two_moments_or_nothing(chunks: int, output: int | None) -> None:
    """Tokens that all came in one event were not free: such an answer has no TPOT, and meets no limit on it."""
    read = answer(last=10.5 if chunks < 2 else 12.5, chunks=chunks, output=output)
    result = arm_result(SENT, read, streamed=True, slo=SLO(tpot_s=1000.0))
    count = chunks if output is None or output < 2 <= chunks else output
    assert (result.tpot is not None) == (count >= 2 and chunks >= 2)
    assert result.bundled == (count >= 2 and chunks < 2)
    assert result.within_slo == (not result.bundled)
    assert arm_result(SENT, read, streamed=True, slo=SLO(ttft_s=1.0)).within_slo


def test_a_bundled_answer_says_nothing_about_tpot_and_all_else() -> None:
    indicator = Indicator(criterion="c", metric="TPOT", baseline_limit_s=1.0, challenger_limit_s=1.0)
    bundled = arm_result(SENT, answer(last=10.5, chunks=1, output=9), streamed=True, slo=SLO())
    assert pair_indicator(indicator, result_of(9.0), bundled) is None
    assert (bundled.ttft, bundled.e2e) == (0.5, 0.5)


def test_a_buffered_answer_has_an_end_only() -> None:
    result = arm_result(SENT, answer(first=None), streamed=False, slo=SLO(ttft_s=0.0, e2e_s=2.5))
    assert (result.ttft, result.tpot, result.e2e, result.within_slo) == (None, None, 2.5, True)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("reason", list(FailureReason))
def test_a_failure_is_infinite_and_never_within_slo(reason: FailureReason, streamed: bool) -> None:
    for exchange, read in (
        (Exchange(failure=reason, written_at=10.0), Answer(failure=FailureReason.STREAM_CUT)),
        (Exchange(failure=reason, written_at=None), Answer(failure=FailureReason.STREAM_CUT)),
        (SENT, Answer(failure=reason, first_at=11.0, last_at=12.0)),
    ):
        result = arm_result(exchange, read, streamed, SLO())
        assert (result.failure, result.e2e, result.within_slo) == (reason, math.inf, False)
        assert result.ttft == result.tpot == (math.inf if streamed else None)


def test_an_answer_that_says_it_is_complete_is_complete_whatever_the_connection_did_then() -> None:
    lingered = Exchange(failure=FailureReason.TIMEOUT, written_at=10.0)
    assert arm_result(lingered, answer(), streamed=True, slo=SLO()).failure is None


@pytest.mark.parametrize(
    ("slo", "within"),
    [
        (SLO(), True),
        (SLO(ttft_s=1.0, tpot_s=0.1, e2e_s=5.0), True),
        (SLO(ttft_s=0.99), False),
        (SLO(tpot_s=0.09), False),
        (SLO(e2e_s=4.9), False),
    ],
)
def test_every_limit_must_be_met_and_meeting_it_exactly_is_enough(slo: SLO, within: bool) -> None:
    assert is_within(slo, 1.0, 0.1, 5.0) is within


def result_of(seconds: float | None, failed: bool = False, slo: bool = True, counted: bool = True) -> ArmResult:
    return ArmResult(
        failure=FailureReason.TIMEOUT if failed else None,
        ttft=math.inf if failed else seconds,
        tpot=math.inf if failed else seconds,
        e2e=math.inf if failed or seconds is None else seconds,
        within_slo=slo and not failed,
        tokens=Tokens(prompt=1, cached=0, output=2) if counted and not failed else None,
        written_at=0.0,
    )


LATENCIES: tuple[Metric, ...] = ("TTFT", "TPOT", "E2E")


@pytest.mark.parametrize("metric", LATENCIES)
@given(st.floats(0, 10) | st.just(math.inf), st.floats(0, 10) | st.just(math.inf), st.floats(0, 10), st.floats(0, 10))
def test_z_of_a_latency_is_the_difference_of_two_indicators(
    metric: Metric, base: float, challenger: float, base_limit: float, challenger_limit: float
) -> None:
    indicator = Indicator(
        criterion="c", metric=metric, baseline_limit_s=base_limit, challenger_limit_s=challenger_limit
    )
    sides = (result_of(base, failed=math.isinf(base)), result_of(challenger, failed=math.isinf(challenger)))
    expected = int(challenger <= challenger_limit) - int(base <= base_limit)
    assert pair_indicator(indicator, *sides) == expected


def test_z_of_shares_prefers_the_side_that_did_better() -> None:
    slo, failures = Indicator(criterion="s", metric="WithinSLO"), Indicator(criterion="f", metric="Failures")
    good, slow, failed = result_of(1.0), result_of(9.0, slo=False), result_of(None, failed=True)
    values = {"good": good, "slow": slow, "failed": failed}
    z = {
        (b, c): (pair_indicator(slo, values[b], values[c]), pair_indicator(failures, values[b], values[c]))
        for b, c in itertools.product(values, values)
    }
    assert z["good", "slow"] == (-1, 0)
    assert z["good", "failed"] == (-1, -1)
    assert z["slow", "good"] == (1, 0)
    assert z["failed", "slow"] == (0, 1)
    assert all(value == (0, 0) for (b, c), value in z.items() if b == c)


def test_a_latency_without_limits_or_without_a_value_says_nothing() -> None:
    good = result_of(1.0)
    for metric in LATENCIES:
        assert pair_indicator(Indicator(criterion="c", metric=metric), good, good) is None
        assert pair_indicator(Indicator(criterion="c", metric=metric, baseline_limit_s=1.0), good, good) is None
    for metric in LATENCIES[:2]:
        indicator = Indicator(criterion="c", metric=metric, baseline_limit_s=1.0, challenger_limit_s=1.0)
        assert pair_indicator(indicator, good, result_of(None)) is None
        assert pair_indicator(indicator, result_of(None), good) is None


def test_a_tpot_with_two_kinds_of_divisor_says_nothing() -> None:
    indicator = Indicator(criterion="c", metric="TPOT", baseline_limit_s=1.0, challenger_limit_s=1.0)
    counted, uncounted = result_of(1.0), result_of(1.0, counted=False)
    assert pair_indicator(indicator, counted, uncounted) is None
    assert pair_indicator(indicator, uncounted, uncounted) == 0
    assert pair_indicator(indicator, counted, result_of(None, failed=True)) == -1


def test_results_with_two_kinds_of_token_counts_are_not_held_against_each_other_per_token() -> None:
    usage = arm_result(SENT, answer(output=10), streamed=True, slo=SLO())
    events = arm_result(SENT, answer(), streamed=True, slo=SLO())
    buffered = arm_result(SENT, answer(first=None, chunks=0), streamed=False, slo=SLO())
    failed = result_of(None, failed=True)
    for same in ((usage, usage), (events, events), (buffered, buffered), (usage, failed), (events, failed), (failed,)):
        results = {str(n): result for n, result in enumerate(same)}
        assert not token_sources_differ(same)
        assert comparable(results) == results
    for different in ((usage, events), (events, usage, usage), (usage, events, failed)):
        assert token_sources_differ(different)
        for before, after in zip(different, comparable(dict(enumerate_names(different))).values(), strict=True):
            assert (after.ttft, after.e2e, after.within_slo, after.tokens) == (
                before.ttft,
                before.e2e,
                before.within_slo,
                before.tokens,
            )
            assert (after.tpot, after.per_token) == ((math.inf, None) if before.failure else (None, None))


def enumerate_names(results: tuple[ArmResult, ...]) -> list[tuple[str, ArmResult]]:
    return [(str(number), result) for number, result in enumerate(results)]


def test_a_usage_without_an_output_count_leaves_the_content_events() -> None:
    told = Answer(failure=None, first_at=10.5, last_at=12.5, chunks=5, tokens=Tokens(prompt=1, cached=0, output=None))
    result = arm_result(SENT, told, streamed=True, slo=SLO())
    assert (result.tpot, result.token_source) == (0.5, TokenSource.EVENTS)
