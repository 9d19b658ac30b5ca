"""The judge's part of the status: counts, criteria and classes as the resource shows them. It decides nothing.

Usable while a run is active (evidence not final) and at its end. Where counters contradict each other a difference of
two can be negative, which the resource does not allow: it is shown as 0 here and as it is in the report.
"""

from typing import get_args

from shadowrun_operator.api import status as api
from shadowrun_operator.judge.criteria import CriterionResult
from shadowrun_operator.judge.figures import at_least, percent
from shadowrun_operator.judge.funnel import ArmCounts, Count, Funnel
from shadowrun_operator.judge.matches import ArmMatches, of_candidate
from shadowrun_operator.judge.rules import Rules
from shadowrun_operator.judge.words import criterion_note, figure, interval, requirement

_ARMS: tuple[api.Arm, ...] = get_args(api.Arm)
_KINDS: tuple[api.DifferenceKind, ...] = get_args(api.DifferenceKind)


def shown(number: int) -> int:
    """A count as the resource can show it."""
    return max(0, number)


def funnel_status(funnel: Funnel) -> api.Funnel:
    """The funnel in requests and in tokens; the tokens are estimated, as is the default of `tokenBasis`."""
    return api.Funnel(requests=_counts(funnel, "requests"), tokens=_counts(funnel, "tokens"))


def dropped_status(funnel: Funnel) -> tuple[api.Dropped, ...]:
    """Why selected requests reached no arm: the reasons of the most requests, as many as the status has room for."""
    found = [(reason, count) for reason, count in funnel.dropped.items() if count.requests > 0]
    shown_ones = sorted(found, key=lambda entry: -entry[1].requests)[: api.MAX_DROPPED]
    return tuple(
        api.Dropped(reason=reason, requests=count.requests, tokens=shown(count.tokens))
        for reason, count in found
        if (reason, count) in shown_ones
    )


def failures_status(funnel: Funnel) -> tuple[api.Failure, ...]:
    """Why arms did not answer properly, by reason; the tokens are in the report."""
    reasons = sorted({reason for arm in funnel.arms.values() for reason in arm.failed})
    counted = [
        (r, *(shown(funnel.arms.get(a, ArmCounts()).failed.get(r, Count()).requests) for a in _ARMS)) for r in reasons
    ]
    return tuple(
        api.Failure(reason=reason, baseline=baseline, candidate=candidate, control=control)
        for reason, baseline, candidate, control in counted
        if baseline or candidate or control
    )


def within_slo_status(rules: Rules, funnel: Funnel) -> str:
    """Shares of ended requests within the SLO, candidate and baseline; "" before any has ended."""
    if funnel.pairs.requests <= 0:
        return ""
    ours, base = (funnel.arms.get(arm, ArmCounts()).within_slo for arm in (rules.candidate, rules.baseline))
    ended = funnel.pairs.requests
    return f"{percent(ours.requests, ended)} (baseline {percent(base.requests, ended)})"


def criteria_status(results: tuple[CriterionResult, ...]) -> tuple[api.CriterionStatus, ...]:
    """Every criterion with its figures as text."""
    return tuple(
        api.CriterionStatus(
            name=r.name,
            traffic_class=r.traffic_class,
            outcome=r.outcome,
            observed=figure(r, r.candidate) if r.pairs else "",
            baseline=figure(r, r.baseline) if r.pairs else "",
            limit=requirement(r),
            interval=interval(r) if r.pairs else "",
            pairs=r.pairs,
            needed=r.needed,
            reason=r.gap,
            message=api.shortened(criterion_note(r), api.NOTE_LENGTH),
            informational=r.informational,
        )
        for r in results
    )


def comparison_status(rules: Rules, found: tuple[ArmMatches, ...]) -> api.ComparisonStatus | None:
    """How often the candidate's answers were the baseline's, and the control's share beside it; None without any."""
    ours = of_candidate(rules, found)
    if ours is None:
        return None
    equal = next((m for m in found if m.arm == rules.control and not m.traffic_class), None)
    return api.ComparisonStatus(
        compared=ours.compared,
        matched=ours.matched,
        match_rate="" if ours.lower is None else at_least(ours.lower),
        control=percent(equal.matched, equal.compared) if equal is not None and equal.compared else "",
        differed=tuple(api.Difference(kind=k, pairs=ours.differed[k]) for k in _KINDS if k in ours.differed),
    )


def classes_status(rules: Rules, funnel: Funnel) -> tuple[api.ClassStatus, ...]:
    """Coverage of every class, by the same figures as the floors are held against."""
    found: list[api.ClassStatus] = []
    for c in funnel.classes:
        whole = c.selected + (funnel.oversized if c.name in rules.oversized_classes else Count())
        pairs = c.pairs
        found.append(
            api.ClassStatus(
                name=c.name,
                selected_requests=shown(whole.requests),
                selected_tokens=shown(whole.tokens),
                pairs=shown(pairs.requests),
                pair_tokens=shown(pairs.tokens),
                request_coverage=percent(pairs.requests, whole.requests),
                token_coverage=percent(pairs.tokens, whole.tokens),
            )
        )
    return tuple(found)


def _counts(funnel: Funnel, unit: str) -> api.FunnelCounts:
    def of(count: Count) -> int:
        return shown(count.requests if unit == "requests" else count.tokens)

    return api.FunnelCounts(
        seen=of(funnel.seen),
        not_selected=of(funnel.not_selected),
        selected=of(funnel.selected),
        dropped=of(funnel.drops),
        in_transit=of(funnel.in_transit),
        admitted=of(funnel.admitted),
        arms=tuple(
            api.ArmFunnel(
                name=arm,
                completed=of(funnel.arms[arm].completed),
                within_slo=of(funnel.arms[arm].within_slo),
                failed=of(funnel.arms[arm].failures),
                in_flight=of(funnel.arms[arm].in_flight),
            )
            for arm in _ARMS
            if arm in funnel.arms
        ),
    )
