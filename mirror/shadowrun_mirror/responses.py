"""OpenAI responses: the few fields of its answers and of its stream's events that are read. Pure.

Content is what the model made for who asked: every event with a `delta` that is not empty (text, refusal, reasoning,
its summary, arguments of calls, code, audio), and the start of a call, which says what is called.

`response.incomplete` ends an answer that reached a limit of length or a filter, which the other APIs report as a
reason to finish: it is a complete answer. `response.failed` and `error` are not. Nothing but one of these four ends a
stream.
"""

import msgspec

from shadowrun_mirror.shapes import (
    ABSENT,
    NOTHING_NOTED,
    AnswerShape,
    Content,
    Noted,
    counted,
    is_something,
    parsed,
)

_DONE = ("response.completed", "response.incomplete")
_FAILED = ("response.failed", "response.cancelled", "error")
_FAILED_STATUS = ("failed", "cancelled")


class Part(msgspec.Struct):
    """A part of a message."""

    text: msgspec.Raw = ABSENT
    refusal: msgspec.Raw = ABSENT

    def is_content(self) -> bool:
        """Whether it says anything."""
        return is_something(self.text) or is_something(self.refusal)


class Item(msgspec.Struct):
    """An item of the output: a message, reasoning, or one of many kinds of calls."""

    type: str = ""
    content: list[Part] | None = None
    summary: list[Part] | None = None
    encrypted_content: msgspec.Raw = ABSENT

    def is_content(self) -> bool:
        """Whether the model made anything of this item yet. A call always names what is called."""
        if self.type.endswith("_call"):
            return True
        parts = [*(self.content or ()), *(self.summary or ())]
        return any(part.is_content() for part in parts) or is_something(self.encrypted_content)


class Response(msgspec.Struct):
    """A whole answer, on its own or inside an event."""

    status: str | None = None
    output: list[Item] | None = None
    usage: msgspec.Raw = ABSENT
    error: msgspec.Raw = ABSENT
    object: msgspec.Raw = ABSENT

    def is_error(self) -> bool:
        """Whether this is an error instead of an answer."""
        return is_something(self.error) or bytes(self.object) == b'"error"' or self.status in _FAILED_STATUS

    def is_content(self) -> bool:
        """Whether anything was answered."""
        return any(item.is_content() for item in self.output or ())


class Event(msgspec.Struct):
    """An event of a stream. The deltas are told by their field: its types are many, and grow."""

    type: str = ""
    error: msgspec.Raw = ABSENT
    delta: msgspec.Raw = ABSENT
    item: msgspec.Raw = ABSENT
    response: msgspec.Raw = ABSENT


_EVENT = msgspec.json.Decoder(Event)
_ITEM = msgspec.json.Decoder(Item)
_RESPONSE = msgspec.json.Decoder(Response)
_SOMETHING = Content("", ABSENT)


def event(payload: bytes) -> Noted | None:
    """What an event says; None when it is not JSON, has no type, or ends the answer without the answer's shape."""
    body = parsed(_EVENT, payload)
    if body is None:
        return None
    if body.type in _FAILED or is_something(body.error):
        return Noted(failed=True)
    if not body.type:
        return None
    if is_something(body.delta):
        return Noted(content=Content("delta", body.delta))
    if body.type == "response.output_item.added":
        return _started(body.item)
    return _ended(body.response) if body.type in _DONE else NOTHING_NOTED


def whole(payload: bytes) -> Noted | None:
    """What a buffered answer says; None when it is not JSON or has another shape."""
    body = parsed(_RESPONSE, payload)
    if body is None:
        return None
    if body.is_error():
        return Noted(failed=True)
    return Noted(content=_SOMETHING if body.is_content() else None, counted=counted(body.usage))


def _started(raw: msgspec.Raw) -> Noted | None:
    item = parsed(_ITEM, raw)
    if item is None:
        return None
    return Noted(content=_SOMETHING) if item.is_content() else NOTHING_NOTED


def _ended(raw: msgspec.Raw) -> Noted | None:
    body = parsed(_RESPONSE, raw)
    if body is None:
        return None
    return Noted(done=True, repeated=body.is_content(), counted=counted(body.usage))


RESPONSES = AnswerShape(whole=whole, event=event)
