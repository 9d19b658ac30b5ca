"""Receive: take copies over HTTP/1.1, answer 202 as soon as the body is complete, hand complete copies on.

Knows nothing of what becomes of a copy, and never answers with more than a status. A body that does not arrive whole
is never handed on. A body over the limit is refused at the door (413), handed on as a size only, and read no further
than needed to find its end. A request that is not a copy of this run is refused and handed on to nobody.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import httptools
import msgspec

from shadowrun_mirror.copied import RUN_HEADER, Copy, joined, window_of

_log = logging.getLogger(__name__)

MAX_CONNECTIONS = 2048
MAX_HEAD_BYTES = 64 * 1024
WHOLE_REQUEST_S = 30.0
"""A request must arrive within this long; an idle connection may stay."""

_REASONS = {
    202: "Accepted",
    400: "Bad Request",
    403: "Forbidden",
    405: "Method Not Allowed",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the door goes by: this run's uid, the largest body, the highest plausible window."""

    run_uid: str
    max_body_bytes: int
    max_window: int


class Door:
    """Accepts connections.

    `rules` is asked at every request, `take` gets the copies, `refused` one of `metrics.REFUSALS` for each request
    that is not one.
    """

    def __init__(
        self,
        rules: Callable[[], Rules],
        take: Callable[[Copy], None],
        refused: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self.rules = rules
        self.refused = refused
        self.clock = clock
        self.connections: set[_Connection] = set()
        self.draining = False
        self._take = take
        self._server: asyncio.Server | None = None

    async def open(self, host: str | None, port: int) -> int:
        """Listen; returns the port (useful for port 0)."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), host, port, backlog=1024)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening and let connections go as soon as they are idle."""
        self.draining = True
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close_if_idle()

    def abort(self) -> None:
        """Drop every connection now."""
        self.close()
        for connection in list(self.connections):
            connection.abort()

    async def sweep(self) -> None:
        """Until cancelled, drop connections whose request does not come to its end."""
        while True:
            await asyncio.sleep(WHOLE_REQUEST_S / 6)
            self.drop_late(self.clock() - WHOLE_REQUEST_S)

    def drop_late(self, started_before: float) -> None:
        """Drop connections whose request began before `started_before` (monotonic seconds) and is not complete."""
        for connection in list(self.connections):
            if connection.is_late(started_before):
                connection.abort()

    def hand_on(self, copy: Copy) -> None:
        """Hand a copy on. Whatever breaks there, the door stays open; the copy is then lost, and said to be."""
        try:
            self._take(copy)
        except Exception as error:
            self.refused("internal")
            _log.error("a copy could not be taken", extra={"fields": {"error": type(error).__name__}})


class _Incoming:
    """One request on its way in."""

    __slots__ = (
        "answered",
        "complete",
        "headers",
        "keep_alive",
        "pieces",
        "size",
        "started",
        "status",
        "target",
        "waits",
        "window",
    )

    def __init__(self, started: float) -> None:
        self.started = started
        self.headers: list[tuple[bytes, bytes]] = []
        self.target = b""
        self.pieces: list[bytes] = []
        self.size = 0
        self.window = 0
        self.status = 0  # 0: nothing against it so far
        self.answered = False
        self.complete = False
        self.keep_alive = True
        self.waits = False  # for our word before it sends its body


class _Connection(asyncio.Protocol):
    """One connection. Parser callbacks only take notes; everything that may fail happens after the parser returned."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._requests: list[_Incoming] = []  # in order; all but the last are complete
        self._rules = door.rules()
        self._head_bytes = 0
        self._in_head = False
        self._closing = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if len(self._door.connections) >= MAX_CONNECTIONS:
            self.abort()
            return
        self._door.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.connections.discard(self)
        if self._requests and not self._requests[0].answered:
            self._door.refused("incomplete")
        self._requests.clear()
        self._closing = True

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._rules = self._door.rules()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._settle()
            self._give_up(400)
            return
        self._settle()
        self._head_bytes = self._head_bytes + len(data) if self._in_head else 0
        if self._head_bytes > MAX_HEAD_BYTES:
            self._give_up(431)

    # the door's side

    def close_if_idle(self) -> None:
        if not self._requests:
            self._close()

    def is_late(self, started_before: float) -> bool:
        return bool(self._requests) and self._requests[0].started < started_before

    def abort(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # answers

    def _settle(self) -> None:
        """Answer what can be answered, in order, then hand on what is complete."""
        while self._requests and not self._closing:
            request = self._requests[0]
            if request.status and not request.answered:
                self._refuse(request)
            if not request.complete:
                if request.waits:
                    request.waits = False
                    self._write(_CONTINUE)
                return
            self._requests.pop(0)
            if not request.answered:
                self._answer(request, 202)
                self._door.hand_on(self._copy(request, b"".join(request.pieces)))
            if not request.keep_alive or self._door.draining:
                self._close()

    def _refuse(self, request: _Incoming) -> None:
        self._answer(request, request.status)
        if request.status == 413:
            self._door.hand_on(self._copy(request, None))
        else:
            self._door.refused({405: "method", 403: "other_run"}.get(request.status, "window"))

    def _answer(self, request: _Incoming, status: int) -> None:
        request.answered = True
        closing = not request.keep_alive or self._door.draining
        self._write(_response(status, closing and request.complete))

    def _copy(self, request: _Incoming, body: bytes | None) -> Copy:
        return Copy(
            target=request.target,
            headers=tuple(request.headers),
            body=body,
            size=request.size,
            window=request.window,
            complete_at=self._door.clock(),
        )

    def _give_up(self, status: int) -> None:
        if not self._closing:
            self._door.refused("bad_request")
            self._requests.clear()
            self._write(_response(status, closing=True))
            self._close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _close(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    # httptools callbacks

    def on_message_begin(self) -> None:
        self._in_head = True
        self._requests.append(_Incoming(self._door.clock()))

    def on_url(self, url: bytes) -> None:
        self._requests[-1].target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._requests[-1].headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        request = self._requests[-1]
        headers = tuple(request.headers)
        window = window_of(headers)
        length = joined(headers, b"content-length")
        if self._parser.get_method() != b"POST":
            request.status = 405
        elif joined(headers, RUN_HEADER) != self._rules.run_uid.encode():
            request.status = 403
        elif window is None or window > self._rules.max_window or not request.target.startswith(b"/"):
            request.status = 400
        elif length.isdigit() and int(length) > self._rules.max_body_bytes:
            request.status, request.size, request.window = 413, int(length), window
        else:
            request.window = window
            request.waits = joined(headers, b"expect").lower() == b"100-continue"

    def on_body(self, data: bytes) -> None:
        request = self._requests[-1]
        if request.status:
            return  # refused: read past it, keep nothing
        request.size += len(data)
        request.pieces.append(data)
        if request.size > self._rules.max_body_bytes:
            request.status = 413
            request.pieces.clear()

    def on_message_complete(self) -> None:
        request = self._requests[-1]
        request.complete = True
        request.keep_alive = bool(self._parser.should_keep_alive())


def _response(status: int, closing: bool = False) -> bytes:
    close = "connection: close\r\n" if closing else ""
    return f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-length: 0\r\n{close}\r\n".encode()
