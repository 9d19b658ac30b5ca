"""What the readers of all APIs share: how one event or answer is noted, token counts, raw JSON values. Types only.

Text stays raw JSON: it is looked at for being there, never decoded. The shapes of each API are their own modules
(`completions`, `responses`, `messages`, `embeddings`); `dialects` says which one a path speaks.
"""

from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec

ABSENT = msgspec.Raw(b"")

_NOTHING = (b"", b"null", b'""', b"[]", b"{}")
_LONGEST_NOTHING = max(len(value) for value in _NOTHING)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_MOST_TOKENS = 2**31

Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST_TOKENS)]
"""Tokens of one answer. A larger number is a fault of the engine, and would not fit what is computed from it."""

T = TypeVar("T")


def is_something(raw: msgspec.Raw) -> bool:
    """Whether a raw JSON value is more than null or empty."""
    return len(raw) > _LONGEST_NOTHING or bytes(raw) not in _NOTHING


def parsed(decoder: msgspec.json.Decoder[T], payload: bytes | msgspec.Raw) -> T | None:
    """The decoded value; None when the bytes are not JSON, or of another shape."""
    try:
        return decoder.decode(payload)
    except _UNREADABLE:
        return None


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one answer as the engine counted them. `prompt` includes `cached`; `output` None: not told."""

    prompt: int
    cached: int
    output: int | None


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an answer's tokens so far; an API may tell it in parts. None = not told.

    `prompt` is the whole prompt; where an API tells the prompt less what was cached, that is `uncached`.
    """

    prompt: int | None = None
    uncached: int | None = None
    cached: int | None = None
    created: int | None = None  # prompt tokens written to a cache, told apart from `uncached`
    output: int | None = None

    def updated(self, later: "Counted") -> "Counted":
        """What is known after `later` was told too: counts are cumulative, the last one told holds."""
        return Counted(
            prompt=self.prompt if later.prompt is None else later.prompt,
            uncached=self.uncached if later.uncached is None else later.uncached,
            cached=self.cached if later.cached is None else later.cached,
            created=self.created if later.created is None else later.created,
            output=self.output if later.output is None else later.output,
        )

    def tokens(self) -> Tokens | None:
        """The counts of the whole answer; None while the prompt's is not known, or when they add up to nonsense."""
        prompt = self.prompt
        if prompt is None and self.uncached is not None:
            prompt = self.uncached + (self.cached or 0) + (self.created or 0)
        if prompt is None or prompt > _MOST_TOKENS:
            return None
        return Tokens(prompt=prompt, cached=self.cached or 0, output=self.output)


class Content(msgspec.Struct, frozen=True):
    """The first field with content in an event: its name and its JSON text."""

    name: str
    value: msgspec.Raw


class Noted(msgspec.Struct, frozen=True, kw_only=True):
    """What one event of a stream, or a whole answer, says."""

    content: Content | None = None
    repeated: bool = False  # holds content that a stream has given before, if it has given any
    finished: bool = False  # says why the answer ended; usage may still follow
    done: bool = False  # nothing more follows
    failed: bool = False  # an error instead of an answer
    counted: Counted | None = None


NOTHING_NOTED = Noted()

Note = Callable[[bytes], Noted | None]
"""Reads the JSON of one event or of one answer; None when it is not what the API sends."""


class AnswerShape(msgspec.Struct, frozen=True, kw_only=True):
    """How the answers of one API are read. `event` is None where there are no streamed answers."""

    whole: Note
    event: Note | None = None
    done_mark: bool = False  # a stream ends with `[DONE]`


class _Details(msgspec.Struct):
    cached_tokens: Count | None = None


class UsageBody(msgspec.Struct):
    """`usage` under all its names: OpenAI's two APIs, Anthropic's, and DeepSeek's for what was cached."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    input_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None

    @property
    def cached(self) -> int | None:
        """Prompt tokens that came out of a cache."""
        for details in (self.prompt_tokens_details, self.input_tokens_details):
            if details is not None and details.cached_tokens is not None:
                return details.cached_tokens
        return self.cache_read_input_tokens if self.prompt_cache_hit_tokens is None else self.prompt_cache_hit_tokens


_USAGE = msgspec.json.Decoder(UsageBody)


def usage_of(usage: msgspec.Raw) -> UsageBody | None:
    """A `usage` value; None when there is none, or in a shape that is not understood."""
    return parsed(_USAGE, usage) if is_something(usage) else None


def counted(usage: msgspec.Raw) -> Counted | None:
    """Counts of an OpenAI API: the prompt's number includes what was cached. None as `usage_of`."""
    body = usage_of(usage)
    if body is None:
        return None
    return Counted(
        prompt=body.input_tokens if body.prompt_tokens is None else body.prompt_tokens,
        cached=body.cached,
        output=body.output_tokens if body.completion_tokens is None else body.completion_tokens,
    )
