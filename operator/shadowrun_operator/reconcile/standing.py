"""`Standing`: since when criteria and verdict have stood as they do, so that no end rests on a single look. Pure.

An end by decision must be due at two looks or more, at least `holding_s` apart, and at every look between them: what
one look saw may be pairs whose slower fellows are still on their way.
"""

from collections.abc import Iterable, Mapping

import msgspec
from shadowrun_mirror.blocks import BlockSeries

from shadowrun_operator.judge.criteria import Outcome

VERDICT = ""
"""The key of the verdict's own prospect beside the criteria's names."""
MATCH_RATE = "matchRate"
"""The key of whether `endConditions.matchRate` is proven; no criterion has a capital in its name."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome that is not Inconclusive, and the UTC seconds of the first look of those that all saw it."""

    outcome: Outcome
    since: float


def standings(before: Mapping[str, Standing], outcomes: Mapping[str, Outcome], now: float) -> dict[str, Standing]:
    """After another look: what stands as before keeps its time; what is inconclusive has none."""
    found = {}
    for name, outcome in outcomes.items():
        known = before.get(name)
        if outcome != "Inconclusive":
            same = known is not None and known.outcome == outcome
            found[name] = known if known is not None and same else Standing(outcome=outcome, since=now)
    return found


def holding_s(series: Iterable[BlockSeries], block_s: int, timeout_s: float) -> float:
    """How long an outcome must have stood: a pair's time limit, or the finest block kept where that is longer."""
    return max(timeout_s, float(block_s << max((s.level for s in series), default=0)))
