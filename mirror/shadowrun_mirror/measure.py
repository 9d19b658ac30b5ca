"""Measure: from stamps to latencies, and from two arms' results to a pair's indicator. Pure.

Streamed answers (the definitions vLLM, AIPerf and guidellm share)
    TTFT = first content - request written          TPOT = (last content - first content) / (N - 1)
    E2E  = last content - request written           N    = output tokens from usage, else content events (see below)
    gap  = longest time between two successive reads with content        per token = E2E / N
Buffered answers have an E2E, and an E2E per token if they report usage. Several tokens that all came in one event have
no time between them to see: such an answer is bundled, its TPOT says nothing, and no limit on TPOT counts as met. A
failed arm has +infinity for TTFT, TPOT and E2E wherever a completed one would have a number, and no gap and no time
per token: those describe completed answers.

A usage of no or one token is not believed where text came in two events or more: that answer would have no TPOT at
all, and so no limit to miss. There N is the number of content events, as if no usage had been reported. A usage of two
tokens or more is taken as it is, even below the number of events: a smaller N makes an answer look slower, while a
count of events in its place could be driven up by cutting the text finer.

Content events are not tokens (an engine may put several into one), so the two kinds of N are never compared: where the
arms' token sources differ, the pair says nothing per token. It still counts for TTFT, E2E, limits and failures.
"""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from shadowrun_mirror.client import Exchange
from shadowrun_mirror.config import SLO, Indicator
from shadowrun_mirror.reasons import FailureReason, Likeness
from shadowrun_mirror.shapes import Tokens
from shadowrun_mirror.stream import Answer


class TokenSource(StrEnum):
    """Where an answer's number of output tokens comes from."""

    USAGE = "Usage"  # the engine's own count (the last one, if it reports as it goes), where it can be believed
    EVENTS = "Events"  # content events of a stream
    NONE = "None"  # not known


class ArmResult(msgspec.Struct, frozen=True, kw_only=True):
    """One arm's part of a pair, latencies in seconds.

    `ttft` is None for buffered answers. `tpot` is None for those, for a completed answer of one token, and for a
    bundled one. `gap` is None without two reads with content, `per_token` without a number of output tokens; both are
    None for a failed arm. `by_events`: N is the number of content events although there is a usage. `likeness`: of a
    challenger, what comparing its answer with the baseline's came to; None where answers are not compared.
    """

    failure: FailureReason | None
    ttft: float | None
    tpot: float | None
    e2e: float
    within_slo: bool
    tokens: Tokens | None
    written_at: float | None
    bundled: bool = False
    gap: float | None = None
    per_token: float | None = None
    by_events: bool = False
    likeness: Likeness | None = None

    @property
    def stamps(self) -> list[float]:
        """The moments that its latencies lie between, by the clock of `written_at`."""
        if self.written_at is None:
            return []
        after = (0.0, self.ttft, self.e2e)
        return [self.written_at + latency for latency in after if latency is not None and latency < math.inf]

    @property
    def token_source(self) -> TokenSource:
        """Where N comes from; of a completed answer."""
        if self.tokens is not None and not self.by_events:
            return TokenSource.USAGE
        return TokenSource.NONE if self.ttft is None else TokenSource.EVENTS


def failed_result(failure: FailureReason, streamed: bool, written_at: float | None) -> ArmResult:
    """The result of an arm that did not answer properly."""
    never = math.inf if streamed else None
    return ArmResult(
        failure=failure,
        ttft=never,
        tpot=never,
        e2e=math.inf,
        within_slo=False,
        tokens=None,
        written_at=written_at,
    )


def arm_result(exchange: Exchange, answer: Answer, streamed: bool, slo: SLO) -> ArmResult:
    """What an exchange and its answer come to.

    N, the number of tokens, is what usage says; the number of content events where there is no usage, or where usage
    says no or one token and there were two content events or more.

    An answer that says itself that it is complete is complete, even if the connection then lingered until the
    timeout or was cut. A connection's failure outranks what the reader makes of half an answer.
    """
    failure = answer.failure
    if failure is not None and exchange.failure is not None:
        failure = exchange.failure
    if exchange.written_at is None or answer.last_at is None:
        return failed_result(failure or exchange.failure or FailureReason.EMPTY, streamed, exchange.written_at)
    if failure is not None:
        return failed_result(failure, streamed, exchange.written_at)
    first, last = answer.first_at, answer.last_at
    ttft = None if first is None else first - exchange.written_at
    output = None if answer.tokens is None else answer.tokens.output
    by_events = output is None or output < 2 <= answer.chunks
    count = answer.chunks if output is None or by_events else output
    bundled = first is not None and count >= 2 and answer.chunks < 2
    tpot = None if first is None or count < 2 or bundled else (last - first) / (count - 1)
    e2e = last - exchange.written_at
    return ArmResult(
        failure=None,
        ttft=ttft,
        tpot=tpot,
        e2e=e2e,
        within_slo=is_within(slo, ttft, math.inf if bundled else tpot, e2e),
        tokens=answer.tokens,
        written_at=exchange.written_at,
        bundled=bundled,
        gap=answer.gap,
        per_token=e2e / count if count >= 1 else None,
        by_events=answer.tokens is not None and by_events,
    )


def is_within(slo: SLO, ttft: float | None, tpot: float | None, e2e: float) -> bool:
    """Whether a completed answer meets every limit that applies to it; a limit on what it does not have is met."""
    return (
        (ttft is None or slo.ttft_s is None or ttft <= slo.ttft_s)
        and (tpot is None or slo.tpot_s is None or tpot <= slo.tpot_s)
        and (slo.e2e_s is None or e2e <= slo.e2e_s)
    )


def pair_indicator(indicator: Indicator, baseline: ArmResult, challenger: ArmResult) -> int | None:
    """z of one pair in {-1, 0, 1} as `config.Indicator` defines it; None where the pair says nothing.

    That is: a latency without limits; a TTFT or TPOT that a completed answer does not have; a TPOT whose divisors come
    from different sources (one arm reported a usage that can be believed, the other did not).
    """
    if indicator.metric == "WithinSLO":
        return challenger.within_slo - baseline.within_slo
    if indicator.metric == "Failures":
        return (baseline.failure is not None) - (challenger.failure is not None)
    ours, theirs = _latency(indicator, challenger), _latency(indicator, baseline)
    limits = indicator.challenger_limit_s, indicator.baseline_limit_s
    if ours is None or theirs is None or limits[0] is None or limits[1] is None:
        return None
    if indicator.metric == "TPOT" and token_sources_differ((baseline, challenger)):
        return None
    return (ours <= limits[0]) - (theirs <= limits[1])


def sooner(baseline: ArmResult, challenger: ArmResult) -> int:
    """1 where the challenger answered before the baseline, -1 where after, 0 where neither did or both failed.

    By the time to first token; by the time to the end where one of them has none.
    """
    ours, theirs = challenger.ttft, baseline.ttft
    if ours is None or theirs is None:
        ours, theirs = challenger.e2e, baseline.e2e
    return (ours < theirs) - (ours > theirs)


def token_sources_differ(results: Iterable[ArmResult]) -> bool:
    """Whether completed answers of one pair have their numbers of tokens from different sources.

    A failed arm has no number of tokens and differs from nobody.
    """
    return len({result.token_source for result in results if result.failure is None}) > 1


def comparable(results: Mapping[str, ArmResult]) -> dict[str, ArmResult]:
    """The results with nothing per token where the sources of the token counts differ; as they are otherwise.

    For what is kept per arm: a histogram of TPOT over usage cannot be held against one over content events.
    """
    if not token_sources_differ(results.values()):
        return dict(results)
    return {
        arm: result if result.failure else msgspec.structs.replace(result, tpot=None, per_token=None)
        for arm, result in results.items()
    }


def _latency(indicator: Indicator, result: ArmResult) -> float | None:
    if indicator.metric == "TTFT":
        return result.ttft
    return result.tpot if indicator.metric == "TPOT" else result.e2e
