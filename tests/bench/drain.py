"""The reference of the pipeline benches: the same streams over bare sockets, bytes counted and nothing else.

    python -m tests.bench.drain PORT,PORT PAIRS_PER_S SECONDS REQUEST_FILE

One protocol class on uvloop; a fresh connection for each request, as the mirror makes. Prints its own CPU seconds per
pair while it was sending and draining, as JSON.
"""

import asyncio
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import uvloop


class Drain(asyncio.Protocol):
    """Writes the request, counts what comes back until the end of the chunked body, and puts the sum into `over`."""

    def __init__(self, request: bytes, over: "asyncio.Future[int]") -> None:
        self._request = request
        self._over = over
        self._transport: Any = None
        self._bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        if data.endswith(b"\r\n0\r\n\r\n"):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over.set_result(self._bytes)


async def drain(ports: list[int], rate: float, seconds: float, request: bytes) -> dict[str, float]:
    """Open one connection per port, `rate` times a second."""
    loop = asyncio.get_running_loop()
    streams: list[asyncio.Future[int]] = []
    opening: list[asyncio.Task[Any]] = []
    started, cpu, pairs = time.monotonic(), time.process_time(), 0
    while (due := started + pairs / rate) < started + seconds:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        for port in ports:
            streams.append(loop.create_future())
            made = partial(Drain, request, streams[-1])
            opening.append(loop.create_task(loop.create_connection(made, "127.0.0.1", port)))
        pairs += 1
    await asyncio.gather(*opening)
    sizes = await asyncio.gather(*streams)
    return {
        "cpu_per_pair": (time.process_time() - cpu) / pairs,
        "bytes": sum(sizes),
        "seconds": time.monotonic() - started,
    }


if __name__ == "__main__":
    ports, rate, seconds, request = sys.argv[1:]
    result = uvloop.run(
        drain([int(port) for port in ports.split(",")], float(rate), float(seconds), Path(request).read_bytes())
    )
    print(json.dumps(result))
