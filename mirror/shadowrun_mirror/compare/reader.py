"""Reader: reads an answer as its API's reader does, and puts it together beside that, to leave a digest at its end.

Every event is parsed here, so a stream costs more than one that is only measured. What was put together is dropped when
the answer has ended, and at once when it grows beyond `MAX_COMPARED_BYTES`.
"""

from typing import Any, Protocol

import msgspec

from shadowrun_mirror.compare.digest import TooManyPartsError, digest
from shadowrun_mirror.compare.forms import Assembly, Form
from shadowrun_mirror.compare.likeness import Left
from shadowrun_mirror.compare.paths import Paths
from shadowrun_mirror.compare.pieces import Json, TooLongError
from shadowrun_mirror.glance import Glance
from shadowrun_mirror.reasons import Likeness
from shadowrun_mirror.sse import Frames, fields_of
from shadowrun_mirror.stream import Answer, Reader

MAX_COMPARED_BYTES = 256 * 1024
"""Longest answer that is compared: the body of one in one piece, the texts of a stream."""

_OBJECT = msgspec.json.Decoder(dict[str, Any])


class _Said(Protocol):
    """What an answer has said so far."""

    def feed(self, data: bytes) -> None: ...

    def answer(self) -> Json: ...


class ComparedReader:
    """A `Reader`; once `answer` was asked, `left` is what it has left."""

    glance: Glance | None = None

    def __init__(
        self, reader: Reader, form: Form, left_out: Paths, ordered: bool, *, streamed: bool, room: int
    ) -> None:
        room = min(room, MAX_COMPARED_BYTES)
        self.left: Left = None
        self._reader = reader
        self._form = form
        self._left_out = left_out
        self._ordered = ordered
        self._lacks: Likeness | None = None
        self._said: _Said | None
        self._said = _Events(form.assembly(room)) if streamed and form.assembly is not None else _Body(room)

    def feed(self, data: bytes, at: float, /) -> bool:
        """As the reader; its word holds."""
        goes_on = self._reader.feed(data, at)
        if self._said is not None:
            try:
                self._said.feed(data)
            except TooLongError:
                self._drop(Likeness.TOO_LONG)
            except Exception:  # of another shape than its API's, in whatever way: that fails no arm
                self._drop(Likeness.UNREADABLE)
        return goes_on

    def answer(self, whole: bool) -> Answer:
        """As the reader. Of an answer that failed nothing is left."""
        answer = self._reader.answer(whole)
        said, self._said = self._said, None
        if answer.failure is None:
            self.left = self._lacks if said is None else self._digest(said)
        return answer

    def _digest(self, said: _Said) -> Left:
        try:
            return digest(self._form.settled(said.answer()), self._left_out, self._ordered)
        except (TooLongError, TooManyPartsError):
            return Likeness.TOO_LONG
        except Exception:
            return Likeness.UNREADABLE

    def _drop(self, lacks: Likeness) -> None:
        self._said, self._lacks = None, lacks


class _Body:
    """An answer in one piece."""

    def __init__(self, room: int) -> None:
        self._pieces: list[bytes] = []
        self._room = room

    def feed(self, data: bytes) -> None:
        self._room -= len(data)
        if self._room < 0:
            raise TooLongError
        self._pieces.append(data)

    def answer(self) -> Json:
        return _OBJECT.decode(b"".join(self._pieces))


class _Events:
    """An answer in events. The last one counts also without its blank line, as it does for the reader."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._frames = Frames()

    def feed(self, data: bytes) -> None:
        if not self._assembly.done:
            for event in self._frames.feed(data):
                self._event(event)

    def answer(self) -> Json:
        if not self._assembly.done:
            self._event(bytes(self._frames.rest))
        return self._assembly.answer()

    def _event(self, event: bytes) -> None:
        payload = fields_of(event)[1]
        if payload == b"[DONE]":
            self._assembly.done = True
        if payload and not self._assembly.done:
            self._assembly.event(_OBJECT.decode(payload))
