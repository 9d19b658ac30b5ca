"""Forms: of each API, how a streamed answer is put together, and what of an answer is not compared. Pure.

A stream comes to what the same answer would have been in one piece. Left out are the ids, times and counts that the
protocol has the server make up for each answer, what is encrypted, and the name of the model:

* all: `id`, `object`, `model`, `usage`
* chat completions, completions: `created`, `system_fingerprint`, `service_tier`, `obfuscation`; of choices `index`; of
  calls of tools `id` and `index`; of audio `id` and `expires_at`
* responses: `created_at`, `completed_at`, `service_tier`, `previous_response_id`; of items `id`, `call_id` and
  `encrypted_content`
* messages: `container`; of blocks `id`, `index`, `tool_use_id`, `signature` and `data`
* embeddings: `created`; of vectors `index` and `object`
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import msgspec

from shadowrun_mirror.compare.pieces import Json, Pieces, by_index, put_together

_OF_ALL = ("id", "object", "model", "usage")


class Assembly(ABC):
    """A streamed answer on its way. What raises on an event that has another shape makes the answer unreadable."""

    def __init__(self, room: int) -> None:
        self.done = False  # nothing that follows is part of the answer
        self.whole: Json = {}
        self.pieces = Pieces(room)

    @abstractmethod
    def event(self, body: Json) -> None:
        """Take what one event says."""

    def answer(self) -> Json:
        """The answer as it would have been in one piece."""
        found: Json = put_together(self.whole)
        return found


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """Of one API: fields that are not compared, as paths; what puts a stream together (None: there are none).

    `settled` brings a whole answer into the order and shape in which it is compared.
    """

    left_out: tuple[str, ...]
    assembly: Callable[[int], Assembly] | None = None
    settled: Callable[[Json], Json] = lambda answer: answer


_NAMES = frozenset({"id", "type", "name", "role", "object", "index", "format"})
"""Texts of a delta that are said whole, however often; all others are said piece by piece."""


class _Completion(Assembly):
    """Chunks of chat completions and of completions: texts of deltas are appended, all else is said once."""

    def event(self, body: Json) -> None:
        for name, value in body.items():
            if name not in _COMPLETION_TOP and name != "choices":
                self.pieces.put(self.whole, name, value)
        for said in body.get("choices") or ():
            choice = self.pieces.member(self.whole, "choices", said.get("index") or 0)
            for name, value in said.items():
                if name == "delta":
                    self._merge(choice.setdefault("message", {}), value or {})
                elif name == "logprobs":
                    self._merge(choice.setdefault(name, {}), value or {})
                elif name == "text":
                    self.pieces.append(choice, name, value or "")
                elif name != "index":
                    self.pieces.put(choice, name, value)

    def _merge(self, into: Json, said: Json) -> None:
        for name, value in said.items():
            if isinstance(value, str) and name not in _NAMES:
                self.pieces.append(into, name, value)
            elif isinstance(value, dict):
                self._merge(into.setdefault(name, {}), value)
            elif isinstance(value, list):
                self._extend(into, name, value)
            else:
                self.pieces.put(into, name, value)

    def _extend(self, into: Json, name: str, members: list[Any]) -> None:
        for member in members:
            if isinstance(member, dict) and type(member.get("index")) is int:
                self._merge(self.pieces.member(into, name, member["index"]), member)
            else:
                self.pieces.add(into, name, member)


class _Message(Assembly):
    """Events of messages: a message that starts empty, its blocks of content, and why it stopped."""

    def event(self, body: Json) -> None:
        kind = body["type"]
        if kind == "message_start":
            for name, value in body["message"].items():
                if name != "content":
                    self.pieces.put(self.whole, name, value)
        elif kind == "content_block_start":
            block = self.pieces.member(self.whole, "content", body["index"])
            for name, value in body["content_block"].items():
                if isinstance(value, str) and name in ("text", "thinking"):
                    self.pieces.append(block, name, value)
                else:
                    self.pieces.put(block, name, value)
        elif kind == "content_block_delta":
            self._delta(self.pieces.member(self.whole, "content", body["index"]), body["delta"])
        elif kind == "message_delta":
            for name, value in body["delta"].items():
                self.pieces.put(self.whole, name, value)
        self.done = kind == "message_stop"

    def _delta(self, block: Json, said: Json) -> None:
        for name, value in said.items():
            if name == "partial_json":
                self.pieces.append(block, "input", value)
            elif name == "citation":
                self.pieces.add(block, "citations", value)
            elif name != "type":
                self.pieces.append(block, name, value)


class _Response(Assembly):
    """Events of responses: the last one has the whole answer; where its output is empty, items that ended have it."""

    def event(self, body: Json) -> None:
        kind = body["type"]
        if kind == "response.output_item.done":
            self.pieces.put(
                self.pieces.member(self.whole, "items", body.get("output_index") or 0), "item", body["item"]
            )
        elif kind in ("response.completed", "response.incomplete"):
            items = [entry["item"] for entry in self.whole.pop("items", [])]
            self.whole = body["response"]
            self.whole["output"] = self.whole.get("output") or items
            if not self.whole["output"]:
                raise ValueError("all that was said is in deltas")  # compared without it, it would equal anything
            self.done = True


def _completion(answer: Json) -> Json:
    return {**answer, "choices": by_index(answer.get("choices"))}


def _message(answer: Json) -> Json:
    """What a tool is called with is JSON in a text elsewhere: so it is here, for null and empty are values in it."""
    blocks = by_index(answer.get("content"))
    if isinstance(blocks, list):
        blocks = [_block(block) if isinstance(block, dict) else block for block in blocks]
    return {**answer, "content": blocks}


def _block(block: Json) -> Json:
    if not str(block.get("type", "")).endswith("tool_use"):
        return block
    given = block.get("input") or {}
    return {**block, "input": given if isinstance(given, str) else msgspec.json.encode(given).decode()}


def _embedding(answer: Json) -> Json:
    return {**answer, "data": by_index(answer.get("data"))}


_CALLS = "choices.message.tool_calls"
_COMPLETION_TOP = (*_OF_ALL, "created", "system_fingerprint", "service_tier", "obfuscation")
COMPLETION = Form(
    left_out=(
        *_COMPLETION_TOP,
        *("choices.index", f"{_CALLS}.id", f"{_CALLS}.index"),
        *("choices.message.audio.id", "choices.message.audio.expires_at"),
    ),
    assembly=_Completion,
    settled=_completion,
)
RESPONSE = Form(
    left_out=(
        *(*_OF_ALL, "created_at", "completed_at", "service_tier", "previous_response_id"),
        *("output.id", "output.call_id", "output.encrypted_content"),
    ),
    assembly=_Response,
)
MESSAGE = Form(
    left_out=(
        *(*_OF_ALL, "container"),
        *(f"content.{name}" for name in ("id", "index", "tool_use_id", "signature", "data")),
    ),
    assembly=_Message,
    settled=_message,
)
EMBEDDING = Form(left_out=(*_OF_ALL, "created", "data.index", "data.object"), settled=_embedding)
