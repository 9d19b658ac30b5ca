"""Each criterion by itself: proven (Pass), refuted (Fail) or open (Inconclusive), with every number it rests on.

z is counted so that more is better for the candidate. With `limit` for the mean of z:

    Better     limit 0 for latencies (a margin is inside z), +margin for shares
    NotWorse   limit 0 for latencies (the margin is inside z), -margin for shares
    Pass       the lower bound at `pass_alpha` is above the limit: each false Pass has at most that probability, and the
               run's too, because Pass needs every criterion (intersection-union)
    Fail       the upper bound is below the limit, at `fail_alpha` shared among the gating criteria by Holm's method

Both bounds hold at every look (`interval`), so an outcome may end the run as soon as it is there.

Ties may shift a latency's limit (`thresholds.tie_shift`). Where the baseline has changed since its warm-up, the frozen
limit is another quantile than was asked for, and what is proven is proven of that one. If it is more than 2 points off
beyond chance, the outcome counts only if histograms show the same at every quantile from there to the one asked for,
by at least as much as the bound is away from the mean (more where more answers lie around the limit); else the
criterion is open, ThresholdDrifted. A refuted Better means: proven not better. Informational
criteria are judged alone (no Holm) and take no part in the verdict. A critical criterion is judged like any other; when
several are refuted it is named first.

With the weight Tokens z is weighted by the size of the request, bounded (`thresholds.HEAVIEST`): the mean is then a
difference of shares of the tokens. The quantiles of limits remain those over requests, and as no histogram knows
weights, a limit that has drifted leaves such a criterion open.
"""

import math
from typing import Literal

import msgspec
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.config import Indicator, Metric, Weight
from shadowrun_mirror.evidence import Amount, ArmEvidence, Window

from shadowrun_operator.judge.facts import Facts
from shadowrun_operator.judge.interval import MIN_BLOCKS, Estimate, estimate
from shadowrun_operator.judge.merge import Merged, together
from shadowrun_operator.judge.rules import LATENCIES, Criterion, Require, Rules
from shadowrun_operator.judge.thresholds import Level, Position, histogram_of, levels, position, tie_shift

Outcome = Literal["Pass", "Fail", "Inconclusive"]
Gap = Literal["", "HalvesDisagree", "NoThreshold", "TooFewPairs", "ThresholdDrifted", "Undecided"]
_MOST_NEEDED = 1_000_000_000


class CriterionResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the evidence says about one criterion.

    `candidate` and `baseline` are the metric itself: seconds at the quantile (None where failures reach it or nothing
    was counted) or a share. `difference` is the mean of z, and `lower`, `upper` its one-sided bounds at `pass_alpha`
    and `fail_alpha` (Holm's level for this criterion). `needed` estimates the further pairs until it is decided; 0 when
    it is decided or cannot be told. `gap` says why it is open. `position` says which quantile the frozen limit became;
    if that has drifted, `between` has the least and the most difference at the quantiles from there to the one asked
    for, by histograms, with 0 as their limit. `halves` are the results of both halves where arms change places: what is
    said here of the whole then follows from them (module `halves`).
    """

    name: str
    metric: Metric
    weight: Weight = "Requests"
    traffic_class: str
    quantile: float | None
    require: Require
    margin: float
    critical: bool
    informational: bool
    outcome: Outcome
    gap: Gap
    candidate: float | None
    baseline: float | None
    limit: float
    difference: float | None = None
    lower: float | None = None
    upper: float | None = None
    pass_alpha: float
    fail_alpha: float
    pairs: int = 0
    min_pairs: int
    needed: int = 0
    blocks: int = 0
    block_s: int = 0
    baseline_limit_s: float | None = None
    challenger_limit_s: float | None = None
    position: Position | None = None
    between: tuple[float, float] | None = None
    halves: tuple["CriterionResult", ...] = ()


class _Case(msgspec.Struct, frozen=True, kw_only=True):
    """A criterion with all that its outcome depends on."""

    criterion: Criterion
    limit: float
    found: Estimate | None
    gap: Gap  # a reason that forbids a decision whatever the bounds say
    baseline_limit_s: float | None
    challenger_limit_s: float | None
    position: Position | None
    drifted: bool
    levels: tuple[Level, ...]  # from the quantile asked for to that of the limit, where it has drifted
    baseline: float | None
    candidate: float | None

    def proven(self, alpha: float) -> bool:
        """Whether the lower bound is above the limit, at whichever quantile that now is."""
        if self.gap or self.found is None or self.found.mean <= self.limit:
            return False
        return self.found.lower(alpha) > self.limit

    def refuted(self, alpha: float) -> bool:
        if self.gap or self.found is None or self.found.mean >= self.limit:
            return False
        return self.found.upper(alpha) < self.limit

    def passes(self, alpha: float) -> bool:
        return self.proven(alpha) and self._is_upheld([level.least for level in self.levels], alpha, 1)

    def fails(self, alpha: float) -> bool:
        return self.refuted(alpha) and self._is_upheld([-level.most for level in self.levels], alpha, -1)

    def _is_upheld(self, gains: list[float], alpha: float, side: int) -> bool:
        """Whether the quantile asked for, and those from there to the limit's, say the same beyond chance."""
        if not self.drifted or self.found is None or self.position is None:
            return not self.drifted
        reach = self.found.mean - self.found.lower(alpha) if side > 0 else self.found.upper(alpha) - self.found.mean
        here = _spread((self.position.low + self.position.high) / 2)
        needed = [reach * max(1.0, _spread(level.share) / here) for level in self.levels]
        return bool(gains) and all(gain > least for gain, least in zip(gains, needed, strict=True))


def judged(rules: Rules, evidence: Merged, facts: Facts) -> tuple[CriterionResult, ...]:
    """The outcome of every criterion, in the order of the rules."""
    views: dict[str, tuple[dict[str, ArmEvidence], dict[str, ArmEvidence]]] = {}
    for c in rules.criteria:
        if c.traffic_class not in views:
            views[c.traffic_class] = (
                _arms(rules, evidence.calibration, c.traffic_class),
                _arms(rules, evidence.counted, c.traffic_class),
            )
    cases = [_case(rules, c, evidence, facts, *views[c.traffic_class]) for c in rules.criteria]
    levels = _fail_levels(rules, cases)
    return tuple(_result(rules, case, levels[case.criterion.name]) for case in cases)


def series_of(evidence: Merged, arm: str, criterion: str) -> BlockSeries:
    """z of one challenger for one criterion over the counted windows."""
    return evidence.counted.pairs.get(arm, {}).get(criterion, BlockSeries())


def estimate_of(rules: Rules, evidence: Merged, arm: str, criterion: str) -> Estimate | None:
    """The estimate for one challenger, in blocks that are long enough for the control's z too; None without pairs."""
    control = rules.control
    beside = () if control in (None, arm) else (series_of(evidence, control or "", criterion),)
    return estimate(series_of(evidence, arm, criterion), rules.block_s, beside)


def _arms(rules: Rules, window: Window, traffic_class: str) -> dict[str, ArmEvidence]:
    found = together(window, traffic_class).arms
    return {arm: found.get(arm, ArmEvidence()) for arm in rules.arms}


def _case(
    rules: Rules,
    criterion: Criterion,
    evidence: Merged,
    facts: Facts,
    warm_up: dict[str, ArmEvidence],
    counted: dict[str, ArmEvidence],
) -> _Case:
    found = estimate_of(rules, evidence, rules.candidate, criterion.name)
    indicator = facts.indicator(criterion.name)
    limit_s = indicator.baseline_limit_s if indicator else None
    limit, place = _share_limit(criterion), None
    near: tuple[Level, ...] = ()
    drifted = False
    if criterion.metric in LATENCIES and limit_s is not None:
        before = histogram_of(warm_up[rules.baseline], criterion.metric)
        limit = tie_shift(criterion, before, limit_s)
        now, ours = (histogram_of(counted[arm], criterion.metric) for arm in (rules.baseline, rules.candidate))
        place = position(now, limit_s, before.count)
        if place is not None and place.drifted(criterion.quantile or 0.5):
            drifted, near = True, () if criterion.weight == "Tokens" else levels(criterion, now, ours, place)
    return _Case(
        criterion=criterion,
        limit=limit,
        found=found,
        gap=_gap(criterion, indicator is not None and _is_frozen(criterion, indicator), found),
        baseline_limit_s=limit_s,
        challenger_limit_s=indicator.challenger_limit_s if indicator else None,
        position=place,
        drifted=drifted,
        levels=near,
        baseline=_figure(criterion, counted[rules.baseline]),
        candidate=_figure(criterion, counted[rules.candidate]),
    )


def _gap(criterion: Criterion, has_limit: bool, found: Estimate | None) -> Gap:
    if not has_limit:
        return "NoThreshold"
    if found is None or found.pairs < criterion.min_pairs or not found.decidable:
        return "TooFewPairs"
    return ""


def _spread(share: float) -> float:
    """Standard deviation of whether an answer is within a limit that this share is within."""
    inner = min(max(share, 0.005), 0.995)
    return math.sqrt(inner * (1 - inner))


def _share_limit(criterion: Criterion) -> float:
    if criterion.metric in LATENCIES:
        return 0.0
    return criterion.margin if criterion.require == "Better" else -criterion.margin


def _is_frozen(criterion: Criterion, indicator: Indicator) -> bool:
    """Whether the warm-up gave all the numbers that the criterion is counted by."""
    has_limit = criterion.metric not in LATENCIES or indicator.baseline_limit_s is not None
    return has_limit and (criterion.weight == "Requests" or indicator.heaviest is not None)


def _fail_levels(rules: Rules, cases: list[_Case]) -> dict[str, float]:
    """The level at which each criterion is tested for Fail.

    Holm's step-down without p-values: among m criteria not yet refuted, each is tested at alpha / m; as soon as some
    are refuted, m falls and the rest is tested again. Refuted ones keep the level at which they were.
    """
    levels = {case.criterion.name: rules.fail_alpha for case in cases}
    open_cases = [case for case in cases if not case.criterion.informational]
    while open_cases:
        level = rules.fail_alpha / len(open_cases)
        levels |= {case.criterion.name: level for case in open_cases}
        still = [case for case in open_cases if not case.fails(level)]
        if len(still) == len(open_cases):
            break
        open_cases = still
    return levels


def _result(rules: Rules, case: _Case, fail_alpha: float) -> CriterionResult:
    c, found = case.criterion, case.found
    outcome: Outcome = "Pass" if case.passes(rules.pass_alpha) else "Fail" if case.fails(fail_alpha) else "Inconclusive"
    gap = case.gap or _why_open(case, outcome, rules.pass_alpha, fail_alpha)
    return CriterionResult(
        name=c.name,
        metric=c.metric,
        weight=c.weight,
        traffic_class=c.traffic_class,
        quantile=c.quantile,
        require=c.require,
        margin=c.margin,
        critical=c.critical,
        informational=c.informational,
        outcome=outcome,
        gap=gap,
        candidate=case.candidate,
        baseline=case.baseline,
        limit=case.limit,
        difference=found.mean if found else None,
        lower=found.lower(rules.pass_alpha) if found else None,
        upper=found.upper(fail_alpha) if found else None,
        pass_alpha=rules.pass_alpha,
        fail_alpha=fail_alpha,
        pairs=found.pairs if found else 0,
        min_pairs=c.min_pairs,
        needed=_needed(case, gap, rules.pass_alpha, fail_alpha),
        blocks=found.blocks if found else 0,
        block_s=found.block_s if found else 0,
        baseline_limit_s=case.baseline_limit_s,
        challenger_limit_s=case.challenger_limit_s,
        position=case.position,
        between=_between(case),
    )


def _why_open(case: _Case, outcome: Outcome, pass_alpha: float, fail_alpha: float) -> Gap:
    if outcome != "Inconclusive":
        return ""
    return "ThresholdDrifted" if case.proven(pass_alpha) or case.refuted(fail_alpha) else "Undecided"


def _between(case: _Case) -> tuple[float, float] | None:
    if not case.levels:
        return None
    return min(level.least for level in case.levels), max(level.most for level in case.levels)


def _needed(case: _Case, gap: Gap, pass_alpha: float, fail_alpha: float) -> int:
    """Further pairs until a decision, if the mean stays and the interval shrinks with the root of the pairs.

    A short run is decided by its wider interval, or by the usual one as soon as blocks are long enough for that.
    """
    found = case.found
    if gap == "TooFewPairs":
        have, blocks = (found.pairs, found.blocks) if found else (0, 0)
        whole = math.ceil(have / blocks * MIN_BLOCKS) if blocks else 0
        return max(case.criterion.min_pairs, whole) - have
    if gap != "Undecided" or found is None or found.mean == case.limit:
        return 0
    bound = found.lower(pass_alpha) if found.mean > case.limit else found.upper(fail_alpha)
    ratio = (found.mean - bound) / (found.mean - case.limit)
    enough = min(found.pairs * ratio * ratio, max(found.full, found.pairs * ratio * ratio / found.caution))
    return min(_MOST_NEEDED, max(1, math.ceil(enough - found.pairs)))


def _figure(criterion: Criterion, results: ArmEvidence) -> float | None:
    if criterion.metric in LATENCIES:
        value = histogram_of(results, criterion.metric).quantile(criterion.quantile or 0.5)
        return value if math.isfinite(value) else None
    failures = sum(results.failed.values(), Amount())
    counted = failures if criterion.metric == "Failures" else results.within_slo
    ended = results.completed + failures
    if not ended.requests or not ended.bytes:
        return None
    return counted.bytes / ended.bytes if criterion.weight == "Tokens" else counted.requests / ended.requests
