"""What customers wait, whatever the mirror is like: latency through capture against the same without copying."""

import contextlib
import itertools
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from tests.bench.effort import Effort
from tests.bench.envoy import captures
from tests.bench.load_program import Sent, engine, send
from tests.bench.receiver import receiver
from tests.bench.tables import Line, Table
from tests.integration.capture.faults import MIRRORS
from tests.integration.capture.harness import Capture, capture_on_free_ports, directive, until

NAME = "customers-latency"
RATE, CONNECTIONS, BODY = 100.0, 64, 40_000
FIRST_S = 0.005
LARGEST = 1 << 20


@contextlib.asynccontextmanager
async def _accepts(port: int) -> AsyncIterator[None]:
    async with engine(port=port, first_s=0, status=202, answer=0):
        yield


RECEIVERS: dict[str, Callable[[int], AbstractAsyncContextManager[None]]] = {"accepts": _accepts}
RECEIVERS |= {name: partial(receiver, name) for name in MIRRORS}


async def measure(effort: Effort) -> Table:
    """Each receiver's turn comes right after one without copying; how those differ among themselves is the noise."""
    without: list[Sent] = []
    receivers = {name: RECEIVERS[name] for name in ("accepts", "down") if effort.quick} or RECEIVERS
    with_it: dict[str, list[tuple[Sent, Sent]]] = {name: [] for name in receivers}
    with tempfile.TemporaryDirectory() as folder:
        capture = capture_on_free_ports(Path(folder))
        async with engine(port=capture.primary_port, first_s=FIRST_S), captures(capture, LARGEST):
            await _turn(capture, effort, version=1, copying=False)  # connections, caches
            for round_number in range(effort.rounds):
                for name, fault in receivers.items():
                    without.append(await _turn(capture, effort, version=2 * round_number, copying=False))
                    async with fault(capture.mirror_port):
                        turn = await _turn(capture, effort, version=2 * round_number + 1, copying=True)
                    with_it[name].append((turn, without[-1]))
    noise = {which: _noise([_time(sent, which) for sent in without]) for which in ("p50", "p99")}
    asked = [*without, *(turn for turns in with_it.values() for turn, _ in turns)]
    lines = [Line(f"customers' {which}, nothing copied", times, "×", "itself") for which, times in noise.items()]
    for name, turns in with_it.items():
        for which, times in noise.items():
            values = tuple(_time(turn, which) / _time(before, which) for turn, before in turns)
            lines.append(Line(f"customers' {which}, mirror {name}", values, "×", "nothing copied", at_most=max(times)))
    lines.append(
        Line(f"failed, of {sum(s.sent for s in asked)}", (sum(s.failed for s in asked),), "requests", at_most=0)
    )
    conditions = (
        f"{RATE:.0f} requests/s of {BODY // 1000} kB, all of them copied, an answer after {FIRST_S * 1000:.0f} ms; "
        "latency from the moment a request was due. Nothing copied against itself: turn by turn, the larger over the "
        "smaller; the largest of these is the run's own noise and the goal for the rest."
    )
    return Table(NAME, conditions, lines, rounds=effort.rounds)


async def _turn(capture: Capture, effort: Effort, *, version: int, copying: bool) -> Sent:
    await until(capture.is_quiet, 20.0)  # the copies of the turn before are gone
    await capture.follow(directive(version=version, copying=copying, max_body_bytes=LARGEST))
    return await send(
        capture.customers,
        rate=RATE,
        seconds=effort.seconds / 2,
        connections=CONNECTIONS,
        size=BODY,
        stream="false",
        headers="x-conversation-id: c#",
    )


def _time(sent: Sent, which: str) -> float:
    return sent.p50 if which == "p50" else sent.p99


def _noise(times: list[float]) -> tuple[float, ...]:
    return tuple(max(one, two) / min(one, two) for one, two in itertools.pairwise(times))
