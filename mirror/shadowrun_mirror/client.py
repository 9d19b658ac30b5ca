"""A small HTTP/1.1 client for plain in-cluster arms: one request, one answer, every read stamped.

One fresh connection per request, on purpose: each request is balanced over an arm's replicas anew, no arm is ever
blamed for closing an idle connection just as it was reused, and both arms pay the same. In-cluster that costs a
fraction of a millisecond, which is spent before the write stamp and so is in no arm's latency.

`Client` is the seam: a library client for TLS or HTTP/2 can stand behind it. Nothing here looks at content.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol, cast

import httptools
import msgspec

from shadowrun_mirror.addresses import Addresses
from shadowrun_mirror.copied import Headers
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.stream import Reader

HeadObjection = Callable[[int, Headers], FailureReason | None]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One POST to one arm. `headers` are complete but for host, content-length and connection."""

    host: str
    port: int
    target: bytes
    headers: Headers
    body: bytes
    timeout_s: float  # end to end, name lookup and connect included
    max_answer_bytes: int  # bytes on the wire, head included


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """How it went. Times are monotonic seconds.

    `whole` means that the body ended by its own framing. A body without framing that ended with the connection is
    neither whole nor a failure: only its content can tell.
    """

    failure: FailureReason | None
    written_at: float | None  # None: nothing was sent
    whole: bool = False


class Client(Protocol):
    """Sends one request and feeds what comes back to a reader."""

    async def exchange(self, request: Request, reader: Reader, objection: HeadObjection) -> Exchange:
        """Never raises for what an arm or the network does; see `FailureReason`."""
        ...


class PlainClient:
    """HTTP/1.1 without TLS."""

    def __init__(self, addresses: Addresses | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._addresses = addresses or Addresses(clock)
        self._clock = clock

    async def exchange(self, request: Request, reader: Reader, objection: HeadObjection) -> Exchange:
        """Connect, write, read to the end; the connection is gone when this returns."""
        loop = asyncio.get_running_loop()
        protocol = _Exchange(request, reader, objection, self._clock, loop.create_future())
        connected = False
        try:
            async with asyncio.timeout(request.timeout_s):
                address = await self._addresses.one(request.host, request.port)
                await loop.create_connection(lambda: protocol, address, request.port)
                connected = True
                await protocol.ended
        except TimeoutError:
            # A kernel's own connect timeout arrives as the same exception; either way the arm did not answer in time.
            protocol.fail(FailureReason.TIMEOUT)
        except OSError:
            if connected:
                raise
            protocol.fail(FailureReason.CONNECT)
        finally:
            protocol.drop()
        return protocol.result()


class _Exchange(asyncio.Protocol):
    """One connection. Parser callbacks only take notes: an exception in one would be lost inside the parser."""

    def __init__(
        self,
        request: Request,
        reader: Reader,
        objection: HeadObjection,
        clock: Callable[[], float],
        ended: asyncio.Future[None],
    ) -> None:
        self.ended = ended
        self._request = request
        self._reader = reader
        self._objection = objection
        self._clock = clock
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self._received = 0
        self._status = 0
        self._head_read = False
        self._judged = False
        self._whole = False
        self._over = False
        self._failure: FailureReason | None = None
        self._written_at: float | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._over:  # timed out while connecting
            self._transport.abort()
            return
        self._transport.writelines([_head(self._request), self._request.body])
        self._written_at = self._clock()

    def data_received(self, data: bytes) -> None:
        at = self._clock()
        if self._over:
            return
        self._received += len(data)
        try:
            self._read(data, at)
        except Exception as error:  # ours: let it surface where the pair is awaited, not in the transport
            self._over = True
            if not self.ended.done():
                self.ended.set_exception(error)

    def eof_received(self) -> bool:
        return False  # close

    def connection_lost(self, exc: Exception | None) -> None:
        if self._head_read and exc is None and not self._framed() and not self._over:
            self._end()  # the end of the connection is the end of the body
        else:
            self.fail(FailureReason.STREAM_CUT)

    # what the exchange came to

    def fail(self, failure: FailureReason) -> None:
        """End with a failure, unless it has ended already."""
        if not self._over:
            self._failure = failure
            self._end()

    def result(self) -> Exchange:
        """How it went."""
        return Exchange(failure=self._failure, written_at=self._written_at, whole=self._whole)

    def drop(self) -> None:
        """Close the connection at once, whatever is still on its way."""
        self._over = True
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        self._over = True
        if not self.ended.done():  # a timeout cancels what is awaited
            self.ended.set_result(None)

    def _read(self, data: bytes, at: float) -> None:
        readable = self._parse(data)
        if self._head_read and not self._judged:
            self._judged = True
            objection = self._objection(self._status, tuple(self._headers))
            if objection is not None:
                self.fail(objection)
                return
        if self._pieces:
            piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces.clear()
            if not self._reader.feed(piece, at):
                self._end()
        if self._received > self._request.max_answer_bytes:
            self.fail(FailureReason.TOO_LONG)
        elif self._whole:
            self._end()
        elif not readable:
            self.fail(FailureReason.MALFORMED)

    def _parse(self, data: bytes) -> bool:
        """Let the parser take its notes; False when this is not HTTP/1.1 (what came before still counts)."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return False
        return True

    def _framed(self) -> bool:
        names = {name for name, _ in self._headers}
        return b"content-length" in names or b"transfer-encoding" in names

    # httptools callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        self._head_read = self._status >= 200

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        if self._head_read:
            self._whole = True
        else:  # an interim answer (1xx); the real one follows
            self._headers.clear()


def _head(request: Request) -> bytes:
    lines = [
        b"POST " + request.target + b" HTTP/1.1",
        f"host: {request.host}:{request.port}".encode(),
        *(name + b": " + value for name, value in request.headers),
        b"content-length: " + str(len(request.body)).encode(),
        b"connection: close\r\n\r\n",
    ]
    return b"\r\n".join(lines)
