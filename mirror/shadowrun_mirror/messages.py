"""Anthropic messages: the few fields of its answers and of its stream's events that are read. Pure.

A stream is `message_start` (the prompt's tokens), blocks of content (`content_block_start`, deltas, stop),
`message_delta` (why it ended, the output's tokens so far) and `message_stop`, with `ping` anywhere. Text, thinking and
the input of tools are content; so is the start of a tool's block, which names it, and redacted thinking. A signature
is not: nothing new is said by it.

`input_tokens` leaves out what was read from a cache and what was written to one; a prompt is all three together.
"""

import msgspec

from shadowrun_mirror.shapes import (
    ABSENT,
    NOTHING_NOTED,
    AnswerShape,
    Content,
    Counted,
    Noted,
    is_something,
    parsed,
    usage_of,
)

_SOMETHING = Content("", ABSENT)


class Delta(msgspec.Struct):
    """What a block, or the message, has gained."""

    text: msgspec.Raw = ABSENT
    thinking: msgspec.Raw = ABSENT
    partial_json: msgspec.Raw = ABSENT
    stop_reason: msgspec.Raw = ABSENT

    def content(self) -> Content | None:
        """The field that holds content."""
        for name, value in (("text", self.text), ("thinking", self.thinking), ("partial_json", self.partial_json)):
            if is_something(value):
                return Content(name, value)
        return None


class Block(msgspec.Struct):
    """A block of content, whole or as it starts."""

    text: msgspec.Raw = ABSENT
    thinking: msgspec.Raw = ABSENT
    name: msgspec.Raw = ABSENT  # of a tool
    data: msgspec.Raw = ABSENT  # redacted thinking

    def is_content(self) -> bool:
        """Whether it says anything."""
        return any(is_something(value) for value in (self.text, self.thinking, self.name, self.data))


class Answer(msgspec.Struct):
    """A whole answer, or what `message_start` has of it."""

    type: str = ""
    content: list[Block] | None = None
    usage: msgspec.Raw = ABSENT
    error: msgspec.Raw = ABSENT


class Event(msgspec.Struct):
    """An event of a stream."""

    type: str = ""
    message: Answer | None = None
    content_block: Block | None = None
    delta: Delta | None = None
    usage: msgspec.Raw = ABSENT
    error: msgspec.Raw = ABSENT


_EVENT = msgspec.json.Decoder(Event)
_ANSWER = msgspec.json.Decoder(Answer)


def event(payload: bytes) -> Noted | None:
    """What an event says; None when it is not JSON or has no type. Types may be new: an unknown one says nothing."""
    body = parsed(_EVENT, payload)
    if body is None:
        return None
    if body.type == "error" or is_something(body.error):
        return Noted(failed=True)
    if not body.type:
        return None
    if body.type == "message_stop":
        return Noted(done=True)
    if body.message is not None:
        return Noted(counted=_counted(body.message.usage))
    if body.content_block is not None:
        return Noted(content=_SOMETHING) if body.content_block.is_content() else NOTHING_NOTED
    if body.delta is not None:
        return Noted(
            content=body.delta.content(),
            finished=is_something(body.delta.stop_reason),
            counted=_counted(body.usage),
        )
    return NOTHING_NOTED


def whole(payload: bytes) -> Noted | None:
    """What a buffered answer says; None when it is not JSON or has another shape."""
    body = parsed(_ANSWER, payload)
    if body is None:
        return None
    if body.type == "error" or is_something(body.error):
        return Noted(failed=True)
    said = any(block.is_content() for block in body.content or ())
    return Noted(content=_SOMETHING if said else None, counted=_counted(body.usage))


def _counted(usage: msgspec.Raw) -> Counted | None:
    body = usage_of(usage)
    if body is None:
        return None
    return Counted(
        uncached=body.input_tokens,
        cached=body.cached,
        created=body.cache_creation_input_tokens,
        output=body.output_tokens,
    )


MESSAGES = AnswerShape(whole=whole, event=event)
