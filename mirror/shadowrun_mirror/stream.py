"""Read an answer while it arrives: when content came, how many tokens, whether it was whole. Pure; keeps no text.

Times are given by the caller: the monotonic moment of the socket read that held the bytes. Several events in one read
share that moment, because nothing finer is known; how the bytes were split changes times and nothing else.

A streamed answer is complete when its last event was seen (`[DONE]`, `response.completed`, `message_stop`), or when it
said why it ended and the body then ended by its own framing; anything else that ends is `StreamCut`. A buffered answer
(plain JSON) has no first token to time: it gives content, tokens and its end only.
"""

from typing import Protocol

import msgspec

from shadowrun_mirror.glance import Glance
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.shapes import Content, Counted, Note, Noted, Tokens
from shadowrun_mirror.sse import Frames, fields_of

MAX_EVENT_BYTES = 1024 * 1024
"""An event that grows beyond this is not an event."""

_DONE = b"[DONE]"
_QUOTE = ord('"')
_LF = ord("\n")
_CR = ord("\r")
_NUMBER = b'"sequence_number":'
_LONGEST_NUMBER = 20


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer came to. `failure` is None for a complete one; times are monotonic seconds of socket reads."""

    failure: FailureReason | None
    first_at: float | None = None  # first content (streamed answers only)
    last_at: float | None = None  # last content
    gap: float | None = None  # longest time between two successive reads with content; seconds
    chunks: int = 0  # content-bearing events
    tokens: Tokens | None = None


class Reader(Protocol):
    """Takes the decoded body of one answer, piece by piece.

    `glance`, where there is one, may be shown a read of its stream as it came, before the chunk in it is unpacked.
    """

    @property
    def glance(self) -> Glance | None:
        """Of a stream whose body is not decoded; to be looked up anew once the head was heard."""
        ...

    def feed(self, data: bytes, at: float, /) -> bool:
        """Take bytes read at `at`. False: nothing more is needed, the answer has failed."""
        ...

    def answer(self, whole: bool) -> Answer:
        """The result; `whole` says that the body ended by its own framing, not by a closed connection."""
        ...


class BufferedReader:
    """A plain JSON answer: kept until its end, looked at once by `note`, dropped."""

    glance: Glance | None = None

    def __init__(self, note: Note) -> None:
        self._note = note
        self._pieces: list[bytes] = []
        self._last_at: float | None = None

    def feed(self, data: bytes, at: float, /) -> bool:
        """Keep the bytes; whoever feeds bounds their number."""
        self._pieces.append(data)
        self._last_at = at
        return True

    def answer(self, whole: bool) -> Answer:
        """Judge the JSON. A body that ended with the connection is whole if it parses."""
        noted = self._note(b"".join(self._pieces))
        self._pieces.clear()
        if noted is None:
            return Answer(failure=FailureReason.MALFORMED if whole else FailureReason.STREAM_CUT)
        if noted.failed:
            return Answer(failure=FailureReason.STREAM_ERROR)
        if noted.content is None:
            return Answer(failure=FailureReason.EMPTY)
        tokens = None if noted.counted is None else noted.counted.tokens()
        return Answer(failure=None, last_at=self._last_at, tokens=tokens)


class Opening(msgspec.Struct, frozen=True):
    """How a content event begins, up to its text: `head`, then a number and `tail` if the event counts itself."""

    head: bytes = b""
    tail: bytes = b""

    def text_at(self, event: bytes) -> int:
        """Where the text of an event that starts with `head` and a number begins; 0 when it does not go on so."""
        start = len(self.head)
        end = event.find(self.tail, start, start + _LONGEST_NUMBER + len(self.tail))
        return end + len(self.tail) if end > start and event[start:end].isdigit() else 0


class StreamReader:
    """Server-sent events of one API, which `note` reads; `done_mark` says that it ends its streams with `[DONE]`.

    Most events of a stream differ in their text only. Once one content event has been parsed, its bytes up to the
    opening quote of the text are remembered: an event that starts with them and goes on with anything but the closing
    quote has content for certain, and is not parsed. Only the last such event of a row is, before the next event of
    another kind or at the end, for what follows its text (some engines put `finish_reason` or `usage` there). So what
    would follow the text of an earlier one is not seen: usage must be cumulative, as it is, and an error that shares
    an event with text counts only if that event is the last.
    """

    def __init__(self, note: Note, done_mark: bool, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._note = note
        self._done_mark = done_mark
        self._max_event_bytes = max_event_bytes
        self._frames = Frames()
        self._opening = Opening()
        self._head = b""  # of the opening
        self._beyond = b""  # first bytes that sort after all that begin with it; none while an event has begun
        self._lines = 0  # of an event that begins with it, the blank one included
        self._numbered = False
        self._failure: FailureReason | None = None
        self._first_at: float | None = None
        self.glance = Glance(max_event_bytes)
        self._counted: Counted | None = None
        self._finished = False
        self._done = False

    def feed(self, data: bytes, at: float, /) -> bool:
        """Take bytes of the body; events may be split anywhere, lines may end in LF, CRLF or CR."""
        head = self._head
        if head <= data < self._beyond:  # it starts with the opening
            start = self._opening.text_at(data) if self._numbered else len(head)
            rest = data[start:-2]
            if (
                start
                and data[-1] == _LF == data[-2]
                and _LF not in rest
                and _CR not in rest
                and data[start] != _QUOTE
                and len(data) <= self._max_event_bytes
            ):
                # One event that is content for certain, which is what most reads are.
                self._count(data, at, 1)
                return True
            if not self._numbered:
                data = self._skimmed(data, at)
        if data and not self._done and self._failure is None:
            self._events(data, at)
        return self._failure is None

    def answer(self, whole: bool) -> Answer:
        """The result. An event without its blank line counts for nothing, as the format says, unless it is the last."""
        if not self._done and self._failure is None:
            self._catch_up()
            self._last_words()
        failure = self._failure
        if failure is None and not (self._done or (self._finished and whole)):
            failure = FailureReason.STREAM_CUT
        if failure is None and self._first_at is None:
            failure = FailureReason.EMPTY
        return Answer(
            failure=failure,
            first_at=self._first_at,
            last_at=None if self._first_at is None else self.glance.last_at,
            gap=self.glance.gap or None,
            chunks=self.glance.chunks,
            tokens=None if self._counted is None else self._counted.tokens(),
        )

    def _skimmed(self, data: bytes, at: float) -> bytes:
        """What is left of `data` without the events at its beginning that are content for certain.

        They are counted without being cut apart: where there are no more lines than as many events have, and none
        begins with an empty text, each is one that the opening alone decides.
        """
        head = self._head
        last = data.rfind(b"\n\n" + head) + 2
        if last == 1:  # there is but one
            last = 0
        end = data.find(b"\n\n", last) + 2
        if end < 2:  # the last has not ended
            return data
        skimmed = data if end == len(data) else data[:end]
        count = skimmed.count(b"\n\n" + head) + 1
        if skimmed.count(b"\n") != count * self._lines or _CR in skimmed or head + b'"' in skimmed:
            return data
        if len(skimmed) > self._max_event_bytes:  # so may be one of them
            return data
        self._count(skimmed[last:], at, count)
        return data[end:]

    def _events(self, data: bytes, at: float) -> None:
        """Go through the events that end with `data`, up to the one that ends the answer."""
        may_be_long = not self._frames.is_between or len(data) > self._max_event_bytes
        certain = 0
        for event in self._frames.feed(data):
            if may_be_long and len(event) > self._max_event_bytes:
                self._fail(FailureReason.TOO_LONG)
                break
            head = self._head  # may change from one event to the next
            if head and event.startswith(head):
                start = self._opening.text_at(event) if self._numbered else len(head)
                if start and event[start : start + 1] != b'"' and event.find(b"\n", start) < 0:
                    self.glance.last, self.glance.cut = event, 0
                    certain += 1
                    continue
            if event:
                self._event(event, at)
                if self._done or self._failure is not None:
                    break
        if certain:
            self._stamp(at, certain)
        self._beyond = b""
        self.glance.open = False
        if self._frames.is_between:
            if self._head:
                self._beyond = self._head[:-1] + bytes((self._head[-1] + 1,))
                self.glance.begins(self._head)
                self.glance.open = not self._numbered
        elif not self._done and self._is_too_long():
            self._fail(FailureReason.TOO_LONG)

    def _is_too_long(self) -> bool:
        """Whether the event that has not ended is too long already; line ends at its end are not counted."""
        rest, most = self._frames.rest, self._max_event_bytes
        return len(rest) > most and len(rest.rstrip(b"\r\n")) > most

    def _event(self, event: bytes, at: float) -> None:
        self._catch_up()
        name, payload = fields_of(event)
        if self._failure is not None:
            return
        if name == b"error":
            self._fail(FailureReason.STREAM_ERROR)
        elif payload == _DONE:
            self._end(self._done_mark)
        elif payload:
            self._parse(payload, at, event)

    def _catch_up(self) -> None:
        """Parse the event taken for content by its opening, so that whatever comes later is noted later."""
        event = self.glance.event()
        if event:
            self.glance.last, self.glance.cut = b"", 0
            self._noted(fields_of(event.removesuffix(b"\n\n"))[1])

    def _last_words(self) -> None:
        """Bytes that no blank line followed: enough if they end the answer."""
        name, payload = fields_of(bytes(self._frames.rest))
        self._frames.rest.clear()
        if not payload or name == b"error":
            return
        if payload == _DONE:
            self._end(self._done_mark)
            return
        noted = self._note(payload)
        if noted is not None and noted.done:
            self._noted(payload)

    def _parse(self, payload: bytes, at: float, event: bytes) -> None:
        noted = self._noted(payload)
        if noted is None:
            return
        if noted.content is not None:
            self._stamp(at, 1)
            self._opening = _opening(event, payload, noted.content, self._note)
            self._head = self._opening.head
            self._lines = self._head.count(b"\n") + 2
            self._numbered = bool(self._opening.tail)
        elif noted.repeated and not self.glance.chunks:  # an engine that gives its answer in one piece
            self._stamp(at, 1)

    def _noted(self, payload: bytes) -> Noted | None:
        """What an event says, its end and usage noted; None for one that fails the answer."""
        noted = self._note(payload)
        if noted is None:
            self._fail(FailureReason.MALFORMED)
            return None
        if noted.failed:
            self._fail(FailureReason.STREAM_ERROR)
            return None
        self._finished = self._finished or noted.finished
        self._end(noted.done)
        if noted.counted is not None:
            self._counted = noted.counted if self._counted is None else self._counted.updated(noted.counted)
        return noted

    def _end(self, done: bool) -> None:
        if done:
            self._done = True
            self._head = b""  # nothing that follows is looked at

    def _fail(self, failure: FailureReason) -> None:
        """Note the first failure; nothing that follows is looked at."""
        self._failure = self._failure or failure
        self._head = b""
        self._frames.rest.clear()

    def _count(self, last: bytes, at: float, chunks: int) -> None:
        """Count events that are content for certain, of which `last` is the last."""
        self.glance.last, self.glance.cut = last, 0
        self._stamp(at, chunks)

    def _stamp(self, at: float, chunks: int) -> None:
        seen = self.glance
        if self._first_at is None:
            self._first_at = at
        else:
            seen.gap = max(seen.gap, at - seen.last_at)
        seen.last_at = at
        seen.chunks += chunks


def _opening(event: bytes, payload: bytes, content: Content, note: Note) -> Opening:
    """How events like this one begin; empty where that is not certain.

    Certain means: with the text between the quotes taken out, the event has no content left. Of a list of objects
    (tool calls) what counts is that there is one, so it is enough to see the first begin.
    """
    value = bytes(content.value)
    at = event.find(payload)
    start = payload.find(value, payload.find(b'"' + content.name.encode() + b'"'))
    begins = b'"' if value.startswith(b'"') else b'[{"' if value.startswith(b'[{"') else b""
    if not begins or start < 0 or at < 0 or b"\n" in event[at:]:
        return Opening()
    empty = b'""' if begins == b'"' else b"[]"
    without = note(payload[:start] + empty + payload[start + len(value) :])
    if without is None or without.content is not None:
        return Opening()
    return _numbered(event[: at + start] + begins)


def _numbered(head: bytes) -> Opening:
    """The same opening with the event's own number, if it has one, left open."""
    before, name, after = head.partition(_NUMBER)
    number = after.lstrip(b" ")
    tail = number.lstrip(b"0123456789")
    if not name or tail == number or not tail:
        return Opening(head)
    return Opening(before + name + b" " * (len(after) - len(number)), tail)
