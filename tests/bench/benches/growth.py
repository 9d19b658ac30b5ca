"""How a pair's cost grows: with pairs in flight, with the size of bodies, with the number of chunks."""

import contextlib

from tests.bench.effort import Effort
from tests.bench.load_program import engine
from tests.bench.scene import cpu_per_pair, mirror
from tests.bench.tables import Line, Table, ratios

NAME = "growth"
RATE = 60.0
Point = tuple[str, int, int, float]  # what changes, chunks, bytes of the body, time to first content
BASE: Point = ("", 50, 2_000, 0.02)
POINTS: tuple[Point, ...] = (
    ("30 pairs in flight instead of 1", 50, 2_000, 0.5),
    ("120 pairs in flight instead of 1", 50, 2_000, 2.0),
    ("bodies of 40 kB instead of 2 kB", 50, 40_000, 0.02),
    ("bodies of 200 kB instead of 2 kB", 50, 200_000, 0.02),
    ("200 chunks instead of 50", 200, 2_000, 0.02),
    ("800 chunks instead of 50", 800, 2_000, 0.02),
)


async def measure(effort: Effort) -> Table:
    """The base and every point, turn by turn on one mirror each."""
    points = (BASE, *POINTS[:: 3 if effort.quick else 1])
    costs: dict[str, list[float]] = {name: [] for name, *_ in points}
    for number in range(effort.rounds):
        for name, chunks, size, first_s in points:
            async with contextlib.AsyncExitStack() as stack:
                engines = [await stack.enter_async_context(engine(first_s=first_s, chunks=chunks)) for _ in range(2)]
                process = await stack.enter_async_context(mirror([each.port for each in engines]))
                await cpu_per_pair(process, "warm-", rate=RATE, seconds=0.3, tail_s=first_s, size=size)
                cost = await cpu_per_pair(
                    process, f"g{number}-", rate=RATE, seconds=effort.seconds, tail_s=first_s, size=size
                )
                costs[name].append(cost)
    base = costs.pop("")
    lines = [Line(f"CPU per pair, {name}", ratios(values, base), "×", "the base") for name, values in costs.items()]
    conditions = f"Base: {RATE:.0f} pairs/s, two arms, 50 chunks in a burst, bodies of 2 kB, first content after 20 ms."
    return Table(NAME, conditions, lines)
