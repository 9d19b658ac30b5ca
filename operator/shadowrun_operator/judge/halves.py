"""A run whose arms change places halfway, by halves: what holds must hold in each half by itself.

In the second half each arm stands where the other stood in the first, so a node that is slow works against either arm
once. With `Pass` and `Fail` of a half as in `criteria`:

    Pass       it passes in both halves
    Fail       it fails in both halves
    open       anything else: HalvesDisagree where the halves' intervals lie apart, else for what one of them lacks

Every half is a run of its own with the same frozen limits, so nothing weighs one against the other, and none can make
up for the other. A false Pass needs a false Pass of either half, and a false Fail one too, so neither is more frequent
than without halves. The bounds said of the whole are the outer ones: they hold for the candidate's difference wherever
the arms stand, hence for its mean over both places too. The price is that each half needs its pairs.

Being a run of its own, a half must be as sound as one: `apart` has what rules about evidence are asked of. Which rules
those are is said in `guards`; this module must not object to anything.
"""

import msgspec
from shadowrun_mirror.evidence import CaptureWindow, Window

from shadowrun_operator.judge.criteria import CriterionResult, Gap, judged
from shadowrun_operator.judge.facts import Facts
from shadowrun_operator.judge.funnel import Funnel, funnel
from shadowrun_operator.judge.merge import SECOND_HALF, Merged
from shadowrun_operator.judge.rules import Rules

_UNKNOWN: tuple[Gap, ...] = ("NoThreshold", "TooFewPairs")
_GAPS: tuple[Gap, ...] = (*_UNKNOWN, "ThresholdDrifted", "Undecided")


def outcomes(rules: Rules, evidence: Merged, facts: Facts) -> tuple[CriterionResult, ...]:
    """Every criterion as the run is judged: over all that was counted, or by halves where the arms change places."""
    whole = judged(rules, evidence, facts)
    if not rules.crossover:
        return whole
    first, second = (judged(rules, half, facts) for half in halves_of(evidence))
    return tuple(_joined(*results) for results in zip(whole, first, second, strict=True))


class Half(msgspec.Struct, frozen=True, kw_only=True):
    """One half as if it were the run; `name` is what people call it."""

    name: str
    evidence: Merged
    funnel: Funnel


def apart(rules: Rules, evidence: Merged) -> tuple[Half, ...]:
    """Both halves with their funnels; none where the arms don't change places."""
    if not rules.crossover:
        return ()
    return tuple(
        Half(
            name=name,
            evidence=half,
            funnel=funnel(half, rules.baseline, superset=rules.superset, external=rules.external),
        )
        for name, half in zip(("first", "second"), halves_of(evidence), strict=True)
    )


def halves_of(evidence: Merged) -> tuple[Merged, Merged]:
    """The evidence with either half as all that is counted; the second is empty until the arms have changed places."""
    windows = evidence.halves or (evidence.counted, Window(id=SECOND_HALF))
    captures = evidence.captures_of_halves or (evidence.capture, CaptureWindow())
    stranded = evidence.stranded_of_halves or (evidence.stranded, {})
    first, second = (
        msgspec.structs.replace(evidence, counted=window, capture=copies, stranded=left)
        for window, copies, left in zip(windows, captures, stranded, strict=True)
    )
    return first, second


def _joined(whole: CriterionResult, first: CriterionResult, second: CriterionResult) -> CriterionResult:
    both = (first, second)
    means = [half.difference for half in both if half.difference is not None]
    lowest, highest = [half.lower for half in both], [half.upper for half in both]
    return msgspec.structs.replace(
        whole,
        outcome=first.outcome if first.outcome == second.outcome else "Inconclusive",
        gap=_gap(first, second),
        difference=sum(means) / len(means) if means else None,
        lower=None if None in lowest else min(low for low in lowest if low is not None),
        upper=None if None in highest else max(high for high in highest if high is not None),
        fail_alpha=min(half.fail_alpha for half in both),
        pairs=sum(half.pairs for half in both),
        needed=_needed(first, second),
        blocks=sum(half.blocks for half in both),
        position=None,
        between=None,
        halves=both,
    )


def _gap(first: CriterionResult, second: CriterionResult) -> Gap:
    if first.outcome == second.outcome != "Inconclusive":
        return ""
    if _lie_apart(first, second):
        return "HalvesDisagree"
    return min((half.gap for half in (first, second) if half.gap), key=_GAPS.index)


def _lie_apart(first: CriterionResult, second: CriterionResult) -> bool:
    """Whether the intervals of the halves have no mean in common; always so where one passes and the other fails."""
    ends = (first.lower, first.upper, second.lower, second.upper)
    if first.gap in _UNKNOWN or second.gap in _UNKNOWN or None in ends:
        return False
    low, high, other_low, other_high = (end for end in ends if end is not None)
    return low > other_high or other_low > high


def _needed(first: CriterionResult, second: CriterionResult) -> int:
    """Further pairs: until the arms change places those of both halves; after that the first half's are what it has."""
    is_open = first.outcome == "Inconclusive"
    if second.pairs:
        return 0 if is_open else second.needed
    if is_open and not first.needed:
        return 0
    return first.needed + max(second.needed, first.pairs + first.needed)
