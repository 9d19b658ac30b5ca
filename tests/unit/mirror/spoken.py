"""Answers of every API in both shapes, made from one description: whole, and as the events of a stream."""

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

Json = dict[str, Any]

DONE = b"[DONE]"


def cut(text: str, cuts: Iterable[int]) -> list[str]:
    """A text in pieces, cut at these places."""
    places = sorted({min(place, len(text)) for place in cuts} | {0, len(text)})
    return [text[a:b] for a, b in itertools.pairwise(places)]


def chat(said: Json, made_up: str = "1") -> Json:
    message: Json = {"role": "assistant", "content": said.get("text"), "refusal": None, "tool_calls": []}
    if "thought" in said:
        message["reasoning_content"] = said["thought"]
    if "arguments" in said:
        call = {"name": "look_up", "arguments": said["arguments"]}
        message["tool_calls"] = [{"id": f"call-{made_up}", "type": "function", "function": call}]
    return {
        "id": f"c-{made_up}",
        "object": "chat.completion",
        "created": int(made_up),
        "model": f"m-{made_up}",
        "system_fingerprint": made_up,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": said.get("end", "stop")}],
        "usage": {"prompt_tokens": int(made_up)},
    }


def chat_events(said: Json, cuts: Iterable[int], made_up: str = "1") -> list[Json | bytes]:
    def chunk(delta: Json, end: str | None = None) -> Json:
        frame = {key: value for key, value in chat(said, made_up).items() if key not in ("choices", "usage")}
        frame["obfuscation"] = made_up * (1 + len(str(delta)) % 3)
        return {**frame, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": end}]}

    found: list[Json | bytes] = [chunk({"role": "assistant", "content": ""})]
    found += [chunk({"reasoning_content": piece}) for piece in cut(said.get("thought", ""), cuts)]
    found += [chunk({"content": piece}) for piece in cut(said.get("text") or "", cuts)]
    if "arguments" in said:
        call = {"index": 0, "id": f"call-{made_up}", "type": "function", "function": {"name": "look_up"}}
        found.append(chunk({"tool_calls": [call]}))
        pieces = cut(said["arguments"], cuts)
        found += [chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces]
    found.append(chunk({}, said.get("end", "stop")))
    return [*found, {"choices": [], "usage": {"prompt_tokens": 3}}, DONE]


def completion(said: Json, made_up: str = "1") -> Json:
    choice = {"index": 0, "text": said["text"], "logprobs": None, "finish_reason": said.get("end", "stop")}
    return {**chat(said, made_up), "object": "text_completion", "choices": [choice]}


def completion_events(said: Json, cuts: Iterable[int], made_up: str = "1") -> list[Json | bytes]:
    frame = {"id": f"c-{made_up}", "created": int(made_up), "model": "m"}
    found: list[Json | bytes] = [
        {**frame, "choices": [{"index": 0, "text": piece, "finish_reason": None}]} for piece in cut(said["text"], cuts)
    ]
    return [*found, {**frame, "choices": [{"index": 0, "text": "", "finish_reason": said.get("end", "stop")}]}, DONE]


def response(said: Json, made_up: str = "1") -> Json:
    part = {"type": "output_text", "text": said.get("text", ""), "annotations": []}
    items: list[Json] = [{"id": f"msg-{made_up}", "type": "message", "role": "assistant", "content": [part]}]
    if "thought" in said:
        items.insert(0, {"id": f"rs-{made_up}", "type": "reasoning", "summary": [{"text": said["thought"]}]})
    if "arguments" in said:
        call = {"id": f"fc-{made_up}", "call_id": f"call-{made_up}", "type": "function_call", "name": "look_up"}
        items.append({**call, "arguments": said["arguments"]})
    return {
        "id": f"resp-{made_up}",
        "object": "response",
        "created_at": int(made_up),
        "model": f"m-{made_up}",
        "status": said.get("end", "completed"),
        "error": None,
        "output": items,
        "usage": {"input_tokens": int(made_up)},
    }


def response_events(said: Json, cuts: Iterable[int], made_up: str = "1") -> list[Json | bytes]:
    whole = response(said, made_up)
    found: list[Json | bytes] = [{"type": "response.created", "response": {**whole, "output": []}}]
    found += [{"type": "response.output_text.delta", "delta": piece} for piece in cut(said.get("text", ""), cuts)]
    found += [
        {"type": "response.output_item.done", "output_index": n, "item": item} for n, item in enumerate(whole["output"])
    ]
    return [*found, {"type": f"response.{whole['status']}", "response": whole}]


def message(said: Json, made_up: str = "1") -> Json:
    blocks: list[Json] = []
    if "thought" in said:
        blocks.append({"type": "thinking", "thinking": said["thought"], "signature": made_up})
    if said.get("text"):
        blocks.append({"type": "text", "text": said["text"]})
    if "arguments" in said:
        given = json.loads(said["arguments"])
        blocks.append({"type": "tool_use", "id": f"toolu-{made_up}", "name": "look_up", "input": given})
    return {
        "id": f"msg-{made_up}",
        "type": "message",
        "role": "assistant",
        "model": f"m-{made_up}",
        "content": blocks,
        "stop_reason": said.get("end", "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": int(made_up)},
    }


def message_events(said: Json, cuts: Iterable[int], made_up: str = "1") -> list[Json | bytes]:
    whole = message(said, made_up)
    start = {**whole, "content": [], "stop_reason": None}
    found: list[Json | bytes] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        empty = {name: value for name, value in block.items() if name not in ("text", "thinking", "signature")}
        empty["input" if block["type"] == "tool_use" else block["type"]] = {} if block["type"] == "tool_use" else ""
        found.append({"type": "content_block_start", "index": index, "content_block": empty})
        text = said["arguments"] if block["type"] == "tool_use" else block[block["type"]]
        name = _DELTAS[block["type"]]
        deltas = [{"type": "x_delta", name: piece} for piece in cut(text, cuts)]
        if block["type"] == "thinking":
            deltas.append({"type": "signature_delta", "signature": made_up})
        found += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        found.append({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    found.append({"type": "message_delta", "delta": ending, "usage": {"output_tokens": 3}})
    return [*found, {"type": "message_stop"}]


_DELTAS = {"text": "text", "thinking": "thinking", "tool_use": "partial_json"}


def embedding(said: Json, made_up: str = "1") -> Json:
    vectors = [{"object": "embedding", "index": n, "embedding": v} for n, v in enumerate(said["vectors"])]
    return {"object": "list", "data": vectors, "model": f"m-{made_up}", "usage": {"prompt_tokens": int(made_up)}}


WHOLE: dict[str, Callable[..., Json]] = {
    "/v1/chat/completions": chat,
    "/v1/completions": completion,
    "/v1/responses": response,
    "/v1/messages": message,
    "/v1/embeddings": embedding,
}
EVENTS: dict[str, Callable[..., list[Json | bytes]]] = {
    "/v1/chat/completions": chat_events,
    "/v1/completions": completion_events,
    "/v1/responses": response_events,
    "/v1/messages": message_events,
}


def body(answer: Json) -> bytes:
    """An answer in one piece."""
    return json.dumps(answer).encode()


def stream(events: Iterable[Json | bytes], end: bytes = b"\n") -> bytes:
    """A stream whose lines end with `end`."""
    payloads = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
    return b"".join(b"data: " + payload + end + end for payload in payloads)
