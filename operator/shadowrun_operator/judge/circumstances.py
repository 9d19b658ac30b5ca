"""`Circumstances`: under which conditions the pairs were measured, for readers of the report. Numbers only, no verdict.

Everything but lag, live path and rates is about the counted windows. Latencies are seconds, shares lie in [0, 1], and
None stands for a number that nothing was counted for. What of this stands against a verdict is in `guards`.
"""

import math
from collections.abc import Sequence

import msgspec
from shadowrun_mirror.evidence import Amount, ClassEvidence, LivePath, PrimaryEvidence, Window
from shadowrun_mirror.histogram import Histogram
from shadowrun_mirror.reasons import FailureReason, FlagReason

from shadowrun_operator.judge.facts import Facts, RateChange, SpecChange
from shadowrun_operator.judge.figures import percent, seconds
from shadowrun_operator.judge.funnel import ArmCounts, Funnel
from shadowrun_operator.judge.hours import Hours, hours
from shadowrun_operator.judge.live_path import Comparison, compared
from shadowrun_operator.judge.merge import Merged
from shadowrun_operator.judge.parity import ArmParity, parities
from shadowrun_operator.judge.rules import Rules


class FlagCount(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs of a class (or of all, "") that carry a flag, and their share of all pairs there."""

    reason: str
    traffic_class: str
    pairs: int
    share: float


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution of times in seconds; None where failures reach the quantile or nothing was counted."""

    count: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    most: float | None = None


class LineageNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Conversations among the selected copies. `broken_share` is of all turns that go on from an earlier one.

    Many conversations may begin alike, so an opening is no identity; `per_opening` says how many share one on average.
    """

    openings: int
    conversations: int
    continued: int
    broken: int
    joined_late: int
    broken_share: float | None
    per_opening: float | None


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver made of the pairs: the primary by capture's word, an arm by its results.

    `cut` is what the customer cut short; `unknown` are pairs of which capture said nothing, or which have not ended.
    """

    receiver: str
    answered: int = 0
    refused: int = 0
    failed: int = 0
    cut: int = 0
    unknown: int = 0


class ClassWeight(msgspec.Struct, frozen=True, kw_only=True):
    """One pair of a class stands for `weight` requests of the live traffic, relative to the other classes."""

    traffic_class: str
    rate: float
    weight: float


class WeightedShare(msgspec.Struct, frozen=True, kw_only=True):
    """Share of answers within the SLO as it would be in live traffic: every class weighted by 1 / its rate."""

    arm: str
    within_slo: float | None


class Customers(msgspec.Struct, frozen=True, kw_only=True):
    """Customers' requests of one kind: before copying began, with copying on, or in paused slots."""

    kind: str
    requests: int
    errors: float | None
    first_byte: Spread


class WarmUp(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs before anything counted, in no figure of the report but this; the baseline's limits are from `measured`."""

    pairs: int = 0
    measured: int = 0
    seconds: float | None = None


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """All of them; `queue_effect` is a sentence, "" where no pair waited. `customers` is empty without capture."""

    mode: str = ""
    flags: tuple[FlagCount, ...] = ()
    queue: Spread = Spread()
    queue_effect: str = ""
    lineage: LineageNumbers | None = None
    outcomes: tuple[Outcomes, ...] = ()
    primary_first_byte: Spread = Spread()
    lag: Spread = Spread()
    rates: tuple[RateChange, ...] = ()
    changes: tuple[SpecChange, ...] = ()
    weights: tuple[ClassWeight, ...] = ()
    weighted: tuple[WeightedShare, ...] = ()
    customers: tuple[Customers, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    warm_up: WarmUp = WarmUp()
    hours: Hours = Hours()
    parities: tuple[ArmParity, ...] = ()
    attempt: int = 1


def circumstances(rules: Rules, evidence: Merged, facts: Facts, funnel: Funnel, whole: ClassEvidence) -> Circumstances:
    """All circumstances of a run; `whole` is the evidence of all classes together."""
    watch = facts.watch
    return Circumstances(
        mode="External" if rules.external else "Proxy",
        flags=_flags(evidence, funnel),
        queue=spread(whole.queue),
        queue_effect=_queue_effect(whole.flagged, whole.queue, funnel),
        lineage=_lineage(evidence),
        outcomes=_outcomes(rules, whole.primary, funnel),
        primary_first_byte=spread(whole.primary.first_byte),
        lag=spread(evidence.lag),
        rates=facts.rates,
        changes=facts.changes,
        weights=_weights(rules),
        weighted=_weighted(rules, funnel),
        customers=_customers(evidence, watch.before if watch is not None else LivePath()),
        warm_up=_warm_up(evidence),
        hours=hours(rules, evidence),
        parities=parities(rules, evidence.counted, whole),
        attempt=facts.attempt,
        comparisons=compared(watch, rules.live_path) if watch is not None and rules.live_path is not None else (),
    )


def flagged_pairs(evidence: Merged, reason: FlagReason, traffic_class: str) -> int:
    """Counted pairs of a class (all of them: "") with a flag."""
    return sum(
        of_class.flagged.get(reason.value, Amount()).requests
        for name, of_class in evidence.counted.classes.items()
        if traffic_class in ("", name)
    )


def spread(histogram: Histogram) -> Spread:
    """The quantiles of a histogram."""
    if not histogram.count:
        return Spread()
    p50, p95, p99, most = (_finite(histogram.quantile(p)) for p in (0.5, 0.95, 0.99, 1.0))
    return Spread(count=histogram.count, p50=p50, p95=p95, p99=p99, most=most)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _warm_up(evidence: Merged) -> WarmUp:
    def ended(window: Window) -> int:
        return sum(c.admitted.requests - c.in_flight.requests for c in window.classes.values())

    first, last = evidence.warm_up.first_pair, evidence.warm_up.last_pair
    return WarmUp(
        pairs=ended(evidence.warm_up),
        measured=ended(evidence.calibration),
        seconds=None if first is None or last is None else last - first,
    )


def _flags(evidence: Merged, funnel: Funnel) -> tuple[FlagCount, ...]:
    scopes = [("", funnel.pairs.requests), *((c.name, c.pairs.requests) for c in funnel.classes)]
    counted = [
        (reason, name, flagged_pairs(evidence, reason, name), whole) for reason in FlagReason for name, whole in scopes
    ]
    return tuple(
        FlagCount(reason=reason.value, traffic_class=name, pairs=pairs, share=pairs / whole)
        for reason, name, pairs, whole in counted
        if pairs and whole > 0
    )


def _queue_effect(flagged: dict[str, Amount], queue: Histogram, funnel: Funnel) -> str:
    waited = flagged.get(FlagReason.QUEUED.value, Amount()).requests
    if not waited:
        return ""
    longest = spread(queue).most or 0.0
    return (
        f"{waited} of {funnel.pairs.requests} pairs ({percent(waited, funnel.pairs.requests)}) waited for a slot, up to"
        f" {seconds(longest)}. Every arm got them later than the primary did, all arms together; no latency of an arm"
        " contains the wait. The arms' load was smoother than the customers': what happens in bursts above the cap on"
        " pairs in flight was not measured."
    )


def _lineage(evidence: Merged) -> LineageNumbers | None:
    found = evidence.counted.lineage
    turns = found.continued + found.broken
    if not (turns or found.conversations or found.openings or found.joined_late):
        return None
    return LineageNumbers(
        openings=found.openings,
        conversations=found.conversations,
        continued=found.continued,
        broken=found.broken,
        joined_late=found.joined_late,
        broken_share=found.broken / turns if turns else None,
        per_opening=found.conversations / found.openings if found.openings else None,
    )


def _outcomes(rules: Rules, primary: PrimaryEvidence, funnel: Funnel) -> tuple[Outcomes, ...]:
    said = [a.requests for a in (primary.answered, primary.refused, primary.failed, primary.cut)]
    if not any(said):
        return ()
    answered, refused, failed, cut = said
    unknown = max(0, funnel.admitted.requests - sum(said))
    found = [Outcomes(receiver="primary", answered=answered, refused=refused, failed=failed, cut=cut, unknown=unknown)]
    return (*found, *(_arm_outcomes(arm, funnel.arms.get(arm, ArmCounts())) for arm in rules.arms))


def _arm_outcomes(arm: str, counts: ArmCounts) -> Outcomes:
    refused = sum(c.requests for reason, c in counts.failed.items() if reason == FailureReason.HTTP_4XX)
    return Outcomes(
        receiver=arm,
        answered=counts.completed.requests,
        refused=refused,
        failed=counts.failures.requests - refused,
        unknown=counts.in_flight.requests,
    )


def _weights(rules: Rules) -> tuple[ClassWeight, ...]:
    highest = max(rules.class_rates.values(), default=0.0)
    return tuple(
        ClassWeight(traffic_class=name, rate=rate, weight=highest / rate) for name, rate in rules.class_rates.items()
    )


def _weighted(rules: Rules, funnel: Funnel) -> tuple[WeightedShare, ...]:
    weights = {w.traffic_class: w.weight for w in _weights(rules)}
    if not weights:
        return ()
    found: list[WeightedShare] = []
    for arm in rules.arms:
        parts = [(weights[c.name], c.arms.get(arm, ArmCounts()), c.pairs) for c in funnel.classes if c.name in weights]
        ended = sum(weight * pairs.requests for weight, _, pairs in parts)
        within = sum(weight * counts.within_slo.requests for weight, counts, _ in parts)
        found.append(WeightedShare(arm=arm, within_slo=within / ended if ended > 0 else None))
    return tuple(found)


def _customers(evidence: Merged, before: LivePath) -> tuple[Customers, ...]:
    since = LivePath(
        requests=evidence.off.requests - before.requests,
        errors=evidence.off.errors - before.errors,
        first_byte=evidence.off.first_byte.since(before.first_byte),
    )
    kinds: Sequence[tuple[str, LivePath]] = (("before", before), ("copying", evidence.on), ("paused", since))
    return tuple(
        Customers(kind=kind, requests=p.requests, errors=p.errors / p.requests, first_byte=spread(p.first_byte))
        for kind, p in kinds
        if p.requests > 0
    )
