"""Builds and runs the Go program in `load/`: the engine and the client that are not to be the limit."""

import asyncio
import contextlib
import functools
import hashlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.bench.machine import on_the_other_cores
from tests.cluster.commands import run
from tests.cluster.gotoolchain import go_command
from tests.cluster.paths import cache_root

_SOURCES = Path(__file__).parent / "load"
_LONGEST_LINE = 1 << 22
_BUILD = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}


class Sent(msgspec.Struct, frozen=True):
    """What the client saw; times in seconds. `behind`: how late it was at the end of its own plan."""

    sent: int
    statuses: dict[str, int]
    failed: int
    seconds: float
    p50: float
    p99: float
    longest: float
    behind: float
    cpu: float

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.sent / self.seconds


class Engine(NamedTuple):
    """A running engine."""

    port: int
    pid: int


@functools.cache
def program() -> Path:
    """The built program; built once for each state of its sources."""
    digest = hashlib.sha256()
    for path in sorted(_SOURCES.iterdir()):
        digest.update(path.read_bytes())
    built = cache_root() / "bench" / f"load-{digest.hexdigest()[:16]}"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        run([go_command("1.22"), "build", "-trimpath", "-buildvcs=false", "-o", built, "."], cwd=_SOURCES, env=_BUILD)
    return built


@contextlib.asynccontextmanager
async def engine(
    *, port: int = 0, first_s: float = 0.02, gap_s: float = 0.0, chunks: int = 50, together: int = 1, **more: object
) -> AsyncIterator[Engine]:
    """An engine. Its streams have `chunks` content events, `together` of them in one write.

    `more` are the program's other options: `status`, `answer` (bytes), `stamps` (True).
    """
    options = {"first": f"{first_s}s", "gap": f"{gap_s}s", "chunks": chunks, "together": together, **more}
    words = [f"-{name}={str(value).lower()}" for name, value in options.items()]
    with on_the_other_cores():
        process = await asyncio.create_subprocess_exec(
            program(), "engine", f"-listen=127.0.0.1:{port}", *words, stdout=asyncio.subprocess.PIPE
        )
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        assert line, "the engine did not start"
        yield Engine(int(line), process.pid)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def send(port: int, *, rate: float, seconds: float, **options: object) -> Sent:
    """Send requests for a while. Rate 0: every connection as fast as it is answered. See `client.go` for options."""
    words = [
        f"-{name.replace('_', '-')}={str(value).lower() if value is True else value}" for name, value in options.items()
    ]
    with on_the_other_cores():
        process = await asyncio.create_subprocess_exec(
            program(),
            "client",
            f"-target=127.0.0.1:{port}",
            f"-rate={rate}",
            f"-for={seconds}s",
            *words,
            stdout=asyncio.subprocess.PIPE,
        )
    try:
        out, _ = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.communicate()
        raise
    assert process.returncode == 0, "the client ended with an error"
    return msgspec.json.decode(out, type=Sent)


class Turn(msgspec.Struct, frozen=True):
    """One turn. `times` of its requests in seconds, from the moment each was due; `seconds`: how long all took."""

    failed: int
    seconds: float
    times: tuple[float, ...]


class Turns:
    """One client with connections to several servers that stay open, for short turns at each."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def take(self, server: int, count: int, *, rate: float = 0) -> Turn:
        """Ask the n-th server `count` times. Rate 0: every connection as fast as it is answered."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{server} {count} {rate}\n".encode())
        line = await self._process.stdout.readline()
        assert line, "the client ended"
        return msgspec.json.decode(line, type=Turn)


@contextlib.asynccontextmanager
async def turns(ports: Sequence[int], **options: object) -> AsyncIterator[Turns]:
    """A client for all these ports of this machine. Options as for `send`; `connections` are for each port."""
    words = [f"-{name}={value}" for name, value in options.items()]
    targets = ",".join(f"127.0.0.1:{port}" for port in ports)
    with on_the_other_cores():
        process = await asyncio.create_subprocess_exec(
            program(),
            "turns",
            f"-targets={targets}",
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
        )
    try:
        yield Turns(process)
    finally:
        process.kill()
        await process.communicate()
