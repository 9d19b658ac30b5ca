"""The few fields of an OpenAI-style answer that are read, as msgspec types. Types and tests for emptiness only.

Text stays raw JSON: it is looked at for being there, never decoded.
"""

from typing import Annotated

import msgspec

_ABSENT = msgspec.Raw(b"")
_NOTHING = (b"", b"null", b'""', b"[]", b"{}")
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
"""Tokens of one answer. A larger number is a fault of the engine, and would not fit what is computed from it."""


def is_something(raw: msgspec.Raw) -> bool:
    """Whether a raw JSON value is more than null or empty."""
    return bytes(raw) not in _NOTHING


class Message(msgspec.Struct):
    """`delta` of a chunk or `message` of a whole answer; any of these fields is content to who asked."""

    content: msgspec.Raw = _ABSENT
    reasoning_content: msgspec.Raw = _ABSENT
    reasoning: msgspec.Raw = _ABSENT
    refusal: msgspec.Raw = _ABSENT
    tool_calls: msgspec.Raw = _ABSENT
    function_call: msgspec.Raw = _ABSENT  # what tool_calls were before


class Choice(msgspec.Struct):
    """One choice: chat (`delta`, `message`) or plain completion (`text`)."""

    delta: Message | None = None
    message: Message | None = None
    text: msgspec.Raw = _ABSENT
    finish_reason: msgspec.Raw = _ABSENT


class Body(msgspec.Struct):
    """A chunk of a stream, or a whole answer."""

    choices: list[Choice] | None = None
    usage: msgspec.Raw = _ABSENT
    error: msgspec.Raw = _ABSENT
    object: msgspec.Raw = _ABSENT

    def content(self) -> tuple[str, msgspec.Raw] | None:
        """Name and raw value of the first field that holds content, over all choices; None without any."""
        for choice in self.choices or ():
            if is_something(choice.text):
                return "text", choice.text
            for message in (choice.delta, choice.message):
                if message is None:
                    continue
                for name in Message.__struct_fields__:
                    value: msgspec.Raw = getattr(message, name)
                    if is_something(value):
                        return name, value
        return None

    def finished(self) -> bool:
        """Whether any choice says why it ended."""
        return any(is_something(choice.finish_reason) for choice in self.choices or ())

    def is_error(self) -> bool:
        """Whether this is an error instead of an answer."""
        return is_something(self.error) or bytes(self.object) == b'"error"'


class PromptDetails(msgspec.Struct):
    """Where the prompt's tokens came from."""

    cached_tokens: Count | None = None


class UsageBody(msgspec.Struct):
    """`usage` as engines send it."""

    prompt_tokens: Count
    completion_tokens: Count = 0
    prompt_tokens_details: PromptDetails | None = None


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one answer as the engine counted them."""

    prompt: int
    cached: int
    output: int


_BODY = msgspec.json.Decoder(Body)
_USAGE = msgspec.json.Decoder(UsageBody)


def body_of(payload: bytes) -> Body | None:
    """Parse one JSON object; None when it is not one, or its choices have another shape."""
    try:
        return _BODY.decode(payload)
    except _UNREADABLE:
        return None


def tokens_of(usage: msgspec.Raw) -> Tokens | None:
    """The token counts in a `usage` value; None when there is none, or in a shape that is not understood."""
    if not is_something(usage):
        return None
    try:
        body = _USAGE.decode(usage)
    except _UNREADABLE:
        return None
    details = body.prompt_tokens_details
    cached = details.cached_tokens if details is not None else None
    return Tokens(prompt=body.prompt_tokens, cached=cached or 0, output=body.completion_tokens)
