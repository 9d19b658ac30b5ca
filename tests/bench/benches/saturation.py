"""What one core can do, and what its door does when twice as much comes."""

import msgspec

from tests.bench.effort import Effort
from tests.bench.load_program import Sent, engine
from tests.bench.machine import cpu_seconds
from tests.bench.scene import BenchError, copies, counted, cpu_per_pair, mirror
from tests.bench.tables import Line, Table
from tests.integration.mirror.process import MirrorProcess

NAME = "saturation"
FIRST_S = 0.02
CHUNKS, TOGETHER = 50, 10
STEP = 1.15
IN_FLIGHT = 128
BOUNDED = 1.5
CONNECTIONS = 256
"""As many copies as one Envoy has on their way at most."""


class _Turn(msgspec.Struct, frozen=True):
    sent: Sent
    pairs_per_s: float
    cpu: float  # share of a core


async def measure(effort: Effort) -> Table:
    """Raise the rate until copies are shed or the core is full; then offer twice that rate."""
    best: list[float] = []
    door_calm: list[float] = []
    door_full: list[float] = []
    door_flooded: list[float] = []
    kept: list[float] = []
    async with (
        engine(first_s=FIRST_S, chunks=CHUNKS, together=TOGETHER) as first,
        engine(first_s=FIRST_S, chunks=CHUNKS, together=TOGETHER) as second,
        mirror([first.port, second.port], max_in_flight=IN_FLIGHT) as process,
    ):
        for number in range(effort.rounds):
            cost = await cpu_per_pair(process, f"probe{number}-", rate=100, seconds=effort.seconds / 2, tail_s=FIRST_S)
            calm = await _turn(process, 0.5 / cost, effort.seconds, f"calm{number}-")
            saturated = await _saturated(process, 0.7 / cost, effort, f"s{number}-")
            twice = await _turn(process, 2 * saturated.pairs_per_s, effort.seconds, f"f{number}-")
            flood = await _turn(process, 4 * saturated.pairs_per_s, effort.seconds, f"ff{number}-")
            best.append(saturated.pairs_per_s)
            door_calm.append(1000 * calm.sent.p99)
            door_full.append(1000 * twice.sent.p99)
            door_flooded.append(flood.sent.p99 / twice.sent.p99)
            kept.append(twice.pairs_per_s / saturated.pairs_per_s)
    lines = [
        Line("pairs per second, one core full", tuple(best), "pairs/s"),
        Line("pairs per second, twice as many offered", tuple(kept), "×", "one core full"),
        Line("p99 of the door's answer, half a core used", tuple(door_calm), "ms"),
        Line("p99 of the door's answer, twice as many offered", tuple(door_full), "ms"),
        Line(
            "p99 of the door's answer, four times as many", tuple(door_flooded), "×", "twice as many", at_most=BOUNDED
        ),
    ]
    conditions = (
        f"Two arms, bodies of 2 kB, {CHUNKS} chunks in writes of {TOGETHER}, first content after {FIRST_S * 1000:.0f} "
        f"ms, {IN_FLIGHT} pairs in flight at most. The door answers 202 or 429, timed from sending, on {CONNECTIONS} "
        "connections, which is as many copies as one Envoy has on their way."
    )
    return Table(NAME, conditions, lines)


async def _saturated(process: MirrorProcess, rate: float, effort: Effort, prefix: str) -> _Turn:
    """The turn with the most pairs per second, of rates that rise until a twentieth of the copies is lost."""
    best = None
    for step in range(1 if effort.quick else 12):
        turn = await _turn(process, rate * STEP**step, effort.seconds / 2, f"{prefix}{step}-")
        best = turn if best is None or turn.pairs_per_s > best.pairs_per_s else best
        if turn.pairs_per_s < 0.95 * rate * STEP**step:
            break
    if best is None:
        raise BenchError("no turn was measured")
    return best


async def _turn(process: MirrorProcess, rate: float, seconds: float, prefix: str) -> _Turn:
    before, used = await counted(process), cpu_seconds(process.pid)
    sent = await copies(process, prefix, rate=rate, seconds=seconds, connections=CONNECTIONS, from_sent=True)
    used = cpu_seconds(process.pid) - used
    await process.settled()
    pairs = (await counted(process)).admitted.requests - before.admitted.requests
    return _Turn(sent, pairs / sent.seconds, used / sent.seconds)
