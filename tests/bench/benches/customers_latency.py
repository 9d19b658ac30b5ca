"""What customers wait, whatever the mirror is like: latency through capture against the same without copying."""

import contextlib
import math
import random
import statistics
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from tests.bench.effort import Effort
from tests.bench.envoy import captures
from tests.bench.load_program import Turn, Turns, engine, turns
from tests.bench.receiver import receiver
from tests.bench.scene import BenchError
from tests.bench.tables import Line, Table, ratios
from tests.integration.capture.faults import MIRRORS
from tests.integration.capture.harness import Capture, capture_on_free_ports, directive
from tests.ports import free_ports

NAME = "customers-latency"
RATE, CONNECTIONS, BODY = 150.0, 64, 40_000
ROUNDS, REQUESTS = 10, 100
"""Of each receiver; of a turn."""
FIRST_S = 0.005
LARGEST = 64 << 10
COPYING, IDLE, TWIN = "copying", "copying nothing", "copying nothing either"


@contextlib.asynccontextmanager
async def _accepts(port: int) -> AsyncIterator[None]:
    async with engine(port=port, first_s=0, status=202, answer=0):
        yield


RECEIVERS: dict[str, Callable[[int], AbstractAsyncContextManager[None]]] = {"accepts": _accepts}
RECEIVERS |= {name: partial(receiver, name) for name in MIRRORS}
_Times = dict[str, list[float]]  # by Envoy, one for each round
_WHICH = {"p50": 0.5, "p99": 0.99}


async def measure(effort: Effort) -> Table:
    """Three Envoys stand before one primary and take short turns; two of them copy nothing, and differ by noise."""
    receivers = {name: RECEIVERS[name] for name in ("accepts", "down") if effort.quick} or RECEIVERS
    rounds = effort.rounds if effort.quick else ROUNDS
    found: dict[str, dict[str, _Times]] = {}
    asked = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        async with _standing(Path(folder)) as (client, copying):
            await _round(client, order=[0, 1, 2])  # connections, caches
            for name, stands in receivers.items():
                async with stands(copying.mirror_port):
                    taken = [await _round(client, random.Random(n).sample(range(3), 3)) for n in range(rounds)]
                found[name] = {which: _times(taken, share) for which, share in _WHICH.items()}
                asked += sum(len(turn.times) for each in taken for turn in each)
                failed += sum(turn.failed for each in taken for turn in each)
            await _all_copied(copying, turns=1 + rounds * len(receivers))
    lines = []
    noise: dict[str, float] = {}
    for which in _WHICH:
        alike = [r for times in found.values() for r in ratios(times[which][TWIN], times[which][IDLE])]
        noise[which] = _noise(alike)
        lines.append(Line(f"customers' {which}, nothing copied", tuple(alike), "×", "itself"))
    for name, times in found.items():
        for which, limit in noise.items():
            values = ratios(times[which][COPYING], times[which][IDLE])
            lines.append(Line(f"customers' {which}, mirror {name}", values, "×", "nothing copied", at_most=limit))
    lines.append(Line(f"failed, of {asked}", (failed,), "requests", at_most=0))
    conditions = (
        f"{RATE:.0f} requests/s of {BODY // 1000} kB in turns of {REQUESTS}, all of them copied, an answer after "
        f"{FIRST_S * 1000:.0f} ms; latency from the moment a request was due. The goal is the run's own noise: of two "
        "Envoys that both copy nothing, the slower one's turn over the faster one's, exceeded by one round in ten."
    )
    return Table(NAME, conditions, lines, rounds=rounds, interval=True)


@contextlib.asynccontextmanager
async def _standing(folder: Path) -> AsyncIterator[tuple[Turns, Capture]]:
    """A client of the three Envoys, in the order copying, idle, twin; and the one that copies."""
    (mirror_port,) = free_ports(1)
    async with contextlib.AsyncExitStack() as stack:
        primary = await stack.enter_async_context(engine(first_s=FIRST_S))
        standing = []
        for name in (COPYING, IDLE, TWIN):
            capture = capture_on_free_ports(folder / name)
            capture.folder.mkdir()
            capture.primary_port, capture.mirror_port = primary.port, mirror_port
            await stack.enter_async_context(captures(capture, LARGEST))
            await capture.follow(directive(copying=name == COPYING, max_body_bytes=LARGEST))
            standing.append(capture)
        options = {"connections": CONNECTIONS, "size": BODY, "stream": "false", "headers": "x-conversation-id: c#"}
        yield await stack.enter_async_context(turns([each.customers for each in standing], **options)), standing[0]


async def _all_copied(capture: Capture, *, turns: int) -> None:
    meant = (await capture.evidence()).windows[1].sampled.requests
    if meant != turns * REQUESTS:
        raise BenchError(f"of {turns * REQUESTS} requests {meant} were meant to be copied")


async def _round(client: Turns, order: list[int]) -> list[Turn]:
    """One turn of each Envoy; in the order of `_standing`, whatever `order` they were asked in."""
    taken = {number: await client.take(number, REQUESTS, rate=RATE) for number in order}
    return [taken[number] for number in sorted(taken)]


def _times(rounds: list[list[Turn]], share: float) -> _Times:
    return {
        name: [_quantile(turns[place].times, share) for turns in rounds]
        for place, name in enumerate((COPYING, IDLE, TWIN))
    }


def _quantile(times: tuple[float, ...], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def _noise(alike: list[float]) -> float:
    """What the ratio of two that are alike exceeds in one round of ten, whichever of them is divided by the other."""
    either_way = [abs(math.log(ratio)) for ratio in alike]
    return math.exp(statistics.quantiles(either_way, n=10)[-1]) if len(either_way) > 1 else math.exp(either_way[0])
