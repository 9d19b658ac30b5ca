"""Reading: one answer from its head to its end. Judges the head, undoes a compression nobody asked for, bounds both.

Arms are asked for no content coding. One that compresses all the same (some gateways do) is decoded with gzip or
deflate, piece by piece, so that an event is read when it came; any other coding cannot be read. Decoded bytes are
bounded as the bytes on the wire are: a few compressed ones can stand for gigabytes.
"""

import zlib
from collections.abc import Callable

from shadowrun_mirror.copied import Headers
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.stream import Answer, Reader

_PIECE = 64 * 1024
_GZIP = 16 + zlib.MAX_WBITS
_GZIP_START = b"\x1f"
_CODINGS = (b"gzip", b"x-gzip", b"deflate")

Feed = Callable[[bytes, float], bool]


class Reading:
    """Stands between the client and the reader of an API, as a `Reader`; `objection` must hear the head first.

    Without a content coding `feed` is the reader's own: a step in between would cost as much as the reader itself. So
    it is to be looked up anew once the head was heard.
    """

    def __init__(self, reader: Reader, streamed: bool, max_bytes: int) -> None:
        self.feed: Feed = reader.feed
        self.glance = reader.glance
        self._reader = reader
        self._streamed = streamed
        self._max_bytes = max_bytes
        self._decoded: _Decoded | None = None

    def objection(self, status: int, headers: Headers) -> FailureReason | None:
        """What is wrong with the answer by its head alone; None to read on. Header names are lower case."""
        failure = head_objection(status, headers, self._streamed)
        coding = coding_of(headers)
        if failure is None and coding:
            self._decoded = _Decoded(self._reader.feed, coding, self._max_bytes)
            self.feed = self._decoded.feed
            self.glance = None
        return failure

    def answer(self, whole: bool) -> Answer:
        """The result. An answer that says itself that it is complete is, even if its coding then broke."""
        decoded = self._decoded
        if decoded is None:
            return self._reader.answer(whole)
        answer = self._reader.answer(whole and decoded.ended)
        if answer.failure is None or decoded.failure is None:
            return answer
        return Answer(failure=decoded.failure)


def head_objection(status: int, headers: Headers, streamed: bool) -> FailureReason | None:
    """What is wrong with an answer by its head; None to read on. Header names are lower case."""
    if 400 <= status < 500:
        return FailureReason.HTTP_4XX
    if status >= 500:
        return FailureReason.HTTP_5XX
    if not 200 <= status < 300 or coding_of(headers) not in (b"", *_CODINGS):
        return FailureReason.MALFORMED
    kinds = [value.strip().lower() for name, value in headers if name == b"content-type"]
    is_stream = bool(kinds) and kinds[-1].startswith(b"text/event-stream")
    return None if is_stream == streamed else FailureReason.MALFORMED


def coding_of(headers: Headers) -> bytes:
    """The content coding of an answer; b"" without one. Several on top of each other give a name nobody knows."""
    values = [value for name, value in headers if name == b"content-encoding"]
    if not values:
        return b""
    codings = b",".join(values).lower().split(b",")
    return b",".join(coding for value in codings if (coding := value.strip()) not in (b"", b"identity"))


class _Decoded:
    """Feeds what compressed bytes stand for, at most `room` of it."""

    def __init__(self, feed: Feed, coding: bytes, room: int) -> None:
        self.failure: FailureReason | None = None
        self._feed = feed
        self._room = room
        self._is_gzip = coding != b"deflate"
        self._start = b""  # of a body whose format is not known yet
        self._decoder = zlib.decompressobj(_GZIP) if self._is_gzip else None

    @property
    def ended(self) -> bool:
        """Whether the compressed data ended by its own account, rather than being cut."""
        return self._decoder is not None and self._decoder.eof

    def feed(self, data: bytes, at: float, /) -> bool:
        """Decode and pass on. False: nothing more is needed."""
        if self._decoder is None:
            data = self._start = self._start + data
            if len(data) < 2:
                return True
            self._decoder = zlib.decompressobj(_deflate_format(data))
        try:
            return self._decode(data, at)
        except zlib.error:
            self.failure = FailureReason.MALFORMED
            return False

    def _decode(self, data: bytes, at: float) -> bool:
        assert self._decoder is not None
        while True:
            if self._decoder.eof:
                if not self._is_gzip or not data.startswith(_GZIP_START):
                    return True  # nothing, or padding, which some servers leave behind
                self._decoder = zlib.decompressobj(_GZIP)  # gzip data may be followed by more of it
            piece = self._decoder.decompress(data, _PIECE)
            data = self._decoder.unconsumed_tail or self._decoder.unused_data
            within = piece[: self._room]
            if within and not self._feed(within, at):
                return False
            self._room -= len(piece)
            if self._room < 0:
                self.failure = FailureReason.TOO_LONG
                return False
            if not data and len(piece) < _PIECE:
                return True  # a full piece may have left more of it inside the decoder


def _deflate_format(start: bytes) -> int:
    """Window bits for a body called deflate: zlib's format as the standard says, or the bare data some servers send."""
    is_zlib = start[0] & 0x0F == 8 and int.from_bytes(start[:2], "big") % 31 == 0
    return zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS
