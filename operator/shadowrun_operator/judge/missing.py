"""`WorstCase`: what a criterion could have been if all that was selected had become pairs. For readers; no gate.

Nothing is known of a request that was selected and never became a pair. With a share m of them missing and z between -1
and 1, the mean over all lies between (1 - m) z - m and (1 - m) z + m (Manski, Partial Identification of Probability
Distributions, 2003, ch. 1). A criterion that holds even at the lower end can't be owed to what was shed. Most don't:
5 % missing are 5 points, more than most margins, which is why the gates are the floors of coverage. For a criterion in
tokens, m is the larger share of the two, of the requests and of their tokens: weights are bounded, so it lies between.
"""

import msgspec

from shadowrun_operator.judge.criteria import CriterionResult
from shadowrun_operator.judge.funnel import Count, Funnel
from shadowrun_operator.judge.rules import Rules


class WorstCase(msgspec.Struct, frozen=True, kw_only=True):
    """Of one criterion: `missing` of `selected` requests, and the bounds of the mean of z over all that was selected.

    `holds` says whether it would hold with every missing pair lost, its own uncertainty included.
    """

    criterion: str
    traffic_class: str
    selected: int
    missing: int
    share: float
    low: float
    high: float
    holds: bool


def worst_cases(rules: Rules, funnel: Funnel, results: tuple[CriterionResult, ...]) -> tuple[WorstCase, ...]:
    """The bounds of every criterion that has pairs, in the order of the rules."""
    found = (_worst_case(rules, funnel, result) for result in results)
    return tuple(case for case in found if case is not None)


def _worst_case(rules: Rules, funnel: Funnel, result: CriterionResult) -> WorstCase | None:
    selected, pairs = _selected(rules, funnel, result.traffic_class)
    if result.difference is None or selected.requests <= 0:
        return None
    missing = max(0, selected.requests - pairs.requests)
    m = missing / selected.requests
    if result.weight == "Tokens" and selected.tokens > 0:
        m = max(m, (selected.tokens - pairs.tokens) / selected.tokens)
    proven = -1.0 if result.lower is None else result.lower
    return WorstCase(
        criterion=result.name,
        traffic_class=result.traffic_class,
        selected=selected.requests,
        missing=missing,
        share=m,
        low=(1 - m) * result.difference - m,
        high=(1 - m) * result.difference + m,
        holds=result.outcome == "Pass" and (1 - m) * proven - m > result.limit,
    )


def _selected(rules: Rules, funnel: Funnel, traffic_class: str) -> tuple[Count, Count]:
    """Selected and pairs of a class, or of the run; what is in flight still counts as missing."""
    if not traffic_class:
        return funnel.selected, funnel.pairs
    found = next((c for c in funnel.classes if c.name == traffic_class), None)
    oversized = funnel.oversized if traffic_class in rules.oversized_classes else Count()
    return (oversized, Count()) if found is None else (found.selected + oversized, found.pairs)
