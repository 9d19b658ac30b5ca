"""Receive: take copies over HTTP/1.1, answer 202 as soon as the body is complete, hand complete copies on.

Knows nothing of what becomes of a copy, and never answers with more than a status. A body that does not arrive whole
is never handed on. A body over the limit (413), or one there is no room for (429), is refused at the door, handed on
as a size only (at once where its head says it, else when it ends), and read no further than needed to find its end. A
request that is not a copy of this run is refused and handed on to nobody. Whatever is sent, and however slowly, what is
held is bounded in number, bytes and time.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import httptools
import msgspec

from shadowrun_mirror.baggage import is_shadow
from shadowrun_mirror.config import CopySource
from shadowrun_mirror.connections import Connections
from shadowrun_mirror.copied import RUN_HEADER, Copy, Headers, joined, window_of
from shadowrun_mirror.incoming import CONTINUE, Incoming, response
from shadowrun_mirror.listen import Listener

_log = logging.getLogger(__name__)

MAX_CONNECTIONS = 256 * (16 + 1)
"""As many copies as one Envoy of capture may hold, each on a connection of its own, times the most Envoys there may be:
the replicas a spec may ask for, and one that takes another's place."""
MAX_HEAD_BYTES = 64 * 1024
"""Of a head, of trailers, and of what surrounds the parts of a chunked body."""
MAX_HELD_BYTES = 32 * 1024 * 1024
"""Bytes of all requests together that have begun to arrive and are not complete. Beyond it they are shed."""
WHOLE_REQUEST_S = 30.0
"""A request must arrive within this long; an idle connection may stay."""

_LOSSES = (413, 429)
"""Refusals of a copy of this run: handed on by its size, so that it is counted."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the door goes by: this run's uid, the largest body, the highest plausible window.

    With the source External copies carry no marks of ours: they belong to `window`, and their path must be in `paths`.
    """

    run_uid: str
    max_body_bytes: int
    max_window: int
    source: CopySource = "Proxy"
    window: int = 0
    paths: frozenset[bytes] = frozenset()


class Door:
    """Accepts connections.

    `rules` is asked at every read, `take` gets the copies, `refused` one of `metrics.REFUSALS` for each request that
    is not one. `sheds` says whether a copy with these headers and this content-length (None: not told) would certainly
    be shed.
    """

    def __init__(
        self,
        rules: Callable[[], Rules],
        take: Callable[[Copy], None],
        refused: Callable[[str], None],
        clock: Callable[[], float],
        sheds: Callable[[Headers, int | None], bool] = lambda _, __: False,
        max_held_bytes: int = MAX_HELD_BYTES,
    ) -> None:
        self.rules = rules
        self.refused = refused
        self.clock = clock
        self.connections: Connections[_Connection] = Connections(clock)
        self.held_bytes = 0
        self.max_held_bytes = max_held_bytes
        self.draining = False
        self._take = take
        self._sheds = sheds
        self._listener = Listener(lambda: _Connection(self))

    async def open(self, host: str | None, port: int) -> int:
        """Listen; returns the port (useful for port 0)."""
        return await self._listener.open(host, port)

    def close(self) -> None:
        """Stop listening and let connections go as soon as they are idle; one that has sent nothing may have a turn."""
        self.draining = True
        self._listener.close()
        for connection in self.connections:
            connection.close_if_idle()

    def abort(self) -> None:
        """Drop every connection now."""
        self.close()
        for connection in self.connections:
            connection.abort()

    async def sweep(self) -> None:
        """Until cancelled, drop connections whose request does not come to its end."""
        while True:
            await asyncio.sleep(WHOLE_REQUEST_S / 6)
            self.drop_late(self.clock() - WHOLE_REQUEST_S)

    def drop_late(self, started_before: float) -> None:
        """Drop connections whose request began before `started_before` (monotonic seconds) and is not complete."""
        for connection in self.connections:
            if connection.is_late(started_before):
                connection.abort()

    def has_room(self) -> bool:
        """Whether one more connection may be; an idle one goes if need be, as whoever opened it can open another."""
        if len(self.connections) >= MAX_CONNECTIONS:
            idle = self.connections.dispensable()
            if idle is not None:
                self.connections.remove(idle)
                idle.abort()
        return len(self.connections) < MAX_CONNECTIONS

    def sheds(self, headers: Headers, length: int | None) -> bool:
        """Whether the body need not be read; a fault in finding out means that it is."""
        try:
            return self._sheds(headers, length)
        except Exception as error:
            self._complain("shedding broke", error)
            return False

    def hand_on(self, copy: Copy) -> None:
        """Hand a copy on. Whatever breaks there, the door stays open; the copy is then lost, and said to be."""
        try:
            self._take(copy)
        except Exception as error:
            self._complain("a copy could not be taken", error)

    def _complain(self, what: str, error: Exception) -> None:
        self.refused("internal")
        _log.error(what, extra={"fields": {"error": type(error).__name__}})


class _Connection(asyncio.Protocol):
    """One connection. Parser callbacks only take notes; everything that may fail happens after the parser returned."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._requests: list[Incoming] = []  # in order; all but the last are complete
        self._rules = door.rules()
        self._loose = 0  # bytes since the last that were of use: of a head, of trailers, of a chunk's extensions
        self._came_on = False  # a head, a part of a body or an end came with the present read
        self._held = 0  # our part of `Door.held_bytes`
        self._in_head = False
        self._closing = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._door.draining:  # it was accepted before, and is in no list of those to close
            self.abort()
        elif not self._door.has_room():
            self._door.refused("connections")
            self.abort()
        else:
            self._door.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.connections.remove(self)
        if self._requests and not self._requests[0].answered:
            self._door.refused("incomplete")
        self._forget_requests()
        self._closing = True
        self._hold(0)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._rules = self._door.rules()
        self._came_on = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._settle()
            self._give_up(400, "bad_request")
            return
        self._settle()
        if self._came_on:
            # Where in this read a next head began is not known: it must not be refused for what came before it.
            self._loose = min(len(data), MAX_HEAD_BYTES // 2) if self._in_head else 0
        else:
            self._loose += len(data)
        if self._loose > MAX_HEAD_BYTES:
            self._give_up(431, "bad_request")
        elif self._requests or self._held:
            self._bound()

    def _bound(self) -> None:
        """Count what is held of a request that is not complete, and shed it if all connections hold too much."""
        request = self._requests[-1] if self._requests else None
        self._hold(0 if request is None else self._loose + (0 if request.status else request.size))
        if request is None or not self._held or self._door.held_bytes <= self._room:
            return
        if self._in_head:
            self._give_up(429, "memory")
        else:
            request.refuse(429)
            self._settle()
            self._hold(0)

    @property
    def _room(self) -> int:
        """Bytes for all connections together; the largest body there may be always fits if it comes alone."""
        return max(self._door.max_held_bytes, self._rules.max_body_bytes)

    def _hold(self, held: int) -> None:
        self._door.held_bytes += held - self._held
        self._held = held

    # the door's side

    def close_if_idle(self) -> None:
        if not self._requests and not self._door.connections.is_fresh(self):
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
            if request.headed:
                request.headed = False
                if not request.status and self._door.sheds(tuple(request.headers), request.length):
                    request.refuse(429)
            if request.status and not request.answered:
                self._refuse(request)
            if not request.complete:
                if request.waits:
                    request.waits = False
                    self._write(CONTINUE)
                return
            self._requests.pop(0)
            if request.owed:
                self._door.hand_on(self._copy(request, None))
            elif not request.answered:
                self._answer(request, 202)
                self._door.hand_on(self._copy(request, b"".join(request.pieces)))
            if not request.keep_alive or self._door.draining:
                self._close()
        if not self._requests:
            self._door.connections.idle(self)

    def _refuse(self, request: Incoming) -> None:
        self._answer(request, request.status)
        if request.status not in _LOSSES:
            self._door.refused(request.refusal)
        elif request.length is None and not request.complete:
            request.owed = True  # only its end will tell its size
        else:
            self._door.hand_on(self._copy(request, None))

    def _forget_requests(self) -> None:
        """No more will come of them; what has been refused is counted by what had come."""
        for request in self._requests:
            if request.owed:
                self._door.hand_on(self._copy(request, None))
        self._requests.clear()

    def _answer(self, request: Incoming, status: int) -> None:
        request.answered = True
        self._write(response(status, not request.keep_alive or (self._door.draining and request.complete)))

    def _copy(self, request: Incoming, body: bytes | None) -> Copy:
        return Copy(
            target=request.target,
            headers=tuple(request.headers),
            body=body,
            size=request.size,
            window=request.window,
            complete_at=self._door.clock(),
            shed=request.status == 429,
        )

    def _give_up(self, status: int, refusal: str) -> None:
        if not self._closing:
            self._door.refused(refusal)
            self._forget_requests()
            self._hold(0)
            self._write(response(status, closing=True))
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
        self._door.connections.busy(self)
        self._requests.append(Incoming(self._door.clock()))

    def on_url(self, url: bytes) -> None:
        self._requests[-1].target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else a trailer: nothing that came after the head may speak for the request
            self._requests[-1].headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._came_on = True
        request = self._requests[-1]
        headers = tuple(request.headers)
        length = joined(headers, b"content-length")
        request.headed = True
        request.length = int(length) if length.isdigit() else None
        request.waits = joined(headers, b"expect").lower() == b"100-continue"
        status, refusal = self._objection(request, headers)
        if status:
            request.refuse(status, refusal)
        elif request.length is not None and request.length > self._rules.max_body_bytes:
            request.refuse(413)

    def _objection(self, request: Incoming, headers: Headers) -> tuple[int, str]:
        """Status and metric of the refusal of a request that is no copy of this run; (0, "") when it is one."""
        if self._parser.get_method() != b"POST":
            return 405, "method"
        if not request.target.startswith(b"/"):
            return 400, "target"
        rules = self._rules
        if rules.source == "External":
            request.window = rules.window
            if request.target.partition(b"?")[0] not in rules.paths:
                return 404, "path"
            return (508, "loop") if is_shadow(headers) else (0, "")
        if joined(headers, RUN_HEADER) != rules.run_uid.encode():
            return 403, "other_run"
        window = window_of(headers)
        if window is None or window > rules.max_window:
            return 400, "window"
        request.window = window
        return 0, ""

    def on_body(self, data: bytes) -> None:
        self._came_on = True
        request = self._requests[-1]
        if request.length is None or not request.status:  # else what was declared counts
            request.size += len(data)
        if request.status:
            return  # refused: read past it, keep nothing
        request.pieces.append(data)
        if request.size > self._rules.max_body_bytes:
            request.refuse(413)

    def on_message_complete(self) -> None:
        self._came_on = True
        request = self._requests[-1]
        request.complete = True
        request.keep_alive = request.keep_alive and bool(self._parser.should_keep_alive())
