"""`ArmMatches`: how often an arm's answers were the baseline's, and how much of that is no chance. Numbers only.

No verdict looks at it: answers that differ may be as good. A run may end by it (`endConditions.matchRate`). A pair
counts -1 where the answers differ and 0 where they match, so the bound is that of a criterion (`interval`), and 1 plus
it a share. It holds at every look.
"""

import msgspec
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.evidence import Matches
from shadowrun_mirror.reasons import DIFFERENCES, UNCOMPARED

from shadowrun_operator.judge.interval import estimate
from shadowrun_operator.judge.merge import Merged
from shadowrun_operator.judge.rules import Rules

MIN_COMPARED = 200
"""Fewest compared pairs for a bound, as is the default of a criterion's `minPairs`."""


class ArmMatches(msgspec.Struct, frozen=True, kw_only=True):
    """Of one challenger in one class; class "" is all together.

    `share` is matched / compared. `lower` is what the true share is at least, with the confidence of a Pass; told over
    all classes only, None where there is too little for it. `differed` and `uncompared` are pairs by
    `reasons.Likeness`.
    """

    arm: str
    traffic_class: str
    compared: int
    matched: int
    share: float | None
    lower: float | None = None
    differed: dict[str, int] = {}
    uncompared: dict[str, int] = {}


def matches(rules: Rules, evidence: Merged) -> tuple[ArmMatches, ...]:
    """Every challenger, the candidate first, in all classes together and in each; empty where nothing is compared."""
    of_classes = {name: c.matches for name, c in sorted(evidence.counted.classes.items()) if c.matches}
    arms = [arm for arm in rules.arms[1:] if any(arm in counted for counted in of_classes.values())]
    whole = [_of_arm(arm, "", _together(arm, of_classes), _lower(rules, evidence, arm)) for arm in arms]
    return (
        *whole,
        *(_of_arm(arm, name, of_classes[name][arm]) for name in of_classes for arm in arms if arm in of_classes[name]),
    )


def of_candidate(rules: Rules, found: tuple[ArmMatches, ...]) -> ArmMatches | None:
    """The candidate over all classes."""
    return next((m for m in found if m.arm == rules.candidate and not m.traffic_class), None)


def rate_is_proven(rules: Rules, found: tuple[ArmMatches, ...]) -> bool:
    """Whether the share of matches is the one that the spec asks for, or more."""
    ours = of_candidate(rules, found)
    return rules.match_rate is not None and ours is not None and (ours.lower or 0.0) >= rules.match_rate


def _together(arm: str, of_classes: dict[str, dict[str, Matches]]) -> Matches:
    whole = Matches()
    for counted in of_classes.values():
        whole = whole.merged(counted.get(arm, Matches()))
    return whole


def _of_arm(arm: str, traffic_class: str, counted: Matches, lower: float | None = None) -> ArmMatches:
    def of(kinds: tuple[str, ...]) -> dict[str, int]:
        return {str(kind): n for kind in kinds if (n := counted.pairs.get(kind, 0))}

    return ArmMatches(
        arm=arm,
        traffic_class=traffic_class,
        compared=counted.compared,
        matched=counted.matched,
        share=counted.matched / counted.compared if counted.compared else None,
        lower=lower,
        differed=of(DIFFERENCES),
        uncompared=of(UNCOMPARED),
    )


def _lower(rules: Rules, evidence: Merged, arm: str) -> float | None:
    series = evidence.counted.differing
    beside = () if rules.control in (None, arm) else (series.get(rules.control or "", BlockSeries()),)
    found = estimate(series.get(arm, BlockSeries()), rules.block_s, beside)
    if found is None or found.pairs < MIN_COMPARED or not found.decidable:
        return None
    return 1 + found.lower(rules.pass_alpha)
