"""A small HTTP/1.1 client for plain in-cluster arms: one request, one answer, every read stamped.

One fresh connection per request, on purpose: each request is balanced over an arm's replicas anew, no arm is ever
blamed for closing an idle connection just as it was reused, and both arms pay the same. In-cluster that costs a
fraction of a millisecond, which is spent before the write stamp and so is in no arm's latency.

`Client` is the seam: another protocol (`http2`) stands behind it. Nothing here looks at content. An exchange ends by a
callback, not by a task that waits for it: a pair's wake-ups are most of what it costs.
"""

import asyncio
import errno
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, cast

import httptools
import msgspec

from shadowrun_mirror.addresses import Addresses
from shadowrun_mirror.copied import Headers
from shadowrun_mirror.deadlines import Deadlines
from shadowrun_mirror.glance import Glance
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.stream import Reader

HeadObjection = Callable[[int, Headers], FailureReason | None]


_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS})
"""Why a connection was not made that says nothing of the arm: this machine had no file, port or buffer left for it."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One POST to one arm. `headers` are complete but for host, content-length and connection."""

    host: str
    port: int
    target: bytes
    headers: Headers
    body: bytes
    timeout_s: float  # end to end, name lookup and connect included
    max_answer_bytes: int  # bytes on the wire, head included
    max_event_bytes: int = 1024 * 1024  # of one event, where the answer is a stream
    http2: bool = False
    place: int | None = None  # which address of the host, where it has several; None: the next in turn


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """How it went. Times are monotonic seconds.

    `whole` means that the body ended by its own framing. A body without framing that ended with the connection is
    neither whole nor a failure: only its content can tell.
    """

    failure: FailureReason | None
    written_at: float | None  # None: nothing was sent
    whole: bool = False


Ended = Callable[[Exchange | Exception], None]
"""Called once, when an exchange has ended by itself. An exception is a fault of ours, not of the arm."""


class Running(Protocol):
    """An exchange on its way."""

    def give_up(self) -> None:
        """Close the connection at once, whatever is still on its way. Its end is not told; after the end, nothing."""
        ...


class Client(Protocol):
    """Sends one request and feeds what comes back to a reader."""

    def start(self, request: Request, reader: Reader, objection: HeadObjection, ended: Ended) -> Running:
        """Never raises for what an arm or the network does; see `FailureReason`. `ended` comes after this returned."""
        ...


class PlainClient:
    """HTTP/1.1 without TLS."""

    def __init__(self, addresses: Addresses | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._addresses = addresses or Addresses(clock)
        self._deadlines = Deadlines()
        self._clock = clock

    def start(self, request: Request, reader: Reader, objection: HeadObjection, ended: Ended) -> Running:
        """Connect, write, read to the end; the connection is gone when `ended` is called."""
        exchange = PlainConnection(request, reader, objection, ended, self._clock)
        exchange.begin(self._addresses, self._deadlines)
        return exchange


class Connection(asyncio.Protocol, ABC):
    """One connection for one exchange: opens and closes it, stamps, bounds it in time and bytes, and ends it once.

    What is spoken on it is the subclass's: `opened` writes the request, `read` takes bytes and calls `judged` with the
    head, `feed` with the body, `finish` or `fail` at the end, `cut` judges an end of the connection.
    """

    def __init__(
        self, request: Request, reader: Reader, objection: HeadObjection, ended: Ended, clock: Callable[[], float]
    ) -> None:
        self.request = request
        self.transport: asyncio.Transport | None = None
        self.over = False
        self.whole = False
        self.written_at: float | None = None
        self.feed: Callable[[bytes, float], bool] = reader.feed
        """Takes bytes of the body; whether more is wanted. The reader's own: it is called for every read."""
        self._reader = reader
        self._objection = objection
        self._ended = ended
        self._clock = clock
        self._room = request.max_answer_bytes
        self._failure: FailureReason | None = None
        self._deadlines: Deadlines | None = None
        self._connecting: asyncio.Task[None] | None = None

    # for the subclass

    @abstractmethod
    def opened(self) -> None:
        """The connection is there: write the request."""

    @abstractmethod
    def read(self, data: bytes, at: float) -> None:
        """Bytes read at `at`."""

    @abstractmethod
    def cut(self) -> bool:
        """Whether an orderly end of the connection, now, is the end of the answer."""

    def judged(self, status: int, headers: Headers) -> bool:
        """Whether to read on by the head; if not, the exchange has failed."""
        objection = self._objection(status, headers)
        if objection is not None:
            self.fail(objection)
        self.feed = self._reader.feed  # by the head the reader may have become another
        return objection is None

    def wrote(self) -> None:
        """The whole request was given to the system (or to the connection's buffer) just now."""
        self.written_at = self._clock()

    def fail(self, failure: FailureReason) -> None:
        """End with a failure, unless it has ended already."""
        if not self.over:
            self._failure = failure
            self.finish()

    def finish(self) -> None:
        """End: close the connection and tell."""
        if not self.over:
            self.give_up()
            self._ended(Exchange(failure=self._failure, written_at=self.written_at, whole=self.whole))

    # Running

    def begin(self, addresses: Addresses, deadlines: Deadlines) -> None:
        """Start to connect."""
        self._deadlines = deadlines
        deadlines.add(self, self.request.timeout_s)
        self._connecting = asyncio.get_running_loop().create_task(self._connect(addresses), name="connect")

    def late(self) -> None:
        """The timeout has passed."""
        self.fail(FailureReason.TIMEOUT)

    def give_up(self) -> None:
        """Close at once and tell nobody."""
        self.over = True
        if self._deadlines is not None:
            self._deadlines.remove(self, self.request.timeout_s)
        if self.transport is not None:
            self.transport.abort()
        elif self._connecting is not None:
            self._connecting.cancel()

    async def _connect(self, addresses: Addresses) -> None:
        request = self.request
        try:
            address = await addresses.one(request.host, request.port, request.place)
            await asyncio.get_running_loop().create_connection(lambda: self, address, request.port)
        except TimeoutError:  # the kernel's own; either way the arm did not answer in time
            self.fail(FailureReason.TIMEOUT)
        except OSError as error:
            if error.errno in _OURS:
                self._broke(error)
            else:
                self.fail(FailureReason.CONNECT)
        except Exception as error:
            self._broke(error)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self.transport = cast("asyncio.Transport", transport)
        if self.over:  # given up while connecting
            self.transport.abort()
            return
        try:
            self.opened()
        except Exception as error:
            self._broke(error)

    def data_received(self, data: bytes) -> None:
        """One read."""
        self._take(data, self._clock())

    def _take(self, data: bytes, at: float) -> None:
        if self.over:
            return
        try:
            self.read(data, at)
        except Exception as error:  # ours: let it surface at the pair, not in the transport
            self._broke(error)
            return
        self._room -= len(data)
        if self._room < 0:
            self.fail(FailureReason.TOO_LONG)

    def eof_received(self) -> bool:
        """The other side has ended."""
        return False  # close

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if self.over:
            return
        if exc is None and self.cut():
            self.finish()
        else:
            self.fail(FailureReason.STREAM_CUT)

    def _broke(self, error: Exception) -> None:
        if not self.over:
            self.give_up()
            self._ended(error)


class PlainConnection(Connection):
    """HTTP/1.1. Parser callbacks only take notes: an exception in one would be lost inside the parser.

    A read that is one chunk with one event, and is known by a glance, is not shown to the parser: it stays where it
    is, between two chunks.
    """

    def __init__(
        self, request: Request, reader: Reader, objection: HeadObjection, ended: Ended, clock: Callable[[], float]
    ) -> None:
        super().__init__(request, reader, objection, ended, clock)
        self._headers: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # for the parser: a call per chunk that enters no frame of ours
        self._parser: Any = httptools.HttpResponseParser(self)
        self._parse: Any = self._parser.feed_data
        self._status = 0
        self._head_read = False
        self._judged = False
        self._glance: Glance | None = None  # while the parser is between two chunks, with all that was read

    def data_received(self, data: bytes) -> None:
        """One read."""
        at = self._clock()
        if self._glance is None or not self._glance.saw(data, at):
            self._take(data, at)
            return
        self._room -= len(data)
        if self._room < 0:
            self.fail(FailureReason.TOO_LONG)

    def opened(self) -> None:
        """Write head and body at once."""
        assert self.transport is not None
        self.transport.writelines([_head(self.request), self.request.body])
        self.wrote()

    def read(self, data: bytes, at: float) -> None:
        """Let the parser take its notes, then act on them; what came before a fault still counts."""
        readable = True
        try:
            self._parse(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            readable = False
        if not self._judged and self._head_read:
            self._judged = True
            if not self.judged(self._status, tuple(self._headers)):
                return
        pieces = self._pieces
        self._glance = None
        if pieces:
            piece = pieces.pop()
            # What ends otherwise than the piece does ends with what is around a piece, and that is a chunk's end.
            if readable and piece.endswith(b"\n\n") and data.endswith(b"\n\n\r\n"):
                self._glance = self._reader.glance
            if pieces:
                piece = b"".join((*pieces, piece))
                pieces.clear()
            if not self.feed(piece, at):
                self.finish()
                return
        if self.whole:
            self.finish()
        elif not readable:
            self.fail(FailureReason.MALFORMED)

    def give_up(self) -> None:
        """Close; the parser and its callbacks hold each other, and would wait for the garbage collector."""
        super().give_up()
        self._parser = self._parse = self._glance = None

    def cut(self) -> bool:
        """Only a body without any framing ends with its connection."""
        names = {name for name, _ in self._headers}
        return self._head_read and not names & {b"content-length", b"transfer-encoding"}

    # httptools callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header line."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The end of the head."""
        self._status = self._parser.get_status_code()
        self._head_read = self._status >= 200

    def on_message_complete(self) -> None:
        """The end of an answer, interim ones included."""
        if self._head_read:
            self.whole = True
        else:  # an interim answer (1xx); the real one follows
            self._headers.clear()


def _head(request: Request) -> bytes:
    lines = [
        b"POST " + request.target + b" HTTP/1.1",
        f"host: {request.host}:{request.port}".encode(),
        *[name + b": " + value for name, value in request.headers],
        b"content-length: " + str(len(request.body)).encode(),
        b"connection: close\r\n\r\n",
    ]
    return b"\r\n".join(lines)
