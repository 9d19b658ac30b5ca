"""Whether enough of what was selected became pairs, in the run and in the classes a verdict speaks of. Nothing else."""

import math

from shadowrun_mirror.evidence import ArmEvidence
from shadowrun_mirror.reasons import DropReason

from shadowrun_operator.judge.facts import Facts
from shadowrun_operator.judge.figures import percent, seconds
from shadowrun_operator.judge.funnel import Count, Funnel
from shadowrun_operator.judge.merge import Merged, together
from shadowrun_operator.judge.missing import missing_weights
from shadowrun_operator.judge.parity import held_s
from shadowrun_operator.judge.rules import CoverageFloor, Rules

SLOW_RATIO = 1.5
"""By so much longer a candidate holds a slot where its slowness, and not the number of slots, is named as the cause."""
LEAST_SELECTED = 20
"""A class that no criterion names is held to its floor from so many selected requests on. With fewer, two that were
shed would decide it (90 % of 19 are 17.1), and it is too small a part of any run to turn what is pooled."""


def lacking_coverage(rules: Rules, evidence: Merged, facts: Facts, funnel: Funnel) -> str:
    """A sentence with the numbers of the first scope below its floor, in requests or tokens; "" where none is.

    Scopes are the run, every class that a gating criterion names, and, where one is over all classes, every class with
    `LEAST_SELECTED` selected requests: else a run could drop most of a class and speak for it all the same. Of smaller
    classes the coverage is only shown. A request too large to be copied counts as selected in each class it may have
    belonged to, but does not make a class large enough.

    A gating criterion in tokens is held to the floor of its tokens by its weight too, which may be missing in a larger
    share than tokens are: none of those present weighs more than the bound.
    """
    named = {c.traffic_class for c in rules.gating}
    scopes = [("the run", "", funnel.selected, funnel.pairs)]
    scopes += [
        (f'class "{c.name}"', c.name, c.selected, c.pairs)
        for c in funnel.classes
        if c.name in named or ("" in named and c.selected.requests >= LEAST_SELECTED)
    ]
    for said, name, selected, pairs in scopes:
        whole = selected + (funnel.oversized if name in rules.oversized_classes else Count())
        found = _below(said, whole, pairs, rules.floor_of(name))
        if found:
            return found + _shed_because(rules, evidence, funnel, name)
    weights = missing_weights(rules, evidence, facts)
    for c in rules.gating:
        most, least = weights.get(c.name, 0.0), rules.floor_of(c.traffic_class).tokens
        if 1 - most < least:
            found = (
                f'By tokens, up to {most:.1%} of what weighs in "{c.name}" may be missing; {1 - least:.1%} is allowed.'
                " (A pair weighs no more than a bound, however long its prompt is.)"
            )
            return found + _shed_because(rules, evidence, funnel, c.traffic_class)
    return ""


def _below(said: str, selected: Count, pairs: Count, floor: CoverageFloor) -> str:
    for unit, have, whole, least in (
        ("requests", pairs.requests, selected.requests, floor.requests),
        ("tokens", pairs.tokens, selected.tokens, floor.tokens),
    ):
        if whole and have < least * whole:
            missing = math.ceil(least * whole) - have
            return (
                f"Only {percent(have, whole)} of the selected {unit} of {said} became pairs ({have} of {whole});"
                f" {least:.1%} is the floor, {missing} are missing."
            )
    return ""


def _shed_because(rules: Rules, evidence: Merged, funnel: Funnel, traffic_class: str) -> str:
    """Why no slot was free, where that is what most drops of a class are due to: a slow candidate, or too few slots."""
    dropped = next((c.dropped for c in funnel.classes if c.name == traffic_class), funnel.dropped)
    shed = sum((dropped.get(r.value, Count()) for r in (DropReason.SHED, DropReason.QUEUE_TIMEOUT)), Count())
    if 2 * shed.requests <= sum(dropped.values(), Count()).requests:
        return ""
    arms = together(evidence.counted, "").arms
    ours, base = (held_s(arms.get(arm, ArmEvidence())) for arm in (rules.candidate, rules.baseline))
    if ours is None or base is None:
        return ""
    slow = ours > SLOW_RATIO * base
    what = "the candidate holds them longer" if slow else "the arms are too small for the rate, or maxInFlight too low"
    return (
        f" {shed.requests} were shed while every slot was taken: {what} (an answer takes {seconds(ours)} of the"
        f" candidate and {seconds(base)} of the baseline, on average)."
    )
