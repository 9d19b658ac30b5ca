"""Of several replicas one runs the operator, the others stand by. No decision about a run is taken here.

The one that loses its Lease ends at once, without a word to anybody: another may act soon. The kubelet starts it anew,
and it stands by.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

from shadowrun_operator.cluster.lease import Lease

LOST = 3
"""Exit status of a process that lost its Lease."""
_HEALTHY = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nstandby\n"

log = logging.getLogger(__name__)


async def run_with(lease: Lease, operator: Callable[[], Awaitable[None]], *, liveness: str) -> None:
    """Stand by until the Lease is held, then run the operator until it ends by itself. Told to stop, it stops standing.

    `liveness` is the URL at which the kubelet asks meanwhile; the operator then listens there itself.
    """
    async with _standing(liveness):
        if not await _acquired(lease):
            return
    keeper = asyncio.create_task(_end_when_lost(lease))
    try:
        await operator()
    finally:
        keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeper
        await lease.give_up()


async def _acquired(lease: Lease) -> bool:
    """Whether the Lease is held; False where the process was told to stop before."""
    told, waits = asyncio.Event(), asyncio.create_task(lease.acquired())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    stops = asyncio.create_task(told.wait())
    try:
        await asyncio.wait({waits, stops}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        for task in (waits, stops):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stops
        with contextlib.suppress(asyncio.CancelledError):
            await waits  # what it failed of ends the process, and says so
    if told.is_set():
        await lease.give_up()
    return not told.is_set() and lease.is_held()


async def _end_when_lost(lease: Lease) -> None:
    await lease.lost()
    log.critical("Another replica may act from now on: this one ends")
    logging.shutdown()
    os._exit(LOST)


@contextlib.asynccontextmanager
async def _standing(liveness: str) -> AsyncIterator[None]:
    """Somebody answers there."""
    address = urlsplit(liveness)
    server = await asyncio.start_server(_answer, address.hostname, address.port)
    async with server:
        yield


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Whatever is asked: this process is well."""
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        async with asyncio.timeout(5):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(_HEALTHY)
            await writer.drain()
    writer.close()
