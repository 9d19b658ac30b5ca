"""`WorstCase`: what a criterion could have been if all that was selected had become pairs. For readers; no gate.

Nothing is known of a request that was selected and never became a pair. With a share m of them missing and z between -1
and 1, the mean over all lies between (1 - m) z - m and (1 - m) z + m (Manski, Partial Identification of Probability
Distributions, 2003, ch. 1). A criterion that holds even at the lower end can't be owed to what was shed. Most don't:
5 % missing are 5 points, more than most margins, which is why the gates are the floors of coverage. For a criterion in
tokens, m is the share of its weight, and what is missing can have at most (`missing_weights` says why). That share
can exceed both those of the requests and of their tokens, because present requests weigh no more than the bound on
weights however long they are; so `coverage` holds it to a floor too.
"""

import msgspec
from shadowrun_mirror.blocks import STEPS

from shadowrun_operator.judge.criteria import CriterionResult, series_of
from shadowrun_operator.judge.facts import Facts
from shadowrun_operator.judge.funnel import BYTES, Count, Funnel, funnel
from shadowrun_operator.judge.merge import Merged
from shadowrun_operator.judge.rules import Rules


class WorstCase(msgspec.Struct, frozen=True, kw_only=True):
    """Of one criterion: `missing` of `selected` requests, and the bounds of the mean of z over all that was selected.

    `share` is the part missing, of the requests or (at most) of their weight. `holds` says whether it would hold with
    every missing pair lost, its own uncertainty included.
    """

    criterion: str
    traffic_class: str
    selected: int
    missing: int
    share: float
    low: float
    high: float
    holds: bool


def worst_cases(
    rules: Rules, funnel: Funnel, results: tuple[CriterionResult, ...], weights: dict[str, float]
) -> tuple[WorstCase, ...]:
    """The bounds of every criterion that has pairs, in the order of the rules. `weights` are the `missing_weights`."""
    found = (_worst_case(rules, funnel, result, weights.get(result.name)) for result in results)
    return tuple(case for case in found if case is not None)


def missing_weights(rules: Rules, evidence: Merged, facts: Facts) -> dict[str, float]:
    """By criterion in tokens: the largest share of its weight that may be missing, in [0, 1].

    A request of s bytes weighs ceil(STEPS s / heaviest), STEPS at most. So n missing ones of b bytes weigh no more than
    STEPS n, nor than STEPS b / heaviest + n. What was too large to be copied counts as STEPS each: its size may not be
    known. In flight is missing, as everywhere.
    """
    weighed = [c for c in rules.criteria if c.weight == "Tokens"]
    if not weighed:
        return {}
    sized = funnel(evidence, rules.baseline, superset=rules.superset, external=rules.external, counted_by=BYTES)
    shares: dict[str, float] = {}
    for c in weighed:
        indicator, weight = facts.indicator(c.name), series_of(evidence, rules.candidate, c.name).weight
        if indicator is None or not indicator.heaviest or not weight:
            continue
        selected, pairs = _selected(rules, sized, c.traffic_class)
        huge = sized.oversized if c.traffic_class in ("", *rules.oversized_classes) else Count()
        rest = selected - pairs - huge
        n, size = max(0, rest.requests), max(0, rest.tokens)
        missing = STEPS * huge.requests + min(STEPS * n, STEPS * size / indicator.heaviest + n)
        shares[c.name] = missing / (missing + weight)
    return shares


def _worst_case(rules: Rules, funnel: Funnel, result: CriterionResult, weight: float | None) -> WorstCase | None:
    selected, pairs = _selected(rules, funnel, result.traffic_class)
    if result.difference is None or selected.requests <= 0:
        return None
    missing = max(0, selected.requests - pairs.requests)
    m = missing / selected.requests if weight is None else weight
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
