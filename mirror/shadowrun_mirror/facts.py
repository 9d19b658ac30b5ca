"""Facts: the one place that turns the content of a copy into what may be counted, and into each arm's body. Pure.

Nothing of the content but the model's name leaves in `Facts`. Values are kept as raw JSON slices (`msgspec.Raw`):
a body is walked once and never turned into Python objects.
"""

from collections.abc import Sequence

import msgspec

from shadowrun_mirror.config import TrafficClass

BYTES_PER_TOKEN = 4
"""Estimate used to sort prompts into classes before any engine has counted their tokens."""

DEFAULT_CLASS = "default"

Fields = dict[str, msgspec.Raw]
"""The top level of a request body, each value as its JSON text."""

_FIELDS = msgspec.json.Decoder(Fields)
_STRING = msgspec.json.Decoder(str)
_TRUE = msgspec.Raw(b"true")
_ABSENT = msgspec.Raw(b"null")
_EMPTY = (b"null", b"[]", b"{}", b"")


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a request before any answer. `stream` and `tools` are None when the body was not read."""

    model: str
    stream: bool | None
    tools: bool | None
    size: int  # bytes of the body

    @property
    def prompt_tokens(self) -> int:
        """Estimated prompt length in tokens."""
        return self.size // BYTES_PER_TOKEN


def fields_of(body: bytes) -> Fields | None:
    """The top-level fields of a JSON object; None when the body is anything else."""
    try:
        return _FIELDS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def facts_of(fields: Fields, size: int) -> Facts:
    """The facts of a parsed body of `size` bytes. A model that is not a string counts as none."""
    try:
        model = _STRING.decode(fields.get("model", _ABSENT))
    except (msgspec.DecodeError, UnicodeDecodeError):
        model = ""
    return Facts(
        model=model,
        stream=bytes(fields.get("stream", _ABSENT)) == b"true",
        tools=bytes(fields.get("tools", _ABSENT)) not in _EMPTY,
        size=size,
    )


def unread_facts(size: int) -> Facts:
    """The facts of a body that was too large to be read, or that is not JSON: its size."""
    return Facts(model="", stream=None, tools=None, size=size)


def traffic_class(classes: Sequence[TrafficClass], facts: Facts) -> str:
    """Name of the first class that matches, or "default". A condition on an unknown fact does not match."""
    for candidate in classes:
        if _matches(candidate, facts):
            return candidate.name
    return DEFAULT_CLASS


def _matches(wanted: TrafficClass, facts: Facts) -> bool:
    return (
        (wanted.min_prompt_tokens is None or facts.prompt_tokens >= wanted.min_prompt_tokens)
        and (wanted.max_prompt_tokens is None or facts.prompt_tokens <= wanted.max_prompt_tokens)
        and (wanted.stream is None or wanted.stream == facts.stream)
        and (wanted.tools is None or wanted.tools == facts.tools)
    )


def arm_body(body: bytes, fields: Fields, model: str, stream: bool) -> bytes:
    """The body an arm gets: its own `model` when one is configured, and a request for usage when it streams.

    All else is kept as it was written. With nothing to change, the very bytes of the copy are returned.
    """
    changes: Fields = {}
    if model:
        changes["model"] = msgspec.Raw(msgspec.json.encode(model))
    if stream:
        options = _with_usage(fields.get("stream_options", _ABSENT))
        if options is not None:
            changes["stream_options"] = options
    return msgspec.json.encode(fields | changes) if changes else body


def _with_usage(options: msgspec.Raw) -> msgspec.Raw | None:
    """Stream options that ask for usage; None when they already do, or are not an object (the engine will say so)."""
    given: Fields | None = {} if bytes(options) == b"null" else fields_of(bytes(options))
    if given is None or bytes(given.get("include_usage", _ABSENT)) == b"true":
        return None
    return msgspec.Raw(msgspec.json.encode(given | {"include_usage": _TRUE}))
