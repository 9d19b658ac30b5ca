"""Connections: which are open at the door, and which one goes when there are too many. Closes nothing, does no I/O."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

FRESH_S = 120.0
"""How long a connection that has sent nothing is kept before others: as long as capture lets an upload take.

Capture's Envoy opens a connection with a copy's head and sends nothing before its customer's upload is over. A copy
whose connection goes is not tried again.
"""

T = TypeVar("T", bound=Hashable)


class Connections(Generic[T]):
    """Open ones by what they have done so far; every step takes the same time, however many. `clock`: monotonic s."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all: dict[T, None] = {}
        self._fresh: OrderedDict[T, float] = OrderedDict()  # since when; the oldest first
        self._idle: OrderedDict[T, None] = OrderedDict()  # have sent something; the one that has waited longest first

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[T]:
        """Over those that are open now, whatever becomes of them meanwhile."""
        return iter(list(self._all))

    def add(self, one: T) -> None:
        """One more, of which nothing has come."""
        self._all[one] = None
        self._fresh[one] = self._clock()

    def busy(self, one: T) -> None:
        """A request has begun to arrive on it."""
        self._fresh.pop(one, None)
        self._idle.pop(one, None)

    def idle(self, one: T) -> None:
        """Nothing of a request is left on it."""
        self._fresh.pop(one, None)
        if one in self._all:
            self._idle.setdefault(one)

    def remove(self, one: T) -> None:
        """It is gone."""
        self.busy(one)
        self._all.pop(one, None)

    def is_fresh(self, one: T) -> bool:
        """Whether nothing has come on it."""
        return one in self._fresh

    def dispensable(self) -> T | None:
        """The one that may go for another; None where all have a request or may be about to send their first.

        One that has served before may stand for an upload as well. Nothing here shows that, so it takes its chance.
        """
        if self._idle:
            return next(iter(self._idle))
        oldest = next(iter(self._fresh), None)
        return oldest if oldest is not None and self._fresh[oldest] <= self._clock() - FRESH_S else None
