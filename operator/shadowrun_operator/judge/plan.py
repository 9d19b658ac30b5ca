"""Whether a run can decide at all in its time, before it is made: needed pairs against pairs to come. Pure arithmetic.

A criterion is decided when its bound leaves the limit behind. The estimate scatters, so in `POWER` (80 %) of the runs
that is when (k(J) + 0.84 + 0.2) * sqrt(d / n) < g, for n pairs in J blocks, with

    d   share of pairs in which exactly one arm is within its limit (the variance of z, for a small mean)
    g   how far the true mean of z is assumed to be from the limit
    k   how many standard errors the bound is away at that many blocks: `sequence`, with the caution of `interval` below
        its `FULL_BLOCKS`; 0.84 is the normal quantile of `POWER`, 0.2 is `WIDER`

Assumed is: NotWorse, that the arms are equal; Better, that the candidate is better by `effect` (latencies: faster by
that ratio; shares: that many points), by default twice the margin and no less than `EFFECT` or `EFFECT_OF_SHARES`.
Latencies are taken as lognormal with a standard deviation `spread` of their logarithm, and d as half of what it would
be if the arms' latencies had nothing in common, p (1 - p). Pairs are taken as independent: load that comes in waves
needs a multiple (four times as many where successive noise correlates at 0.9). For the weight Tokens d is `WEIGHED`
times as large.
"""

import math
from collections.abc import Callable

import msgspec
from scipy.special import ndtr, ndtri

from shadowrun_operator.judge.interval import CAUTION, FULL_BLOCKS, MIN_BLOCKS, PAIRS_PER_BLOCK
from shadowrun_operator.judge.rules import LATENCIES, Criterion, Rules
from shadowrun_operator.judge.sequence import multiplier, of_few

POWER = 0.8
"""Share of the runs that decide when they have the pairs that are said to be needed, if all is as assumed."""
WIDER = 0.2
"""Standard errors by which bounds are wider than that on average: error and length of blocks are themselves estimated,
and the wider of two bounds counts. From simulation: without it 75 % of the runs decide at their last look."""
SPREAD = 0.8
EFFECT = 0.1
EFFECT_OF_SHARES = 0.02
_MARGIN = float(ndtri(POWER)) + WIDER
_MOST_EFFECT = 0.95
WEIGHED = 2.3
"""n sum(w^2) / sum(w)^2 of bounded weights w, for prompts as long as those of real conversations (1.9 for others)."""
DISCORDANCE = 0.04
"""Of shares such as answers within the SLO."""
_MOST = 10**12
_STEPS = 60
_LARGEST_MARGIN = 0.9


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What is expected: pairs a second of the whole run, shares of classes, and what is assumed of the latencies.

    `discordance` None takes the module's. Classes without a share have what is left, evenly.
    """

    pairs_per_second: float
    class_shares: dict[str, float] = {}
    discordance: float | None = None
    spread: float = SPREAD
    effect: float | None = None

    def rate_of(self, traffic_class: str, names: tuple[str, ...]) -> float:
        """Pairs a second of a class; of all of them where `traffic_class` is ""."""
        if not traffic_class:
            return self.pairs_per_second
        known = self.class_shares.get(traffic_class)
        if known is not None:
            return self.pairs_per_second * known
        left = max(0.0, 1 - sum(self.class_shares.values()))
        return self.pairs_per_second * left / sum(1 for name in names if name not in self.class_shares)


class Length(msgspec.Struct, frozen=True, kw_only=True):
    """How long a run lasts, in seconds, by its spec; `pairs` is `endConditions.pairs`."""

    duration_s: float
    least_s: float
    start_s: float  # startDeadline
    warm_up_s: float
    pairs: int | None = None
    crossover: bool = False  # the arms change places halfway and get warm anew: each half has to decide by itself

    def judged_s(self, seconds: float) -> float:
        """Of so many counted seconds, those in which a criterion has to be decided: all, or the shorter half."""
        return max(0.0, seconds / 2 - self.warm_up_s) if self.crossover else seconds

    def whole_s(self, seconds: float) -> float:
        """The counted seconds of which `judged_s` is so long."""
        return 2 * (seconds + self.warm_up_s) if self.crossover else seconds

    def counted_s(self, rate: float) -> float:
        """Seconds until the run ends, at a rate of all its pairs: its duration, or when it has its pairs."""
        if self.pairs is None:
            return self.duration_s
        return min(self.duration_s, max(self.least_s, self.pairs / rate))


class CriterionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One criterion: pairs to come and pairs needed (None: it can't be decided however many there are).

    `rate` and `seconds` would each be enough by themselves; for `seconds` the run must not end before it has `pairs`
    (of all classes), None where `endConditions.pairs` allows as many. `margin` is the smallest that could be decided
    with the pairs to come, `median` says that p50 could. None where there is none, and where nothing need change.
    """

    name: str
    informational: bool
    coming: int
    needed: int | None
    rate: float | None = None
    seconds: float | None = None
    pairs: int | None = None
    margin: float | None = None
    median: bool = False

    @property
    def decidable(self) -> bool:
        """Whether it can be decided in time."""
        return self.needed is not None and self.needed <= self.coming


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run. `ready_s` is when the slowest class has its warm-up, None where it never has."""

    criteria: tuple[CriterionPlan, ...]
    counted_s: float
    ready_s: float | None
    start_s: float

    @property
    def starts(self) -> bool:
        """Whether the warm-up is over before `startDeadline`."""
        return self.ready_s is not None and self.ready_s < self.start_s

    @property
    def decidable(self) -> bool:
        """Whether every criterion that gates can be decided."""
        gating = [c for c in self.criteria if not c.informational]
        return self.starts and bool(gating) and all(c.decidable for c in gating)


def planned(rules: Rules, traffic: Traffic, length: Length, names: tuple[str, ...]) -> RunPlan:
    """The plan of a run; `names` are all its classes."""
    seconds = length.counted_s(traffic.pairs_per_second)
    asked = rules.gating or rules.criteria
    slowest = min(traffic.rate_of(c.traffic_class, names) for c in asked)
    return RunPlan(
        criteria=tuple(
            _planned(rules, c, traffic, traffic.rate_of(c.traffic_class, names), seconds, length)
            for c in rules.criteria
        ),
        counted_s=seconds,
        ready_s=length.warm_up_s + rules.warm_up_requests / slowest if slowest > 0 else None,
        start_s=length.start_s,
    )


def _planned(
    rules: Rules, criterion: Criterion, traffic: Traffic, rate: float, seconds: float, length: Length
) -> CriterionPlan:
    coming = math.floor(rate * length.judged_s(seconds))
    needed = needed_pairs(criterion, traffic, rules.pass_alpha)
    if needed is not None and needed <= coming:
        return CriterionPlan(name=criterion.name, informational=criterion.informational, coming=coming, needed=needed)
    median = msgspec.structs.replace(criterion, quantile=0.5)
    easier = needed_pairs(median, traffic, rules.pass_alpha) if criterion.quantile not in (None, 0.5) else None
    possible = needed is not None and rate > 0
    return CriterionPlan(
        name=criterion.name,
        informational=criterion.informational,
        coming=coming,
        needed=needed,
        rate=_enough_rate(needed, rate, traffic.pairs_per_second, length) if needed is not None else None,
        seconds=length.whole_s(needed / rate) if needed is not None and possible else None,
        pairs=_enough_pairs(needed, rate, traffic.pairs_per_second, length) if needed is not None else None,
        margin=_smallest_margin(criterion, traffic, rules.pass_alpha, coming),
        median=easier is not None and easier <= coming,
    )


def _enough_rate(needed: int, rate: float, whole: float, length: Length) -> float | None:
    """Pairs a second of the whole run that bring a class its pairs; None where the run then ends by its pairs first."""
    seconds = length.judged_s(length.duration_s)
    if rate <= 0 or not seconds:
        return None
    share = rate / whole
    found = needed / (share * seconds)
    if length.pairs is not None and found * length.counted_s(found) * share < needed * (1 - 1e-9):
        return None
    return found


def _enough_pairs(needed: int, rate: float, whole: float, length: Length) -> int | None:
    """`endConditions.pairs` at which a class has its pairs; None where they are not fewer than that."""
    if length.pairs is None or rate <= 0:
        return None
    found = math.ceil(needed * whole / rate)
    return found if length.pairs < found else None


def needed_pairs(criterion: Criterion, traffic: Traffic, alpha: float) -> int | None:
    """Pairs with which `POWER` of the runs pass at this level, under what is assumed; None where none is enough."""
    gap, spread = expected_gap(criterion, traffic), math.sqrt(_discordance(criterion, traffic))
    if gap <= 0:
        return None

    def enough(pairs: int) -> bool:
        blocks = pairs // PAIRS_PER_BLOCK
        return blocks >= MIN_BLOCKS and (_bound(blocks, alpha) + _MARGIN) * spread / math.sqrt(pairs) < gap

    return _first(enough, max(criterion.min_pairs, MIN_BLOCKS * PAIRS_PER_BLOCK))


def _bound(blocks: int, alpha: float) -> float:
    """Standard errors from the estimate to its bound, as `interval` has them."""
    caution = 1.0 if blocks >= FULL_BLOCKS else math.sqrt(CAUTION)
    return caution * of_few(multiplier(blocks, alpha), blocks - 1)


def expected_gap(criterion: Criterion, traffic: Traffic) -> float:
    """How far the mean of z is from its limit under what is assumed; 0 or less where it can't be proven."""
    better = criterion.require == "Better"
    if criterion.metric not in LATENCIES:
        return _effect(criterion, traffic, EFFECT_OF_SHARES) - criterion.margin if better else criterion.margin
    p = criterion.quantile or 0.5
    faster = 1 - _effect(criterion, traffic, EFFECT) if better else 1.0
    return float(ndtr(ndtri(p) + math.log(criterion.ratio / faster) / traffic.spread)) - p


def _effect(criterion: Criterion, traffic: Traffic, least: float) -> float:
    if traffic.effect is not None:
        return min(_MOST_EFFECT, traffic.effect)
    return min(_MOST_EFFECT, max(least, 2 * criterion.margin))


def _discordance(criterion: Criterion, traffic: Traffic) -> float:
    p, weighed = criterion.quantile, WEIGHED if criterion.weight == "Tokens" else 1.0
    if traffic.discordance is not None:
        return weighed * traffic.discordance
    return weighed * (DISCORDANCE if p is None else p * (1 - p))


def _smallest_margin(criterion: Criterion, traffic: Traffic, alpha: float, coming: int) -> float | None:
    """For NotWorse, the smallest margin that `coming` pairs can prove for equal arms; None beyond `_LARGEST_MARGIN`."""
    if criterion.require == "Better":
        return None
    low, high = criterion.margin, _LARGEST_MARGIN

    def proves(margin: float) -> bool:
        needed = needed_pairs(msgspec.structs.replace(criterion, margin=margin), traffic, alpha)
        return needed is not None and needed <= coming

    if not proves(high):
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if proves(middle) else (middle, high)
    return high


def _first(enough: Callable[[int], bool], least: int) -> int | None:
    """The smallest number from `least` on that is enough, for what stays enough once it is."""
    low, high = least - 1, least
    while not enough(high):
        if high > _MOST:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
