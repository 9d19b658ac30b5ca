"""Each criterion by itself: proven (Pass), refuted (Fail) or open (Inconclusive), with every number it rests on.

z is counted so that more is better for the candidate. With `limit` for the mean of z:

    Better     limit 0 for latencies (a margin is inside z), +margin for shares
    NotWorse   limit 0 for latencies (the margin is inside z), -margin for shares
    Pass       the lower bound at `pass_alpha` is above the limit: each false Pass has at most that probability, and the
               run's too, because Pass needs every criterion (intersection-union)
    Fail       the upper bound is below the limit, at `fail_alpha` shared among the gating criteria by Holm's method

Ties may shift a latency's limit (`thresholds.tie_shift`). A refuted Better means: proven not better. Informational
criteria are judged alone (no Holm) and take no part in the verdict. A critical criterion is judged like any other; when
several are refuted it is named first.
"""

import math
from typing import Literal

import msgspec
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.config import Metric
from shadowrun_mirror.evidence import ArmEvidence, Window

from shadowrun_operator.judge.facts import Facts
from shadowrun_operator.judge.interval import MIN_BLOCKS, Estimate, estimate
from shadowrun_operator.judge.merge import Merged, together
from shadowrun_operator.judge.rules import LATENCIES, Criterion, Require, Rules
from shadowrun_operator.judge.thresholds import Position, histogram_of, position, tie_shift

Outcome = Literal["Pass", "Fail", "Inconclusive"]
Gap = Literal["", "NoThreshold", "TooFewPairs", "ThresholdDrifted", "Undecided"]
_MOST_NEEDED = 1_000_000_000


class CriterionResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the evidence says about one criterion.

    `candidate` and `baseline` are the metric itself: seconds at the quantile (None where failures reach it or nothing
    was counted) or a share. `difference` is the mean of z, and `lower`, `upper` its one-sided bounds at `pass_alpha`
    and `fail_alpha` (Holm's level for this criterion). `needed` estimates the further pairs until it is decided; 0 when
    it is decided or cannot be told. `gap` says why it is open.
    """

    name: str
    metric: Metric
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


class _Case(msgspec.Struct, frozen=True, kw_only=True):
    """A criterion with all that its outcome depends on."""

    criterion: Criterion
    limit: float
    found: Estimate | None
    gap: Gap  # a reason that forbids a decision whatever the bounds say
    baseline_limit_s: float | None
    challenger_limit_s: float | None
    position: Position | None
    baseline: float | None
    candidate: float | None

    def passes(self, alpha: float) -> bool:
        if self.gap or self.found is None or self.found.mean <= self.limit:
            return False
        return self.found.lower(alpha) > self.limit

    def fails(self, alpha: float) -> bool:
        if self.gap or self.found is None or self.found.mean >= self.limit:
            return False
        return self.found.upper(alpha) < self.limit


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
    found = estimate(series_of(evidence, rules.candidate, criterion.name), rules.block_s)
    indicator = facts.indicator(criterion.name)
    limit_s = indicator.baseline_limit_s if indicator else None
    limit, place = _share_limit(criterion), None
    if criterion.metric in LATENCIES and limit_s is not None:
        before = histogram_of(warm_up[rules.baseline], criterion.metric)
        limit = tie_shift(criterion, before, limit_s)
        place = position(histogram_of(counted[rules.baseline], criterion.metric), limit_s, before.count)
    return _Case(
        criterion=criterion,
        limit=limit,
        found=found,
        gap=_gap(criterion, indicator is not None and (limit_s is not None or _is_share(criterion)), found, place),
        baseline_limit_s=limit_s,
        challenger_limit_s=indicator.challenger_limit_s if indicator else None,
        position=place,
        baseline=_figure(criterion, counted[rules.baseline]),
        candidate=_figure(criterion, counted[rules.candidate]),
    )


def _gap(criterion: Criterion, has_limit: bool, found: Estimate | None, place: Position | None) -> Gap:
    if not has_limit:
        return "NoThreshold"
    if found is None or found.pairs < criterion.min_pairs or not found.decidable:
        return "TooFewPairs"
    if place is not None and criterion.quantile is not None and place.drifted(criterion.quantile):
        return "ThresholdDrifted"
    return ""


def _share_limit(criterion: Criterion) -> float:
    if criterion.metric in LATENCIES:
        return 0.0
    return criterion.margin if criterion.require == "Better" else -criterion.margin


def _is_share(criterion: Criterion) -> bool:
    return criterion.metric not in LATENCIES


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
    gap: Gap = case.gap or ("Undecided" if outcome == "Inconclusive" else "")
    return CriterionResult(
        name=c.name,
        metric=c.metric,
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
    )


def _needed(case: _Case, gap: Gap, pass_alpha: float, fail_alpha: float) -> int:
    """Further pairs until a decision, if the mean stays and the interval shrinks with the root of the pairs."""
    found = case.found
    if gap == "TooFewPairs":
        have, blocks = (found.pairs, found.blocks) if found else (0, 0)
        whole = math.ceil(have / blocks * MIN_BLOCKS) if blocks else 0
        return max(case.criterion.min_pairs, whole) - have
    if gap != "Undecided" or found is None or found.mean == case.limit:
        return 0
    bound = found.lower(pass_alpha) if found.mean > case.limit else found.upper(fail_alpha)
    ratio = (found.mean - bound) / (found.mean - case.limit)
    return min(_MOST_NEEDED, max(1, math.ceil(found.pairs * (ratio * ratio - 1))))


def _figure(criterion: Criterion, results: ArmEvidence) -> float | None:
    if criterion.metric in LATENCIES:
        value = histogram_of(results, criterion.metric).quantile(criterion.quantile or 0.5)
        return value if math.isfinite(value) else None
    failed = sum(a.requests for a in results.failed.values())
    ended = results.completed.requests + failed
    if not ended:
        return None
    return (failed if criterion.metric == "Failures" else results.within_slo.requests) / ended
