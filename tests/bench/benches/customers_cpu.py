"""What capture costs customers' Envoy: CPU per request with all that our configuration does, against a plain Envoy."""

import asyncio
import contextlib
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.bench.effort import Effort
from tests.bench.envoy import captures, plain_envoy
from tests.bench.load_program import Turns, engine, turns
from tests.bench.machine import cpu_seconds
from tests.bench.scene import BenchError
from tests.bench.tables import Line, Table, ratios
from tests.integration.capture.harness import ONE, SEVERAL, capture_on_free_ports, directive

NAME = "customers-cpu"
GOAL = 1.16
ROUNDS = 60
UNCOUNTED, COUNTED = 50, 400
"""Requests of a turn. The first bring code and connections back into reach: another Envoy had the core before."""
CONNECTIONS = 16
MODULO = 1_000_000
LARGEST = 64 << 10
PLAIN = "plain"
_LATE_S = 0.005  # until the last copies are gone


@dataclass(frozen=True)
class _Way:
    """One way to configure capture. `share` None: no run has begun to copy."""

    share: float | None
    guarded: bool = False
    mirrors: tuple[str, ...] = ONE
    goal: float | None = None


WAYS = {
    "before a run": _Way(None),
    "5 % sampled": _Way(0.05, goal=GOAL),
    "5 % sampled, path guarded": _Way(0.05, guarded=True),
    "5 % sampled, several mirrors": _Way(0.05, mirrors=SEVERAL),
    "100 % sampled": _Way(1.0),
}


async def measure(effort: Effort) -> Table:
    """All Envoys stand at the same time before the same primary and have short turns, in another order each round."""
    with tempfile.TemporaryDirectory() as folder:
        async with contextlib.AsyncExitStack() as stack:
            envoys = await _standing(Path(folder), stack)
            client = await stack.enter_async_context(
                turns(
                    [port for port, _ in envoys.values()],
                    connections=CONNECTIONS,
                    stream="false",
                    headers="x-conversation-id: c#",
                )
            )
            costs: dict[str, list[float]] = {name: [] for name in envoys}
            order = list(enumerate(envoys.items()))
            shuffle = random.Random(1).shuffle
            for _ in range(effort.rounds if effort.quick else ROUNDS):
                shuffle(order)
                for number, (name, (_, pid)) in order:
                    costs[name].append(await _cost(client, number, pid))
    lines = [
        Line(
            f"customers' Envoy, CPU per request, {name}",
            ratios(costs[name], costs[PLAIN]),
            reference="plain Envoy",
            at_most=way.goal,
        )
        for name, way in WAYS.items()
    ]
    conditions = (
        f"POST of 2 kB, {CONNECTIONS} keep-alive connections as fast as they are answered, in turns of {COUNTED} "
        "requests; Envoys of one worker, all on one core, of which one works at a time; the key is a header that is "
        "new in every request."
    )
    return Table(NAME, conditions, lines, interval=True)


async def _standing(folder: Path, stack: contextlib.AsyncExitStack) -> dict[str, tuple[int, int]]:
    """The plain Envoy and one for every way: their ports and pids."""
    primary = await stack.enter_async_context(engine(first_s=0))
    mirror = await stack.enter_async_context(engine(first_s=0, status=202, answer=0))
    envoys = {PLAIN: await stack.enter_async_context(plain_envoy(primary.port))}
    for number, (name, way) in enumerate(WAYS.items()):
        capture = capture_on_free_ports(folder / str(number))
        capture.folder.mkdir()
        capture.primary_port, capture.mirror_port, capture.guarded = primary.port, mirror.port, way.guarded
        capture.mirror_hosts = way.mirrors
        pid = await stack.enter_async_context(captures(capture, LARGEST))
        threshold = round(MODULO * (1 - (way.share or 0)))
        copying = way.share is not None
        await capture.follow(directive(copying=copying, threshold=threshold, max_body_bytes=LARGEST))
        envoys[name] = capture.customers, pid
    return envoys


async def _cost(client: Turns, number: int, pid: int) -> float:
    """CPU seconds per request of one turn."""
    await client.take(number, UNCOUNTED)
    used = cpu_seconds(pid)
    turn = await client.take(number, COUNTED)
    await asyncio.sleep(_LATE_S)
    if turn.failed:
        raise BenchError(f"{turn.failed} requests failed")
    return (cpu_seconds(pid) - used) / COUNTED
