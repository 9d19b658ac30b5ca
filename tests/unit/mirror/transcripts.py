"""Events of the APIs beside completions, and what their readers make of them."""

import json
from collections.abc import Sequence
from typing import Any

from shadowrun_mirror.dialects import dialect_of
from shadowrun_mirror.stream import Answer

CHAT, RESPONSES, MESSAGES, EMBEDDINGS = b"/v1/chat/completions", b"/v1/responses", b"/v1/messages", b"/v1/embeddings"


def event(body: dict[str, Any], named: bool = True, end: bytes = b"\n") -> bytes:
    name = b"event: " + body["type"].encode() + end if named else b""
    return name + b"data: " + json.dumps(body, separators=(",", ":")).encode() + end + end


def read(path: bytes, pieces: Sequence[bytes], whole: bool = True) -> Answer:
    """Piece n is read at time n."""
    reader = dialect_of(path).reader(True)
    for at, piece in enumerate(pieces):
        if not reader.feed(piece, float(at)):
            break
    return reader.answer(whole)


def buffered(path: bytes, body: Any, whole: bool = True, asked: bool = False) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    reader = dialect_of(path).reader(asked)
    reader.feed(raw[:5], 1.0)
    reader.feed(raw[5:], 2.0)
    return reader.answer(whole)


# OpenAI responses


def delta(number: int, text: Any = "t", kind: str = "output_text", shape: int = 0) -> dict[str, Any]:
    """Fields in the order of OpenAI's own servers, without the numbers, and in alphabetical order."""
    name = f"response.{kind}.delta"
    if shape == 1:
        return {"type": name, "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": text}
    if shape == 2:
        where = {"item_id": "msg_1", "logprobs": [], "output_index": 0, "sequence_number": number, "type": name}
        return {"content_index": 0, "delta": text, **where}
    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return {"type": name, "sequence_number": number, **where, "delta": text, "logprobs": [], "obfuscation": "x" * 3}


def response(status: str, **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": status, "error": None, **more}


MESSAGE = {"type": "message", "content": [{"type": "output_text", "text": "tt", "annotations": []}]}
R_USAGE = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5, "total_tokens": 14}
CREATED = event({"type": "response.created", "response": response("in_progress", output=[]), "sequence_number": 0})
ADDED = event(
    {"type": "response.output_item.added", "item": {"type": "message", "content": [], "status": "in_progress"}}
)
PART = event({"type": "response.content_part.added", "part": {"type": "output_text", "text": ""}})
TEXT_DONE = event({"type": "response.output_text.done", "text": "tt"})
ITEM_DONE = event({"type": "response.output_item.done", "item": MESSAGE})


def ended(kind: str = "completed", **more: Any) -> bytes:
    return event({"type": f"response.{kind}", "response": response(kind, **more)})


COMPLETED = ended(output=[MESSAGE], usage=R_USAGE)
WORD = event(delta(1))


# Anthropic messages


def start(**usage: Any) -> bytes:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
    }
    return event({"type": "message_start", "message": message | {"usage": usage}})


def block(**fields: Any) -> bytes:
    return event({"type": "content_block_start", "index": 0, "content_block": fields})


def block_delta(kind: str = "text", value: str = "t", type_last: bool = False) -> bytes:
    names = {"text": "text_delta", "thinking": "thinking_delta", "partial_json": "input_json_delta"}
    inner = {"type": names.get(kind, kind + "_delta"), kind: value}
    if type_last:
        return event({"delta": dict(reversed(inner.items())), "index": 0, "type": "content_block_delta"})
    return event({"type": "content_block_delta", "index": 0, "delta": inner})


def message_delta(reason: str | None = "end_turn", **usage: Any) -> bytes:
    return event({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage})


M_START = start(input_tokens=10, cache_read_input_tokens=30, cache_creation_input_tokens=5, output_tokens=1)
M_TEXT = block(type="text", text="")
PING = event({"type": "ping"})
BLOCK_STOP = event({"type": "content_block_stop", "index": 0})
STOP = event({"type": "message_stop"})
