"""Event loop lag: how late the loop wakes up, which is how wrong a stamp can be. Measures only."""

import asyncio
import time
from collections import deque

INTERVAL_S = 0.1
KEPT = 600  # a minute


class LoopLag:
    """Samples of the last minute, in seconds."""

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=KEPT)

    async def watch(self) -> None:
        """Sample until cancelled."""
        while True:
            due = time.monotonic() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            self._samples.append(max(0.0, time.monotonic() - due))

    def p50_and_max(self) -> tuple[float, float]:
        """Median and largest lag; zeros before the first sample."""
        ordered = sorted(self._samples)
        return (ordered[len(ordered) // 2], ordered[-1]) if ordered else (0.0, 0.0)
