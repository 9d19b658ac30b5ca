"""Latency limits from the baseline's warm-up, frozen before anything counts; and which quantile they turned out to be.
Beside them the size that weighs most, for criteria that weigh pairs by their tokens.

The limit of the p-quantile is the edge of the histogram bin that holds it. Where that bin holds so many answers that
the edge is far from p (latencies closer together than a bin is wide), `tie_shift` says by how much the share at the
limit misses p, so that the criterion still asks for the quantile and not for the edge. There, a gain below one bin
(2.2 %) counts as none.

The baseline may get faster or slower after its warm-up. A comparison at a fixed limit stays valid then, only it is one
at another quantile than was asked for: `Position` says which. Where that is far off, `levels` gives what histograms
show at each quantile from the one asked for to the one compared. This module must not judge.
"""

import math

import msgspec
from shadowrun_mirror.config import Indicator, Metric
from shadowrun_mirror.evidence import ArmEvidence, ClassEvidence, Window
from shadowrun_mirror.histogram import GAMMA, Histogram

from shadowrun_operator.judge.merge import together
from shadowrun_operator.judge.rules import LATENCIES, MIN_ANSWERS, Criterion, Rules

TIED_ANSWERS = 5
TIED_SHARE = 0.02
DRIFT = 0.02
HEAVIEST = 5
"""Times the mean size in the warm-up: what a request weighs at most where pairs count by their tokens. Of public
traces' tokens up to 5 % lie beyond it; and of 200 pairs like the warm-up's, one has 2.5 % of the weight at most."""
_Z95 = 1.959963984540054


class Shortfall(msgspec.Struct, frozen=True, kw_only=True):
    """What the warm-up still lacks for one criterion: finished pairs, or answers of the baseline in `answers`."""

    criterion: str
    traffic_class: str
    what: str
    have: int
    need: int


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Which quantile a frozen limit is in the counted windows: between `low` and `high`, 95 % interval [from, to].

    The two ends differ by the answers in the bins next to the limit. The interval is Wilson's, for as many answers as
    warm-up and counted windows are worth together, 1 / (1/n0 + 1/n1): a limit read from 200 answers misses its quantile
    by several points by chance alone (7 at p50), which is no drift.
    """

    low: float
    high: float
    interval: tuple[float, float]

    def drifted(self, p: float) -> bool:
        """Whether the limit is farther than `DRIFT` from the p-quantile, beyond what chance explains."""
        return self.interval[1] < p - DRIFT or self.interval[0] > p + DRIFT


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One quantile of the baseline, `share`: by how much the challenger's share within its limit exceeds it.

    `least` and `most` differ by what bins leave open. Both are of the criterion's kind: above 0 is what it asks for.
    """

    share: float
    least: float
    most: float


def histogram_of(results: ArmEvidence, metric: Metric) -> Histogram:
    """The histogram of a latency. Raises `KeyError` for WithinSLO and Failures, which have none."""
    return {"TTFT": results.ttft, "TPOT": results.tpot, "E2E": results.e2e}[metric]


def indicators(rules: Rules, warm_up: Window | None = None) -> tuple[Indicator, ...]:
    """One indicator a criterion, in the order of the rules.

    Without a warm-up, or where it has too few answers or failures reach the quantile, a latency has no limits and is
    not counted; `shortfalls` says what is lacking.
    """
    return tuple(_indicator(rules, criterion, warm_up) for criterion in rules.criteria)


def shortfalls(rules: Rules, warm_up: Window) -> tuple[Shortfall, ...]:
    """What the warm-up lacks before the counted windows may begin; empty when it is enough.

    Informational criteria hold nothing up, unless there are no others: one without a limit says NoThreshold.
    """
    found: list[Shortfall] = []
    for c in rules.gating or rules.criteria:
        evidence = together(warm_up, c.traffic_class)
        pairs = evidence.admitted.requests - evidence.in_flight.requests
        least = max(rules.warm_up_requests, MIN_ANSWERS) if c.weight == "Tokens" else rules.warm_up_requests
        if pairs < least:
            found.append(_shortfall(c, "pairs", pairs, least))
        if c.metric not in LATENCIES:
            continue
        histogram = histogram_of(evidence.arms.get(rules.baseline, ArmEvidence()), c.metric)
        if histogram.count < c.answers:
            found.append(_shortfall(c, "answers", histogram.count, c.answers))
        elif _limit(c, histogram) is None:
            need = math.ceil((c.quantile or 0) * histogram.count)
            found.append(_shortfall(c, "answers that did not fail", histogram.count - histogram.failed, need))
    return tuple(found)


def tie_shift(criterion: Criterion, histogram: Histogram, limit_s: float) -> float:
    """p minus the share of the baseline's warm-up answers within its limit, if that is due to ties; else 0.

    The mean of z has to exceed this where it would have to exceed 0 without ties: a challenger whose share within its
    limit is p meets the quantile. Ties are at least `TIED_ANSWERS` answers in the limit's bin that make up at least
    `TIED_SHARE` and half of what lies beyond the quantile; fewer are chance and must not shift anything. Which share of
    the tokens lies within the limit, no histogram says: where pairs weigh by those, a shift only ever makes it harder.
    """
    p = criterion.quantile
    if p is None or not histogram.count:
        return 0.0
    index = _quantile_bin(histogram, p)
    held = 0 if index is None else histogram.bins[index]
    if held < TIED_ANSWERS or held / histogram.count < max(TIED_SHARE, (1 - p) / 2):
        return 0.0
    shift = p - histogram.share_at_most(limit_s)
    return max(0.0, shift) if criterion.weight == "Tokens" else shift


def position(histogram: Histogram, limit_s: float, frozen_from: int) -> Position | None:
    """Which quantile a limit frozen from so many answers is among these (failed ones are beyond); None without any."""
    if not histogram.count or not frozen_from:
        return None
    count = 1 / (1 / histogram.count + 1 / frozen_from)
    low, high = histogram.share_at_most(limit_s / GAMMA), histogram.share_at_most(limit_s * GAMMA)
    return Position(low=low, high=high, interval=(_wilson(low, count)[0], _wilson(high, count)[1]))


def levels(criterion: Criterion, baseline: Histogram, challenger: Histogram, place: Position) -> tuple[Level, ...]:
    """Every quantile that bins can tell apart, from the criterion's to where the limit is now, `place`.

    Empty where failures of the baseline reach one of them: nothing can be said there. A bin that holds more than
    `DRIFT` of the answers stands for many quantiles at once; the one that is hardest to meet counts for `least`, the
    easiest for `most`.
    """
    p = criterion.quantile or 0.5
    low, high = min(p, place.low), max(p, place.high)
    found: list[Level] = []
    before, count = 0, baseline.count
    for index in sorted(baseline.bins):
        after = before + baseline.bins[index]
        first, last, before = before / count, after / count, after
        if last < low:
            continue
        edge, tied = GAMMA**index * criterion.ratio, last - first > DRIFT
        found.append(
            Level(
                share=min(last, high),
                least=challenger.share_at_most(edge) - (min(last, high + DRIFT) if tied else last),
                most=challenger.share_at_most(edge * GAMMA) - (max(first, low - DRIFT) if tied else last),
            )
        )
        if last >= high:
            return tuple(found)
    return ()


def _indicator(rules: Rules, criterion: Criterion, warm_up: Window | None) -> Indicator:
    limit: float | None = None
    heaviest: int | None = None
    measured = ClassEvidence() if warm_up is None else together(warm_up, criterion.traffic_class)
    if criterion.metric in LATENCIES:
        results = measured.arms.get(rules.baseline, ArmEvidence())
        limit = _limit(criterion, histogram_of(results, criterion.metric))
    if criterion.weight == "Tokens" and measured.admitted.bytes:
        heaviest = math.ceil(HEAVIEST * measured.admitted.bytes / measured.admitted.requests)
    return Indicator(
        criterion=criterion.name,
        metric=criterion.metric,
        traffic_class=criterion.traffic_class,
        baseline_limit_s=limit,
        challenger_limit_s=None if limit is None else limit * criterion.ratio,
        weight=criterion.weight,
        heaviest=heaviest,
    )


def _limit(criterion: Criterion, histogram: Histogram) -> float | None:
    """The upper edge of the quantile's bin; the lower one where ties would leave a better challenger no room."""
    p = criterion.quantile
    if p is None or histogram.count < criterion.answers:
        return None
    upper = histogram.quantile(p)
    if not math.isfinite(upper):
        return None
    tied = tie_shift(criterion, histogram, upper) != 0.0
    return upper / GAMMA if criterion.require == "Better" and tied else upper


def _quantile_bin(histogram: Histogram, p: float) -> int | None:
    rank, seen = math.ceil(p * histogram.count), 0
    for index in sorted(histogram.bins):
        seen += histogram.bins[index]
        if seen >= rank:
            return index
    return None


def _shortfall(criterion: Criterion, what: str, have: int, need: int) -> Shortfall:
    return Shortfall(criterion=criterion.name, traffic_class=criterion.traffic_class, what=what, have=have, need=need)


def _wilson(share: float, count: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z2 = _Z95 * _Z95
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = _Z95 / (1 + z2 / count) * math.sqrt(share * (1 - share) / count + z2 / (4 * count * count))
    return centre - half, centre + half
