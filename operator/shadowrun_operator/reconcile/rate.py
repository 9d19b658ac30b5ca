"""How far the sampling rates are lowered so that a run selects no more pairs a second than it is meant to. Pure.

`share` is in millionths of the spec's rates and applies to all of them alike, so what a lower share selects is a part
of what a higher one did. It only ever falls: a rate that went up and down with the load would make the hours of a day
count differently. So it must not fall for a burst or by chance either: it is lowered only when each of `PERIODS`
periods in a row was above the target, and then by the lowest of them, less two standard errors of its count. The rest
is left to the next step, so the rate comes down to the target and not below it.

A rate that is changed in the spec is what somebody asks for, so what was lowered is not taken off it a second time: the
share is set such that as much is copied as before, or all that is asked for where that is less. After 10 % were lowered
to 2 %, a spec that says 1 % gets 1 %, one that says 5 % keeps 2 %, as long as the run lasts. Rates of classes would be
moved along by that, so with those the API server refuses another rate.
"""

import math
from itertools import pairwise

import msgspec
from shadowrun_mirror.config import MODULO
from shadowrun_mirror.evidence import Evidence
from shadowrun_mirror.reasons import ExcludeReason

from shadowrun_operator.judge.facts import RateChange
from shadowrun_operator.judge.merge import latest

WHOLE = MODULO
"""The share while nothing has been lowered."""
PERIOD_S = 60.0
PERIODS = 4
"""A burst of two minutes lies in three periods at most."""
TOLERANCE = 1.1
"""The target may be exceeded by this factor: a smaller step is not worth another change."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How many were selected in all, (UTC seconds, count) at the end of each of the last periods; and all changes.

    The first change is what copying began with.
    """

    marks: tuple[tuple[float, int], ...] = ()
    changes: tuple[RateChange, ...] = ()

    @property
    def share(self) -> int:
        """The share that holds now, in millionths."""
        return self.changes[-1].share if self.changes else WHOLE

    @property
    def rate(self) -> int:
        """The spec's rate that the share is of, in millionths; 0 where it is not known."""
        return self.changes[-1].rate if self.changes else 0


def selected_count(mirrors: dict[str, Evidence]) -> int:
    """How many copies the mirrors have selected, over every window of every process: all received but those excluded.

    A model that is not listed was selected by its key, but never becomes a pair.
    """
    return sum(
        c.received.requests - sum(c.excluded[r].requests for r in ExcludeReason if r in c.excluded)
        for evidence in latest(mirrors.values()).values()
        for window in evidence.windows.values()
        for c in window.classes.values()
    )


def asked(pace: Pace, rate: int, now: float) -> Pace:
    """The pace with the spec's rate (in millionths): the same one where it knows it; else counting begins anew."""
    if pace.rate == rate:
        return pace
    share = pace.share
    if share < WHOLE and pace.rate:
        share = max(1, min(WHOLE, pace.rate * share // rate))
    return Pace(changes=(*pace.changes, RateChange(at=now, share=share, rate=rate)))


def paced(pace: Pace, selected: int, now: float, target: float | None) -> Pace:
    """The pace after another look; the same one until a period is over. `target`: pairs a second, None: no limit.

    A period in which the counters fell back, or which lasted more than twice as long as it should because nobody
    looked, says nothing: counting begins anew.
    """
    if target is None:
        return pace
    begins = Pace(marks=((now, selected),), changes=pace.changes)
    if not pace.marks:
        return begins
    at, count = pace.marks[-1]
    if now - at < PERIOD_S:
        return pace
    if selected < count or now - at > 2 * PERIOD_S:
        return begins
    marks = (*pace.marks, (now, selected))[-(PERIODS + 1) :]
    lower = _lowered(pace.share, marks, target)
    if lower == pace.share:
        return Pace(marks=marks, changes=pace.changes)
    return Pace(marks=((now, selected),), changes=(*pace.changes, RateChange(at=now, share=lower, rate=pace.rate)))


def _lowered(share: int, marks: tuple[tuple[float, int], ...], target: float) -> int:
    if len(marks) <= PERIODS:
        return share
    least = min(_surely(count - before) / (at - begun) for (begun, before), (at, count) in pairwise(marks))
    return share if least <= TOLERANCE * target else max(1, math.ceil(share * target / least))


def _surely(count: int) -> float:
    """A count less two standard errors, as if it were of independent requests."""
    return max(0.0, count - 2 * math.sqrt(count))
