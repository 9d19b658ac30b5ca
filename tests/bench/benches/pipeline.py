"""What a pair costs the mirror, whole pipeline, against two bare socket drains of the same streams."""

import asyncio
import json
import random
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.effort import Effort
from tests.bench.load_program import engine
from tests.bench.machine import on_the_measured_core
from tests.bench.scene import BenchError, cpu_per_pair, mirror
from tests.bench.tables import Line, Table, ratios

NAME = "pipeline"
FIRST_S = 0.02
_ROOT = Path(__file__).resolve().parents[3]
BODY = 2048


@dataclass(frozen=True)
class Shape:
    """Streams of `chunks` content events, `gap_s` apart; pairs per second; the goal for the ratio."""

    chunks: int
    gap_s: float
    rate: float
    goal: float

    @property
    def name(self) -> str:
        """For the table."""
        how = f"{self.gap_s * 1000:.0f} ms apart" if self.gap_s else "in a burst"
        return f"mirror CPU per pair, {self.chunks} chunks {how}, {self.rate:.0f} pairs/s"

    @property
    def length_s(self) -> float:
        """Of one stream."""
        return FIRST_S + self.chunks * self.gap_s


SHAPES = (
    Shape(50, 0.0, 150, 1.7),
    Shape(200, 0.0, 80, 1.7),
    Shape(50, 0.005, 100, 1.5),
    Shape(200, 0.005, 40, 1.5),
)


async def measure(effort: Effort) -> Table:
    """One mirror per shape; its turns and those of a drain of the same streams come in random order, and are short."""
    lines = [await _line(shape, effort) for shape in SHAPES[:: 3 if effort.quick else 1]]
    conditions = (
        f"Two arms, bodies of 2 kB, first content after {FIRST_S * 1000:.0f} ms, one write per event. The "
        "mirror's real process is alone on one core; so is the drain, which opens as many connections."
    )
    return Table(NAME, conditions, lines, interval=True)


async def _line(shape: Shape, effort: Effort) -> Line:
    ours: list[float] = []
    bare: list[float] = []
    async with (
        engine(first_s=FIRST_S, gap_s=shape.gap_s, chunks=shape.chunks) as first,
        engine(first_s=FIRST_S, gap_s=shape.gap_s, chunks=shape.chunks) as second,
        mirror([first.port, second.port]) as process,
        _request_file() as request,
    ):
        rounds, seconds = (1, effort.seconds) if effort.quick else (4 * effort.rounds, effort.seconds / 4)
        turn = {"rate": shape.rate, "seconds": seconds, "tail_s": shape.length_s}
        await cpu_per_pair(process, "warm-", **turn)
        for number in range(rounds):
            for is_ours in random.sample((True, False), 2):
                if is_ours:
                    ours.append(await cpu_per_pair(process, f"p{number}-", **turn))
                else:
                    bare.append(await _drained([first.port, second.port], shape.rate, seconds, request))
    return Line(shape.name, ratios(ours, bare), reference="two bare socket drains", at_most=shape.goal)


@asynccontextmanager
async def _request_file() -> AsyncIterator[Path]:
    front = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"'
    body = front + b"a" * (BODY - len(front) - 4) + b'"}]}'
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: chat.test\r\ncontent-length: {len(body)}\r\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "request"
        path.write_bytes(head.encode() + b"content-type: application/json\r\nconnection: close\r\n\r\n" + body)
        yield path


async def _drained(ports: list[int], rate: float, seconds: float, request: Path) -> float:
    words = [",".join(map(str, ports)), str(rate), str(seconds), str(request)]
    with on_the_measured_core():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.drain", *words, cwd=_ROOT, stdout=asyncio.subprocess.PIPE
        )
    out, _ = await process.communicate()
    if process.returncode:
        raise BenchError("the reference drain ended with an error")
    return float(json.loads(out)["cpu_per_pair"])
