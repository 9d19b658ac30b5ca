"""Deadlines: one timer of the event loop for all exchanges. Knows nothing of them but how each is told.

Most exchanges end long before their deadline, and a timer for each costs more than closing its connection. Those with
the same timeout are due in the order in which they came, so only the first of them is looked at.
"""

import asyncio
import math
from typing import Protocol

_EXACT_S = 0.002
"""A timer may run this much too early: the event loop counts in milliseconds."""


class Exchange(Protocol):
    """What has a deadline."""

    def late(self) -> None:
        """Told once, at the deadline."""
        ...


class Deadlines:
    """Of exchanges that have not ended. All on one event loop."""

    def __init__(self) -> None:
        self._due: dict[float, dict[Exchange, float]] = {}  # by timeout; by the event loop's clock
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = math.inf

    def add(self, exchange: Exchange, timeout_s: float) -> None:
        """Tell `exchange` when it is late, `timeout_s` from now."""
        due = asyncio.get_running_loop().time() + timeout_s
        waiting = self._due.get(timeout_s)
        if waiting is None:
            waiting = self._due[timeout_s] = {}
        waiting[exchange] = due
        if due < self._wakes_at:
            self._wake_at(due)

    def remove(self, exchange: Exchange, timeout_s: float) -> None:
        """It has ended."""
        self._due.get(timeout_s, {}).pop(exchange, None)

    def _wake_at(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = due
        self._timer = asyncio.get_running_loop().call_at(due, self._look)

    def _look(self) -> None:
        now = asyncio.get_running_loop().time() + _EXACT_S
        self._timer, self._wakes_at = None, math.inf
        try:
            for timeout_s, waiting in list(self._due.items()):
                while waiting and waiting[first := next(iter(waiting))] <= now:
                    del waiting[first]
                    first.late()
                if not waiting:
                    del self._due[timeout_s]
        finally:  # whatever breaks on one, the others keep their deadlines
            due = min((next(iter(waiting.values())) for waiting in self._due.values() if waiting), default=None)
            if due is not None and due < self._wakes_at:
                self._wake_at(due)
