"""What of a run depends on the clocks of several machines, and how far they are off the operator's. Pure.

Replicas stamp what they count by clocks of their own. Three things follow here: no instant that a replica gives moves
an end of the run (`began`), a clock that is off is said, and mirrors whose clocks are apart are written down for the
judge. No two mirrors may be compared by different looks: the operator's own clock may have been set in between.
"""

from collections.abc import Mapping

from shadowrun_operator.manifests import names
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.plan import Event
from shadowrun_operator.reconcile.record import RunRecord

ALLOWED_S = 1.0
"""The finest block of time: clocks nearer than that put pairs of one moment into the same block, or the next."""


def began(known: float, first: float | None, told: float, now: float) -> float | None:
    """When a window's first pair was complete, by the operator's clock; None before.

    `first` is what a replica says. It cannot have been before the replicas were told of the window (`told`), nor after
    the look that has seen it first; what was found then is `known` ever after.
    """
    if known or first is None:
        return known or None
    return min(max(first, told), now)


def worst(record: RunRecord, seen: Observation) -> dict[str, float]:
    """By pod, how far the clock of a replica was found off, where that is more than is allowed.

    Of one that goes further and further off, every doubling: the record is written whenever it changes.
    """
    found = dict(record.clocks)
    for pod in seen.pods_of(names.MIRROR, names.CAPTURE):
        off = seen.clocks.get(pod.uid, 0.0)
        if abs(off) > max(ALLOWED_S, 2 * abs(found.get(pod.name, 0.0))):
            found[pod.name] = round(off, 1)
    return found


def furthest_apart(record: RunRecord, seen: Observation) -> dict[str, float]:
    """The two mirrors whose clocks were furthest apart in one look, each with how far it was off then; {} where none.

    What the operator's own clock is off is in both alike. Renewed as seldom as `worst`.
    """
    off = {pod.name: seen.clocks.get(pod.uid, 0.0) for pod in seen.pods_of(names.MIRROR) if pod.uid in seen.read}
    if _spread(off) <= max(ALLOWED_S, 2 * _spread(record.apart)):
        return record.apart
    return {pod: off[pod] for pod in (min(off, key=off.__getitem__), max(off, key=off.__getitem__))}


def _spread(off: Mapping[str, float]) -> float:
    return max(off.values(), default=0.0) - min(off.values(), default=0.0)


def clock_events(before: Mapping[str, float], now: Mapping[str, float]) -> tuple[Event, ...]:
    """One for each replica whose clock is found off for the first time."""
    return tuple(Event("Warning", "ClockOff", _sentence(pod, off)) for pod, off in now.items() if pod not in before)


def _sentence(pod: str, off: float) -> str:
    way = "ahead of" if off > 0 else "behind"
    return (
        f"The clock of {pod} is {abs(off):.0f} s {way} the operator's: it stops copying so much too"
        f" {'early' if off > 0 else 'late'} by itself, and counts pairs under other times than they had."
    )
