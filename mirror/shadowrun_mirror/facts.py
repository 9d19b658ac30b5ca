"""Facts: the one place that turns the content of a copy into what may be counted. Pure.

Nothing of the content but the names of model and adapter leaves in `Facts`. Values are kept as raw JSON slices
(`msgspec.Raw`): a body is walked, never turned into Python objects, and only as far as some class asks. The fields are
those of OpenAI's chat completions, completions, responses and embeddings, of Anthropic's messages, and what vLLM,
SGLang and TGI add to them; they tell themselves apart, so the path is not asked.
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
_ABSENT = msgspec.Raw(b"null")
_EMPTY = (b"null", b"[]", b"{}", b'""', b"")

_ADAPTER_FIELDS = ("lora_path", "adapter_id", "lora_name")
_CONSTRAINTS = frozenset(
    (
        *("guided_json", "guided_regex", "guided_choice", "guided_grammar"),
        *("structured_outputs", "json_schema", "regex", "ebnf", "grammar"),
    )
)
_FORMATS = ("response_format", "text", "output_format", "output_config")
_FORMAT_TYPES = frozenset(("json_schema", "structural_tag", "regex", "grammar"))
_IMAGE_TYPES = frozenset(("image_url", "input_image", "image"))


class Wanted(msgspec.Struct, frozen=True):
    """Which facts that cost something any class asks for."""

    turns: bool
    schema: bool
    images: bool


def wanted_facts(classes: Sequence[TrafficClass]) -> Wanted:
    """What to look for, by what the classes ask."""
    return Wanted(
        turns=any(c.min_turns is not None or c.max_turns is not None for c in classes),
        schema=any(c.schema is not None for c in classes),
        images=any(c.images is not None for c in classes),
    )


NOTHING_WANTED = Wanted(turns=False, schema=False, images=False)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a request before any answer. What was not looked for, or could not be read, is None."""

    model: str
    stream: bool | None
    tools: bool | None
    size: int  # bytes of the body
    adapter: str = ""  # LoRA adapter named beside the model
    turns: int | None = None  # user messages
    schema: bool | None = None  # whether the answer must follow a schema, a grammar or the like
    images: bool | None = None

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


def facts_of(fields: Fields, size: int, wanted: Wanted = NOTHING_WANTED) -> Facts:
    """The facts of a parsed body of `size` bytes. A model that is not a string counts as none."""
    return Facts(
        model=_text(fields.get("model", _ABSENT)),
        stream=bytes(fields.get("stream", _ABSENT)) == b"true",
        tools=_filled(fields, "tools") or _filled(fields, "functions"),
        size=size,
        adapter=next((_text(fields[name]) for name in _ADAPTER_FIELDS if name in fields), ""),
        turns=_turns(fields) if wanted.turns else None,
        schema=_has_schema(fields) if wanted.schema else None,
        images=_has_images(fields) if wanted.images else None,
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


def size_decides(classes: Sequence[TrafficClass]) -> bool:
    """Whether the class of every request follows from the size of its body alone."""
    return all(
        condition is None
        for c in classes
        for condition in (c.min_turns, c.max_turns, c.stream, c.tools, c.schema, c.images)
    )


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says of its conversation, as raw JSON; to be hashed by `lineage` and dropped.

    `elsewhere` is the id by which the request names a history that is not in its body, or "null".
    """

    preamble: msgspec.Raw  # system prompt, where it is no message
    items: list[msgspec.Raw]  # messages and the like, oldest first; a prompt is one item
    elsewhere: msgspec.Raw
    is_prompt: bool = False


def transcript_of(fields: Fields) -> Transcript | None:
    """The conversation in a body; None when it has none that can be read."""
    raw = fields.get("messages")
    if raw is not None:
        return _transcript(fields.get("system", _ABSENT), raw, _ABSENT)
    raw = fields.get("input")
    if raw is not None:
        history = fields.get("previous_response_id", _ABSENT)
        if bytes(history) == b"null":
            history = fields.get("conversation", _ABSENT)
        return _transcript(fields.get("instructions", _ABSENT), raw, history)
    raw = fields.get("prompt")
    return None if raw is None else Transcript(preamble=_ABSENT, items=[raw], elsewhere=_ABSENT, is_prompt=True)


def is_user(item: msgspec.Raw) -> bool:
    """Whether an item of a transcript is what a user said. An item that is no object is."""
    read = _item(item)
    return read is None or read.role == "user"


def is_answer(item: msgspec.Raw) -> bool:
    """Whether the model made an item: an assistant's message, or a call (not the output of one) without a role."""
    read = _item(item)
    if read is None:
        return False
    if read.role is not None:
        return read.role == "assistant"
    return read.type is not None and not read.type.endswith(("_output", "_response"))


def _transcript(preamble: msgspec.Raw, raw: msgspec.Raw, elsewhere: msgspec.Raw) -> Transcript | None:
    try:
        items = _RAW_ITEMS.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        items = [] if bytes(raw) in _EMPTY else [raw]
    if items and bytes(memoryview(items[0])[:1]) != b"{":
        items = [raw]  # a text, several texts or tokens
    return Transcript(preamble=preamble, items=items, elsewhere=elsewhere) if items else None


def _item(raw: msgspec.Raw) -> "_Item | None":
    try:
        return _ITEM.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _matches(wanted: TrafficClass, facts: Facts) -> bool:
    return (
        _within(wanted.min_prompt_tokens, facts.prompt_tokens, wanted.max_prompt_tokens)
        and _within(wanted.min_turns, facts.turns, wanted.max_turns)
        and (wanted.stream is None or wanted.stream == facts.stream)
        and (wanted.tools is None or wanted.tools == facts.tools)
        and (wanted.schema is None or wanted.schema == facts.schema)
        and (wanted.images is None or wanted.images == facts.images)
    )


def _within(low: int | None, value: int | None, high: int | None) -> bool:
    if low is None and high is None:
        return True
    return value is not None and (low is None or value >= low) and (high is None or value <= high)


def _text(raw: msgspec.Raw) -> str:
    """A JSON string's text; "" for anything else."""
    try:
        return _STRING.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def _filled(fields: Fields, name: str) -> bool:
    raw = fields.get(name)
    return raw is not None and bytes(raw) not in _EMPTY


class _Item(msgspec.Struct, gc=False):
    """A message, or another item of a conversation: all that is read of it when turns are counted."""

    role: str | None = None
    type: str | None = None


class _Format(msgspec.Struct, gc=False):
    """`response_format`, or what holds it (`text.format`, `output_config.format`)."""

    type: str | None = None
    format: "_Format | None" = None


class _Part(msgspec.Struct, gc=False):
    """A content part; a tool's result may hold parts of its own."""

    type: str | None = None
    content: msgspec.Raw = _ABSENT
    output: msgspec.Raw = _ABSENT


_ITEM = msgspec.json.Decoder(_Item)
_ITEMS = msgspec.json.Decoder(list[_Item])
_RAW_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_FORMAT = msgspec.json.Decoder(_Format)
_PARTS = msgspec.json.Decoder(list[_Part])


def _turns(fields: Fields) -> int | None:
    """User messages; a prompt or an input that is not a list of messages is one."""
    raw = fields.get("messages")
    if raw is None:
        raw = fields.get("input", fields.get("prompt"))
        if raw is None or bytes(memoryview(raw)[:1]) != b"[":
            return None if raw is None else 1
    try:
        items = _ITEMS.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None if "messages" in fields else 1
    return sum(item.role == "user" for item in items)


def _has_schema(fields: Fields) -> bool:
    if not _CONSTRAINTS.isdisjoint(fields) and any(_filled(fields, name) for name in _CONSTRAINTS):
        return True
    return any(_names_a_schema(fields[name]) for name in _FORMATS if name in fields)


def _names_a_schema(raw: msgspec.Raw) -> bool:
    try:
        wanted = _FORMAT.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return wanted.type in _FORMAT_TYPES or (wanted.format is not None and wanted.format.type in _FORMAT_TYPES)


def _has_images(fields: Fields) -> bool:
    """Whether a message holds an image. The word, which is in all types, is searched for first: it is mostly absent."""
    raw = fields.get("messages", fields.get("input", _ABSENT))
    return b"image" in bytes(raw) and _holds_image(raw, depth=3)


def _holds_image(raw: msgspec.Raw, depth: int) -> bool:
    if depth < 0 or bytes(memoryview(raw)[:1]) != b"[":
        return False
    try:
        parts = _PARTS.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return any(
        part.type in _IMAGE_TYPES or _holds_image(part.content, depth - 1) or _holds_image(part.output, depth - 1)
        for part in parts
    )
