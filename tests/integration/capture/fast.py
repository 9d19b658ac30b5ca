"""Servers and a client for many small requests: no coroutine per request, requests in batches on one connection."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field


class _Answering(asyncio.Protocol):
    def __init__(self, server: "FastServer") -> None:
        self._server = server
        self._held = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.transports.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport:
            self._server.transports.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        assert self._transport
        while (end := self._held.find(b"\r\n\r\n")) >= 0 and len(self._held) >= end + 4 + self._server.body:
            head, self._held = self._held[:end], self._held[end + 4 + self._server.body :]
            if self._server.keeps:
                self._server.heads.append(head)
            self._server.count += 1
            if self._server.delay_s:
                asyncio.get_running_loop().call_later(self._server.delay_s, self._transport.write, self._server.answer)
            else:
                self._transport.write(self._server.answer)


@dataclass
class FastServer:
    """Answers every request with the same bytes; each request must have a body of `body` bytes, sized."""

    port: int
    host: str = "127.0.0.1"
    body: int = 2
    delay_s: float = 0.0
    keeps: bool = False
    answer: bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    heads: list[bytes] = field(default_factory=list)
    count: int = 0
    transports: set[asyncio.Transport] = field(default_factory=set)

    async def __aenter__(self) -> "FastServer":
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Answering(self), self.host, self.port, backlog=512
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        await self._server.wait_closed()

    def kill(self) -> None:
        """As a process that ends at once: what it has not answered, it never will."""
        self._server.close()
        for transport in list(self.transports):
            transport.abort()


def lines_of(head: bytes) -> list[tuple[bytes, bytes]]:
    """The header lines of a request head, names in lower case."""
    pairs = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return [(name.lower(), value.strip(b" \t")) for name, _, value in pairs]


async def send_in_batches(port: int, requests: Sequence[bytes], connections: int = 6, batch: int = 48) -> int:
    """Send all requests, a batch at a time per connection; returns how many were answered with 200."""

    async def some(part: Sequence[bytes]) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        good = 0
        try:
            for start in range(0, len(part), batch):
                these = part[start : start + batch]
                writer.write(b"".join(these))
                held = b""
                while held.count(b"\r\n\r\nok") < len(these):
                    more = await reader.read(1 << 16)
                    assert more, "the connection was closed instead of an answer"
                    held += more
                good += held.count(b"HTTP/1.1 200 ")
        finally:
            writer.close()
        return good

    return sum(await asyncio.gather(*(some(requests[at::connections]) for at in range(connections))))
