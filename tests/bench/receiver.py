"""Something that misbehaves in the mirror's place, as a process: `python -m tests.bench.receiver FAULT PORT`.

A process of its own at the lowest priority, so that what it burns is not taken from the customers' own client.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.bench.machine import on_the_other_cores
from tests.integration.capture.faults import MIRRORS

_ROOT = Path(__file__).resolve().parents[2]


@contextlib.asynccontextmanager
async def receiver(fault: str, port: int) -> AsyncIterator[None]:
    """The fault on that port while inside."""
    with on_the_other_cores():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.receiver", fault, str(port), cwd=_ROOT, stdout=asyncio.subprocess.PIPE
        )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline(), "the receiver did not start"
        yield
    finally:
        process.kill()
        await process.communicate()


async def _misbehave(fault: str, port: int) -> None:
    async with MIRRORS[fault](port):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    os.nice(19)
    asyncio.run(_misbehave(sys.argv[1], int(sys.argv[2])))
