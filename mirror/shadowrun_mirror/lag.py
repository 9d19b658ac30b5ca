"""Lag: how late the event loop wakes up, which is how wrong a stamp can be, and how busy the process is. Only measures.

Nothing is ever subtracted from a latency for it: what was measured late is reported as late, and pairs with a stamp of
such a time are flagged. Three things make a time late:

* a probe, due every `PROBE_S`, ran more than the limit too late (its own timer is exact to a millisecond),
* a pause of the garbage collector was longer than the limit; the probe may have missed it,
* the process used more than `BUSY_SHARE` of one core over the last `BUSY_OVER_S`. One event loop is one core: above
  that reads queue up, and stamps are wrong by milliseconds long before any single wake-up is late.

A long answer lives through many such times, and its latencies are exact all the same if it neither began nor ended in
one. Its longest gap need not be: no verdict looks at that.
"""

import asyncio
import gc
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from shadowrun_mirror.histogram import Histogram

PROBE_S = 0.01
"""A stall of this and the limit together is always seen, a shorter one if it falls on a probe. A wake-up of an idle
process costs 20 to 30 microseconds, so that twice as many would be felt."""
BUSY_SHARE = 0.8
BUSY_OVER_S = 0.5
_SHARE_EVERY_S = 0.1
_KEPT = 6_000  # probes: a minute
_LATE_TIMES = 1_000
"""Times kept, each apart from the next. What is older than the oldest of so many is taken to have been late."""


class LoopLag:
    """`limit_s` is asked at every probe. `histogram` is of all lags since the start, in seconds."""

    def __init__(
        self,
        limit_s: Callable[[], float] = lambda: 0.005,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self.histogram = Histogram()
        self.cpu_share = 0.0
        self.collector_s = 0.0  # spent in the garbage collector since the start
        self._limit = limit_s
        self._clock = clock
        self._cpu = cpu
        self._late: deque[tuple[float, float]] = deque()  # from and to, the latest last
        self._forgotten = -math.inf  # the end of the latest that is not kept any more
        self._busy = False  # by the last sample; what comes before the next one is taken to be so too
        self._due = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._recent: deque[float] = deque(maxlen=_KEPT)
        self._spent: deque[tuple[float, float]] = deque()  # clock and CPU seconds, one entry per _SHARE_EVERY_S
        self._collecting_since: float | None = None
        self._pauses: list[tuple[float, float]] = []  # of the collector, over the limit, not counted yet

    async def watch(self) -> None:
        """Probe until cancelled."""
        loop = asyncio.get_running_loop()
        broken: asyncio.Future[None] = loop.create_future()

        def probe() -> None:
            try:
                now = self._clock()
                self.probed(self._due, now)
                self._due = now + PROBE_S
                self._timer = loop.call_later(PROBE_S, probe)
            except Exception as error:
                broken.set_exception(error)

        gc.callbacks.append(self._collected)
        self._due = self._clock() + PROBE_S
        self._timer = loop.call_later(PROBE_S, probe)
        try:
            await broken
        finally:
            self._timer.cancel()
            gc.callbacks.remove(self._collected)
            self._due = math.inf

    def late_at(self, stamps: Sequence[float]) -> bool:
        """Whether one of these stamps (by the clock), or one made now, may be wrong by more than the limit.

        A time is late from the last probe before it, and until what had queued up is read: by how much that takes
        longer than the limit, the next probe is late as well. One that is overdue right now counts.
        """
        now, limit = self._clock(), self._limit()
        if self._busy or now - self._due > limit:
            return True
        self._count_pauses()
        stamps = (*stamps, now)
        first = min(stamps)
        for start, end in reversed(self._late):
            if end + limit + PROBE_S < first:
                return False
            if any(start - PROBE_S <= stamp <= end + limit + PROBE_S for stamp in stamps):
                return True
        return first <= self._forgotten

    def p50_and_max(self) -> tuple[float, float]:
        """Median and largest lag of the last minute; zeros before the first probe."""
        ordered = sorted(self._recent)
        return (ordered[len(ordered) // 2], ordered[-1]) if ordered else (0.0, 0.0)

    def probed(self, due: float, now: float) -> None:
        """A probe that was due at `due` ran at `now`."""
        lag = max(0.0, now - due)
        self._recent.append(lag)
        self.histogram.add(lag)
        self._count_pauses()
        if lag > self._limit():
            self._was_late(due, now)
        if not self._spent or now - self._spent[-1][0] >= _SHARE_EVERY_S:
            self._sample_cpu(now)

    def _sample_cpu(self, now: float) -> None:
        self._spent.append((now, self._cpu()))
        while len(self._spent) > 2 and now - self._spent[1][0] >= BUSY_OVER_S:
            self._spent.popleft()
        (started, before), (_, after) = self._spent[0], self._spent[-1]
        if now - started >= BUSY_OVER_S:
            self.cpu_share = (after - before) / (now - started)
            was_busy, self._busy = self._busy, self.cpu_share > BUSY_SHARE
            if was_busy or self._busy:
                self._was_late(started, now)

    def _count_pauses(self) -> None:
        while self._pauses:
            start, end = self._pauses.pop(0)
            self.histogram.add(end - start)
            self._was_late(start, end)

    def _was_late(self, start: float, end: float) -> None:
        if self._late and start <= self._late[-1][1]:
            known = self._late.pop()
            start, end = min(start, known[0]), max(end, known[1])
        self._late.append((start, end))
        if len(self._late) > _LATE_TIMES:
            self._forgotten = self._late.popleft()[1]

    def _collected(self, phase: str, _: dict[str, Any]) -> None:
        """Called by the collector in the middle of anything, even while the histogram is read: only takes notes."""
        now = self._clock()
        if phase == "start":
            self._collecting_since = now
        elif self._collecting_since is not None:
            since, self._collecting_since = self._collecting_since, None
            self.collector_s += now - since
            if now - since > self._limit():
                self._pauses.append((since, now))
