"""Read an answer while it arrives: when content came, how many tokens, whether it was whole. Pure; keeps no text.

Times are given by the caller: the monotonic moment of the socket read that held the bytes. Several events in one read
share that moment, because nothing finer is known.

A streamed answer is complete when `[DONE]` was seen, or when a `finish_reason` was seen and the body ended by its own
framing; anything else that ends is `StreamCut`. A buffered answer (plain JSON) has no first token to time: it gives
content, tokens and its end only.
"""

from typing import Protocol

import msgspec

from shadowrun_mirror.copied import Headers
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.shapes import Body, Tokens, body_of, tokens_of

MAX_EVENT_BYTES = 1024 * 1024
"""An event that grows beyond this is not an event."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer came to. `failure` is None for a complete one; times are monotonic seconds of socket reads."""

    failure: FailureReason | None
    first_at: float | None = None  # first content (streamed answers only)
    last_at: float | None = None  # last content
    chunks: int = 0  # content-bearing events
    tokens: Tokens | None = None


class Reader(Protocol):
    """Takes the decoded body of one answer, piece by piece."""

    def feed(self, data: bytes, at: float) -> bool:
        """Take bytes read at `at`. False: nothing more is needed, the answer has failed."""
        ...

    def answer(self, whole: bool) -> Answer:
        """The result; `whole` says that the body ended by its own framing, not by a closed connection."""
        ...


def head_objection(status: int, headers: Headers, streamed: bool) -> FailureReason | None:
    """What is wrong with an answer by its head alone; None to read on. Header names are lower case."""
    if 400 <= status < 500:
        return FailureReason.HTTP_4XX
    if status >= 500:
        return FailureReason.HTTP_5XX
    if not 200 <= status < 300:
        return FailureReason.MALFORMED
    named = {name: value.strip().lower() for name, value in headers if name in (b"content-type", b"content-encoding")}
    if named.get(b"content-encoding", b"identity") != b"identity":  # none was asked for
        return FailureReason.MALFORMED
    is_stream = named.get(b"content-type", b"").startswith(b"text/event-stream")
    return None if is_stream == streamed else FailureReason.MALFORMED


class BufferedReader:
    """A plain JSON answer: kept until its end, looked at once, dropped."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._last_at: float | None = None

    def feed(self, data: bytes, at: float) -> bool:
        """Keep the bytes; the client bounds their number."""
        self._pieces.append(data)
        self._last_at = at
        return True

    def answer(self, whole: bool) -> Answer:
        """Judge the JSON. A body that ended with the connection is whole if it parses."""
        body = body_of(b"".join(self._pieces))
        self._pieces.clear()
        if body is None:
            return Answer(failure=FailureReason.MALFORMED if whole else FailureReason.STREAM_CUT)
        if body.is_error():
            return Answer(failure=FailureReason.STREAM_ERROR)
        if body.content() is None:
            return Answer(failure=FailureReason.EMPTY)
        return Answer(failure=None, last_at=self._last_at, tokens=tokens_of(body.usage))


class StreamReader:
    """Server-sent events of a chat or plain completion.

    Most events of a stream differ in their text only. Once one content event has been parsed, its line up to the
    opening quote of the text is remembered: an event that starts with them and goes on with anything but the closing
    quote has content for certain, and is not parsed. Only the last such event of a row is, before the next event of
    another kind or at the end, for what follows its text (some engines put `finish_reason` or `usage` there). So what
    would follow the text of an earlier one is not seen: usage must be cumulative, as it is, and an error that shares
    an event with text counts only if that event is the last.
    """

    def __init__(self) -> None:
        self._rest = bytearray()  # bytes of an event that has not ended
        self._opening = b""
        self._unparsed = b""  # last event taken for content by its opening
        self._failure: FailureReason | None = None
        self._first_at: float | None = None
        self._last_at: float | None = None
        self._chunks = 0
        self._tokens: Tokens | None = None
        self._finished = False
        self._done = False
        self._read_at = 0.0

    def feed(self, data: bytes, at: float) -> bool:
        """Take bytes of the body; events may be split anywhere, lines may end in LF, CRLF or CR."""
        self._read_at = at
        if self._rest or b"\r" in data:
            self._rest += data
            if b"\n" not in data and b"\r" not in data:
                return self._bounded()
            data = self._unix_lines()
        *events, rest = data.split(b"\n\n")
        for event in events:
            opening = self._opening  # may change from one event to the next
            if self._done:
                break
            if (
                opening
                and event.startswith(opening)
                and event[len(opening) : len(opening) + 1] != b'"'
                and b"\n" not in event
            ):
                self._unparsed = event
                self._content(at)
            elif event:
                self._event(event, at)
        self._rest[:0] = rest
        return self._bounded()

    def answer(self, whole: bool) -> Answer:
        """The result. Bytes of an unfinished event count for nothing, as the format says; a bare `[DONE]` is enough."""
        if self._rest.endswith(b"\r"):
            self.feed(b"\n", self._read_at)  # that CR was a line end of its own
        if self._rest.startswith(b"data:") and self._rest[5:].strip() == b"[DONE]":
            self._done = True
        self._catch_up()
        complete = self._done or (self._finished and whole)
        failure = self._failure
        if failure is None and not complete:
            failure = FailureReason.STREAM_CUT
        if failure is None and self._last_at is None:
            failure = FailureReason.EMPTY
        return Answer(
            failure=failure, first_at=self._first_at, last_at=self._last_at, chunks=self._chunks, tokens=self._tokens
        )

    def _bounded(self) -> bool:
        if len(self._rest) > MAX_EVENT_BYTES:
            self._failure = FailureReason.TOO_LONG
            self._rest.clear()
        return self._failure is None

    def _unix_lines(self) -> bytes:
        """All bytes at hand with LF line ends; a CR at the very end waits, its LF may be still to come."""
        text, self._rest = self._rest, bytearray()
        if text.endswith(b"\r"):
            del text[-1:]
            self._rest += b"\r"
        return bytes(text).replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _event(self, event: bytes, at: float) -> None:
        self._catch_up()
        payload = event[5:].lstrip(b" ") if event.startswith(b"data:") and b"\n" not in event else self._data(event)
        if not payload:
            return
        if payload.rstrip() == b"[DONE]":
            self._done = True
        else:
            self._parse(payload, at, event)

    def _data(self, event: bytes) -> bytes:
        """The joined `data` lines of an event; notes an event named `error`. Comments and other fields are skipped."""
        lines: list[bytes] = []
        for line in event.split(b"\n"):
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                lines.append(value)
            elif name == b"event" and value == b"error":
                self._failure = FailureReason.STREAM_ERROR
        return b"\n".join(lines).strip()

    def _catch_up(self) -> None:
        """Parse the event taken for content by its opening, so that whatever comes later is noted later."""
        if self._unparsed:
            event, self._unparsed = self._unparsed, b""
            self._noted(self._data(event))

    def _parse(self, payload: bytes, at: float, event: bytes) -> None:
        body = self._noted(payload)
        content = None if body is None else body.content()
        if content is not None:
            self._content(at)
            opening = b"" if b"\n" in event else _opening(payload, *content)
            self._opening = event[: event.index(payload)] + opening if opening else b""

    def _noted(self, payload: bytes) -> Body | None:
        """The parsed event, its end and usage noted; None for one that fails the answer."""
        body = body_of(payload)
        if body is None:
            self._failure = self._failure or FailureReason.MALFORMED
            return None
        if body.is_error():
            self._failure = FailureReason.STREAM_ERROR
            return None
        self._finished = self._finished or body.finished()
        self._tokens = tokens_of(body.usage) or self._tokens
        return body

    def _content(self, at: float) -> None:
        if self._first_at is None:
            self._first_at = at
        self._last_at = at
        self._chunks += 1


def _opening(payload: bytes, name: str, value: msgspec.Raw) -> bytes:
    """The bytes of a content event up to and with the opening quote of its text; b"" where that is not certain.

    Certain means: with the text between the quotes taken out, the event has no content left.
    """
    text = bytes(value)
    start = payload.find(text, payload.find(b'"' + name.encode() + b'"'))
    if not text.startswith(b'"') or start < 0:
        return b""
    without = body_of(payload[:start] + b'""' + payload[start + len(text) :])
    return payload[: start + 1] if without is not None and without.content() is None else b""
