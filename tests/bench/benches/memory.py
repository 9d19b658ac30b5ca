"""Whether the mirror's memory stays where it was: an hour's pairs as fast as they go, 64 in flight, bodies of 64 kB."""

import asyncio
import contextlib

from tests.bench.effort import Effort
from tests.bench.load_program import engine
from tests.bench.machine import resident_mib
from tests.bench.scene import BenchError, copies, counted, mirror
from tests.bench.tables import Line, Table, ratios
from tests.integration.mirror.process import MirrorProcess

NAME = "memory"
PAIRS = 36_000
"""An hour at ten pairs a second."""
IN_FLIGHT, BODY = 64, 64_000
FIRST_S = 0.1
OFFERED = 1200.0
"""Copies per second, more than can be admitted: what is refused at the door must cost no memory either."""
LARGEST_MIB, FLAT = 150.0, 1.05


async def measure(effort: Effort) -> Table:
    """One mirror, sampled while it works. In the first half its bounded memories, as of request ids, become full."""
    wanted = PAIRS if not effort.quick else 100
    async with (
        engine(first_s=FIRST_S, chunks=20, together=5) as first,
        engine(first_s=FIRST_S, chunks=20, together=5) as second,
        mirror([first.port, second.port], max_in_flight=IN_FLIGHT) as process,
    ):
        samples = await _sampled(process, wanted, effort)
        pairs = (await counted(process)).admitted.requests
    tenth = max(1, len(samples) // 10)
    early, middle, late = samples[tenth : 2 * tenth], samples[5 * tenth : 6 * tenth], samples[-tenth:]
    lines = [
        Line("resident memory halfway", ratios(middle, early), "×", "after a tenth of the pairs"),
        Line("resident memory at the end", ratios(late, middle), "×", "halfway, all memories full", at_most=FLAT),
        Line("resident memory, largest", (max(samples),), "MiB", at_most=LARGEST_MIB),
        Line("pairs meanwhile", (pairs,), "requests"),
    ]
    conditions = (
        f"{IN_FLIGHT} pairs in flight at most, two arms, bodies of {BODY // 1000} kB, more copies offered than can be "
        "admitted. One run; the spread is over its samples."
    )
    return Table(NAME, conditions, lines, rounds=1)


async def _sampled(process: MirrorProcess, wanted: int, effort: Effort) -> list[float]:
    """Resident memory, several times a second, until `wanted` pairs were admitted."""
    samples: list[float] = []

    async def watch() -> None:
        while True:
            samples.append(resident_mib(process.pid))
            await asyncio.sleep(0.05 if effort.quick else 0.5)

    watching = asyncio.create_task(watch())
    try:
        async with asyncio.timeout(300):
            for turn in range(10_000):
                await copies(process, f"m{turn}-", rate=OFFERED, seconds=4 * effort.seconds, size=BODY)
                if (await counted(process)).admitted.requests >= wanted:
                    break
        await process.settled()
    except TimeoutError as late:
        raise BenchError(f"{wanted} pairs took too long") from late
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    return samples
