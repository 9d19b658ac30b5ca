"""What is shown beside the criteria: quantiles with intervals, shares, win rates. For readers; no verdict rests on it.

* Quantiles come from the merged log histograms, so a value is known to within a bin (2.2 %). Failures are +infinity.
* Their intervals are those of order statistics: of n answers, the p-quantile lies between the l-th and the u-th with at
  least 95 %, where l and u are the binomial bounds of n and p (David and Nagaraja, Order Statistics, 3rd ed., 7.1). The
  outer edges of their bins are shown. That takes answers as independent; where they share load, as they do in bursts,
  the truth is less certain than shown.
* Output tokens per second are 1 / (time to the end / output tokens): its p95 is what 95 % of the answers reach.
* The win rate is the share of pairs that a challenger answered first, ties as halves, with Wilson's 95 % interval.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate

import msgspec
from scipy.special import bdtr, bdtrik
from shadowrun_mirror.evidence import ArmEvidence, ClassEvidence, Wins
from shadowrun_mirror.histogram import GAMMA, Histogram

from shadowrun_operator.judge.funnel import ArmCounts, Count, Funnel
from shadowrun_operator.judge.rules import Rules

PROBABILITIES = (0.5, 0.95, 0.99)
ALPHA = 0.05
_Z = 1.959963984540054

TOKENS_PER_SECOND = "TokensPerSecond"
"""The metric whose quantiles count from above: most answers are faster than its p95."""


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """A 95 % interval; None where it has no end on that side."""

    low: float | None
    high: float | None


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """One metric, in seconds (tokens a second for `TokensPerSecond`).

    A quantile is None where failures (counted as infinitely slow) reach it. `ranges` are those of p50, p95 and p99.
    """

    metric: str
    answers: int
    failed: int
    p50: float | None
    p95: float | None
    p99: float | None
    ranges: tuple[Range, ...] = ()


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an arm's ended requests, as shares of the requests and of their prompt tokens; None of nothing.

    `cached` is the share of the prompt tokens that the engine found in its cache, `output_tokens` their mean number in
    an answer; both of the answers that reported usage, of which there were `reported`.
    """

    within_slo: float | None = None
    within_slo_tokens: float | None = None
    failed: float | None = None
    failed_tokens: float | None = None
    cached: float | None = None
    output_tokens: float | None = None
    reported: int = 0


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """A challenger beside the baseline. `output_ratio` is that of the mean lengths of answers, in tokens."""

    pairs: int
    won: int
    lost: int
    win_rate: float | None
    win_range: Range
    output_ratio: float | None


class ArmReport(msgspec.Struct, frozen=True, kw_only=True):
    """One arm in one class; class "" is all together. `against` is None for the baseline."""

    arm: str
    traffic_class: str
    latencies: tuple[Quantiles, ...]
    shares: Shares = Shares()
    against: Against | None = None


class ClassReport(msgspec.Struct, frozen=True, kw_only=True):
    """Times before an arm had the request: waiting for a slot, and from admission to the last arm's request written."""

    traffic_class: str
    times: tuple[Quantiles, ...]


def arm_reports(rules: Rules, scopes: Mapping[str, ClassEvidence], funnel: Funnel) -> tuple[ArmReport, ...]:
    """Every arm in every scope: all classes together (""), and each of them (`merge.scopes`)."""
    reports: list[ArmReport] = []
    counts = {"": funnel.arms} | {c.name: c.arms for c in funnel.classes}
    for name, found in scopes.items():
        reports += [
            ArmReport(
                arm=arm,
                traffic_class=name,
                latencies=latencies(found.arms[arm]),
                shares=_shares(found.arms[arm], counts.get(name, {}).get(arm, ArmCounts())),
                against=None if arm == rules.baseline else _against(found, arm, rules.baseline),
            )
            for arm in rules.arms
            if arm in found.arms
        ]
    return tuple(reports)


def class_reports(scopes: Mapping[str, ClassEvidence]) -> tuple[ClassReport, ...]:
    """All classes together (""), and each of them."""
    return tuple(
        ClassReport(traffic_class=name, times=_known(quantiles("Queue", c.queue), quantiles("Forward", c.forward)))
        for name, c in scopes.items()
    )


def latencies(results: ArmEvidence) -> tuple[Quantiles, ...]:
    """Every metric of an arm that anything was counted for."""
    return _known(
        quantiles("TTFT", results.ttft),
        quantiles("TPOT", results.tpot),
        quantiles("E2E", results.e2e),
        quantiles("Gap", results.gap),
        _inverse(quantiles(TOKENS_PER_SECOND, results.per_token)),
    )


def quantiles(metric: str, histogram: Histogram) -> Quantiles:
    """p50, p95 and p99 with their intervals."""
    ranked = _Ranked(histogram)
    p50, p95, p99 = (ranked.quantile(p) for p in PROBABILITIES)
    ranges = tuple(ranked.range_of(p, ALPHA) for p in PROBABILITIES) if ranked.count else ()
    return Quantiles(
        metric=metric, answers=ranked.count, failed=histogram.failed, p50=p50, p95=p95, p99=p99, ranges=ranges
    )


def order_range(histogram: Histogram, p: float, alpha: float = ALPHA) -> Range:
    """Bounds of the true p-quantile with at least 1 - alpha, for independent answers."""
    return _Ranked(histogram).range_of(p, alpha)


class _Ranked:
    """A histogram's bins in order, with the number of values up to each: sorted once, asked often."""

    def __init__(self, histogram: Histogram) -> None:
        self._edges = sorted(histogram.bins)
        self._upto = list(accumulate(histogram.bins[index] for index in self._edges))
        self.count = (self._upto[-1] if self._upto else 0) + histogram.failed

    def quantile(self, p: float) -> float | None:
        """As `Histogram.quantile`; None where that is not finite."""
        held = self._holding(math.ceil(p * self.count)) if self.count else None
        return None if held is None else float(GAMMA**held)

    def range_of(self, p: float, alpha: float) -> Range:
        low, high = rank_bounds(self.count, p, alpha)
        below, above = (self._holding(low) if low else None), self._holding(high)
        return Range(
            low=None if below is None else float(GAMMA ** (below - 1)),
            high=None if above is None else float(GAMMA**above),
        )

    def _holding(self, rank: int) -> int | None:
        place = bisect_left(self._upto, rank)
        return self._edges[place] if place < len(self._edges) else None


@lru_cache(maxsize=4096)
def rank_bounds(count: int, p: float, alpha: float = ALPHA) -> tuple[int, int]:
    """(l, u): the l-th and u-th smallest of `count` values enclose the p-quantile with at least 1 - alpha.

    l is 0 where even the smallest value may lie above it, u is count + 1 where the largest may lie below.
    """
    least, most = alpha / 2, 1 - alpha / 2
    low = max(0, math.floor(_root(least, count, p)) + 1)
    while low and bdtr(low - 1, count, p) > least:
        low -= 1
    high = min(count + 1, math.ceil(_root(most, count, p)) + 1)
    while high <= count and bdtr(high - 1, count, p) < most:
        high += 1
    return low, high


def wilson(share: float, count: int) -> Range:
    """Wilson's 95 % interval of a share."""
    if not count:
        return Range(low=None, high=None)
    z2 = _Z * _Z
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = _Z / (1 + z2 / count) * math.sqrt(share * (1 - share) / count + z2 / (4 * count * count))
    return Range(low=max(0.0, centre - half), high=min(1.0, centre + half))


def _root(share: float, count: int, p: float) -> float:
    found = float(bdtrik(share, count, p))
    return found if math.isfinite(found) else 0.0


def _known(*found: Quantiles) -> tuple[Quantiles, ...]:
    return tuple(q for q in found if q.answers)


def _inverse(found: Quantiles) -> Quantiles:
    ranges = tuple(Range(low=_over(r.high), high=_over(r.low)) for r in found.ranges)
    return msgspec.structs.replace(
        found, p50=_over(found.p50), p95=_over(found.p95), p99=_over(found.p99), ranges=ranges
    )


def _over(value: float | None) -> float | None:
    return None if not value else 1 / value


def _shares(results: ArmEvidence, counts: ArmCounts) -> Shares:
    ended, usage = counts.completed + counts.failures, results.usage

    def of(part: Count) -> tuple[float | None, float | None]:
        return _share(part.requests, ended.requests), _share(part.tokens, ended.tokens)

    within, failed = of(counts.within_slo), of(counts.failures)
    return Shares(
        within_slo=within[0],
        within_slo_tokens=within[1],
        failed=failed[0],
        failed_tokens=failed[1],
        cached=cached_share(results),
        output_tokens=_share(usage.output_tokens, usage.answers),
        reported=usage.answers,
    )


def cached_share(results: ArmEvidence) -> float | None:
    """Share of the prompt tokens that came from the engine's cache; None where no usage was reported."""
    return _share(results.usage.cached_tokens, results.usage.prompt_tokens)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _against(found: ClassEvidence, arm: str, baseline: str) -> Against:
    wins = found.wins.get(arm, Wins())
    rate = (wins.won + (wins.pairs - wins.won - wins.lost) / 2) / wins.pairs if wins.pairs else None
    ours, theirs = (found.arms.get(name, ArmEvidence()).usage for name in (arm, baseline))
    mean, base = _share(ours.output_tokens, ours.answers), _share(theirs.output_tokens, theirs.answers)
    return Against(
        pairs=wins.pairs,
        won=wins.won,
        lost=wins.lost,
        win_rate=rate,
        win_range=Range(low=None, high=None) if rate is None else wilson(rate, wins.pairs),
        output_ratio=None if mean is None or not base else mean / base,
    )
