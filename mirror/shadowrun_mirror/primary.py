"""Primary: take capture's log of the originals (see `capture.outcome_log`), hand each outcome on. Content-free.

Envoy opens the connection, writes, and never reads; nothing is ever answered. The bytes are MessagePack without any
framing, so the end of a message is found by walking it (`Messages`). Whatever is sent is bounded: a message in size, a
connection in what it holds, connections in number. What is no such log costs its sender the connection and is counted;
a single record that makes no sense costs that record.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import cast

import msgspec

from shadowrun_mirror.capture.outcome_log import LOG_TAG
from shadowrun_mirror.join import Outcome, outcome_of, request_mark

_log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 256 * 1024
"""Envoy sends what it has every fifth of a second, or every 64 KiB."""
MAX_CONNECTIONS = 256
"""One per worker thread and capture pod, a few more while they are replaced."""

# By the first byte: how many bytes of head follow it, and what those say. `str`, `bin` and `ext` carry bytes, `array`
# and `map` more items. https://github.com/msgpack/msgpack/blob/master/spec.md
_SCALARS = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8} | {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
_BYTES = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1)} | {
    0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
}  # fmt: skip
_ITEMS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


class GarbageError(Exception):
    """These bytes are no MessagePack, or a message is too long. Says nothing of what they are."""


class Messages:
    """Cuts a stream of bytes into MessagePack messages; each byte is walked once, however it arrives. Pure."""

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()
        self._at = 0  # start of the next item
        self._left = 1  # items until the message is whole

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Whole messages, in order. Raises `GarbageError`; nothing can be read after that."""
        self._held += data
        while self._walked():
            if self._at > self._max_bytes:
                raise GarbageError
            yield bytes(self._held[: self._at])
            del self._held[: self._at]
            self._at, self._left = 0, 1
        if len(self._held) > self._max_bytes or self._at > self._max_bytes:
            raise GarbageError

    def _walked(self) -> bool:
        """Walk as far as there are heads of items; whether the message is whole."""
        while self._left and self._at < len(self._held):
            head = self._item()
            if head is None:
                return False
            self._at += head[0]
            self._left += head[1] - 1
        return not self._left and self._at <= len(self._held)

    def _item(self) -> tuple[int, int] | None:
        """Bytes of the item at hand (without the items in it) and how many items it has; None: more is needed."""
        first = self._held[self._at]
        if first < 0x80 or first >= 0xE0:  # small numbers
            return 1, 0
        if first < 0x90:
            return 1, 2 * (first & 0x0F)
        if first < 0xA0:
            return 1, first & 0x0F
        if first < 0xC0:
            return 1 + (first & 0x1F), 0
        if first in _SCALARS:
            return 1 + _SCALARS[first], 0
        if first not in _BYTES and first not in _ITEMS:
            raise GarbageError
        width, more = _BYTES.get(first) or _ITEMS[first]
        start = self._at + 1
        if len(self._held) < start + width:
            return None
        number = int.from_bytes(self._held[start : start + width], "big")
        return (1 + width, number * more) if first in _ITEMS else (1 + width + more + number, 0)


class _Entry(msgspec.Struct, array_like=True):
    time: msgspec.Raw
    record: msgspec.Raw


class _Forward(msgspec.Struct, array_like=True):
    tag: str
    entries: list[_Entry]


class _Record(msgspec.Struct):
    status: int
    flags: str
    run: str
    id: str | None = None
    first_byte_us: float | None = None


_FORWARD = msgspec.msgpack.Decoder(_Forward)
_RECORD = msgspec.msgpack.Decoder(_Record)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class OutcomeLog:
    """Listens. `ended` gets (request mark, outcome) of this run's requests, `refused` one of `metrics.REFUSALS`."""

    def __init__(self, run_uid: str, ended: Callable[[int, Outcome], object], refused: Callable[[str], None]) -> None:
        self.connections: set[_Connection] = set()
        self.refused = refused
        self._run_uid = run_uid
        self._ended = ended
        self._server: asyncio.Server | None = None

    async def open(self, host: str | None, port: int) -> int:
        """Listen; returns the port (useful for port 0). Raises `OSError`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), host, port)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening and drop every connection."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.abort()

    def take(self, message: bytes) -> None:
        """One message. Raises `GarbageError` when it is no log of ours."""
        try:
            forward = _FORWARD.decode(message)
        except _UNREADABLE:
            raise GarbageError from None
        if forward.tag != LOG_TAG:
            raise GarbageError
        for entry in forward.entries:
            self._take_record(entry.record)

    def _take_record(self, raw: msgspec.Raw) -> None:
        try:
            record = _RECORD.decode(raw)
        except _UNREADABLE:
            self.refused("log_record")
            return
        if record.run != self._run_uid:
            self.refused("other_run")
        elif record.id:
            first_byte_s = None if record.first_byte_us is None else max(0.0, record.first_byte_us / 1e6)
            mark = request_mark(record.id.strip(" \t").encode())
            self._ended(mark, outcome_of(record.status, record.flags, first_byte_s))


class _Connection(asyncio.Protocol):
    def __init__(self, outcomes: OutcomeLog) -> None:
        self._outcomes = outcomes
        self._messages = Messages()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if len(self._outcomes.connections) >= MAX_CONNECTIONS:
            self._outcomes.refused("connections")
            self.abort()
            return
        self._outcomes.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._outcomes.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._messages.feed(data):
                self._outcomes.take(message)
        except GarbageError:
            self._outcomes.refused("log")
            self.abort()
        except Exception as error:  # ours; it must not take the listener along
            self._outcomes.refused("internal")
            _log.error("an outcome could not be taken", extra={"fields": {"error": type(error).__name__}})
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
