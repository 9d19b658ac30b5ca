"""`ArmParity`: whether the arms met the same conditions, from what is counted of each. Numbers and sentences only.

* Order: the mirror writes to the arms in random order, so each is first equally often. How much being first is worth
  can't be told: latencies are not kept by order.
* Cache: the share of prompt tokens that the engine took from its cache. Equal arms that get the same requests have the
  same; a candidate's may differ, because that may be what is tested.
* Load: pairs are admitted jointly, so the arms get the same requests at the same time. How many an arm has in hand on
  average is the time it takes for its answers, over the time in which pairs were counted (Little's law); what failed
  has no time and is left out.
"""

import math

import msgspec
from shadowrun_mirror.evidence import ArmEvidence, ClassEvidence, Window

from shadowrun_operator.judge.display import cached_share
from shadowrun_operator.judge.merge import Merged, together
from shadowrun_operator.judge.rules import Rules

ORDER_TOLERANCE = 0.1
"""By how much an arm's share of first places may miss its turn. Being first is worth a fraction of a millisecond in a
cluster, so a tenth more of that is nothing; more than a tenth means that one arm is slow to be connected to."""
ORDER_SCORE = 3.0
CACHE_TOLERANCE = 0.1
CACHE_ANSWERS = 200


class ArmParity(msgspec.Struct, frozen=True, kw_only=True):
    """What one arm met. `first` is its share of first places, `in_hand` its mean number of requests in hand.

    `held_s` is the mean time of an answer, in seconds.
    """

    arm: str
    first: float | None
    cached: float | None
    in_hand: float | None
    held_s: float | None


def parities(rules: Rules, window: Window, whole: ClassEvidence) -> tuple[ArmParity, ...]:
    """Every arm over all classes of the window, which are `whole` together."""
    known = {arm: whole.arms.get(arm, ArmEvidence()) for arm in rules.arms}
    places = sum(result.sent_first for result in known.values())
    length = _length(window)
    return tuple(
        ArmParity(
            arm=arm,
            first=result.sent_first / places if places else None,
            cached=cached_share(result),
            in_hand=result.e2e.total / length if length else None,
            held_s=held_s(result),
        )
        for arm, result in known.items()
    )


def held_s(result: ArmEvidence) -> float | None:
    """Mean time of an answer that did not fail, in seconds."""
    answered = result.e2e.count - result.e2e.failed
    return result.e2e.total / answered if answered else None


def order_bias(rules: Rules, evidence: Merged) -> str:
    """A sentence where an arm was first too often or too rarely, beyond chance; "" where none was."""
    arms = together(evidence.counted, "").arms
    firsts = {arm: arms.get(arm, ArmEvidence()).sent_first for arm in rules.arms}
    places, turn = sum(firsts.values()), 1 / len(rules.arms)
    if not places:
        return ""
    chance = ORDER_SCORE * math.sqrt(turn * (1 - turn) / places)
    for arm, first in firsts.items():
        if abs(first / places - turn) > ORDER_TOLERANCE + chance:
            return (
                f"The {arm} was sent to first in {first} of {places} pairs ({first / places:.1%}) instead of about"
                f" {turn:.1%}: the arms did not meet the same moment."
            )
    return ""


def cache_bias(rules: Rules, evidence: Merged) -> str:
    """A sentence where the control's cache held another share than the baseline's, its equal; "" where it did not."""
    arms = together(evidence.counted, "").arms
    if rules.control is None:
        return ""
    base, control = arms.get(rules.baseline, ArmEvidence()), arms.get(rules.control, ArmEvidence())
    ours, theirs = cached_share(control), cached_share(base)
    enough = min(base.usage.answers, control.usage.answers) >= CACHE_ANSWERS
    if not enough or ours is None or theirs is None or abs(ours - theirs) <= CACHE_TOLERANCE:
        return ""
    return (
        f"The control took {ours:.1%} of its prompt tokens from its cache and the baseline, its equal, {theirs:.1%},"
        f" over {control.usage.answers} answers: something beside the patch tells the arms apart."
    )


def _length(window: Window) -> float:
    if window.first_pair is None or window.last_pair is None:
        return 0.0
    return window.last_pair - window.first_pair
