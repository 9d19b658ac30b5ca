"""A scripted engine on a real socket: every byte it sends, and when, is the test's. Keeps the requests it got."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Awaitable, Callable
from typing import Any


class Got:
    """One request as it arrived."""

    def __init__(self, head: bytes, body: bytes) -> None:
        lines = head.split(b"\r\n")
        self.line = lines[0].decode("latin-1")
        self.headers = [
            (name.decode("latin-1"), value.strip().decode("latin-1"))
            for name, _, value in (line.partition(b":") for line in lines[1:] if line)
        ]
        self.body = body

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """What a script writes with."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, content_type: str, *more: str, status: str = "200 OK") -> None:
        lines = [f"HTTP/1.1 {status}", f"content-type: {content_type}", *more, "", ""]
        await self.send("\r\n".join(lines).encode())

    async def chunk(self, data: bytes) -> None:
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")


Script = Callable[[Got, Wire], Awaitable[None]]


class Engine:
    """`async with Engine(script) as engine:` listens on `engine.port`; the connection closes after the script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.got: list[Got] = []
        self.port = 0
        self.open_connections = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "Engine":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.open_connections += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            got = Got(head, b"")
            got.body = await reader.readexactly(int(got.values("content-length")[0]))
            self.got.append(got)
            await self.script(got, Wire(writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the mirror hung up, as it may
        finally:
            self.open_connections -= 1
            writer.close()


def chunk_json(content: str | None, finish: str | None = None) -> bytes:
    delta: dict[str, Any] = {} if content is None else {"content": content}
    body = {
        "id": "c-1",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return json.dumps(body, separators=(",", ":")).encode()


def event(payload: bytes, end: bytes = b"\n\n") -> bytes:
    return b"data: " + payload + end


ROLE = event(b'{"id":"c-1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}')
FINISH = event(chunk_json(None, "stop"))
DONE = event(b"[DONE]")


def usage_event(prompt: int, output: int, cached: int | None = None) -> bytes:
    usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return event(json.dumps({"id": "c-1", "choices": [], "usage": usage}).encode())


def streams(text: str = "word", tokens: int = 4, gap_s: float = 0.0, delay_s: float = 0.0) -> Script:
    """A well-behaved stream of `tokens` content events."""

    async def script(_: Got, wire: Wire) -> None:
        await wire.head("text/event-stream; charset=utf-8", "transfer-encoding: chunked")
        await wire.chunk(ROLE)
        await asyncio.sleep(delay_s)
        for index in range(tokens):
            await wire.chunk(event(chunk_json(text)))
            if index + 1 < tokens:
                await asyncio.sleep(gap_s)
        await wire.chunk(FINISH + usage_event(100, tokens, 64) + DONE)
        await wire.send(b"0\r\n\r\n")

    return script


def answers(text: str = "word", tokens: int = 4, delay_s: float = 0.0) -> Script:
    """A well-behaved plain JSON answer; streams when asked to."""

    async def script(got: Got, wire: Wire) -> None:
        if got.json.get("stream"):
            await streams(text, tokens, delay_s=delay_s)(got, wire)
            return
        await asyncio.sleep(delay_s)
        body = {
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 100, "completion_tokens": tokens},
        }
        data = json.dumps(body).encode()
        await wire.head("application/json", f"content-length: {len(data)}")
        await wire.send(data)

    return script


# The other APIs. Each stream is (before the content, one event of content, what ends it); each has 5 + 64 + 31 prompt
# tokens, 64 of them cached, however its usage says so.


def typed(body: dict[str, Any]) -> bytes:
    """An event that is named as its type."""
    return f"event: {body['type']}\ndata: {json.dumps(body, separators=(',', ':'))}\n\n".encode()


def _chat_stream(tokens: int) -> tuple[bytes, list[bytes], bytes]:
    return ROLE, [event(chunk_json("word"))] * tokens, FINISH + usage_event(100, tokens, 64) + DONE


def _completion_stream(tokens: int) -> tuple[bytes, list[bytes], bytes]:
    word = event(b'{"id":"c-1","choices":[{"index":0,"text":"word","finish_reason":null}]}')
    finish = event(b'{"id":"c-1","choices":[{"index":0,"text":"","finish_reason":"length"}]}')
    return b"", [word] * tokens, finish + usage_event(100, tokens, 64) + DONE


def _response(tokens: int, status: str = "completed") -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "status": status,
        "error": None,
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "word"}]}],
        "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": tokens},
    }


def _response_stream(tokens: int) -> tuple[bytes, list[bytes], bytes]:
    item = {"type": "message", "content": []}
    opening = typed({"type": "response.created", "response": {"status": "in_progress", "output": []}})
    opening += typed({"type": "response.output_item.added", "sequence_number": 1, "item": item})
    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    words = [
        typed(
            {"type": "response.output_text.delta", "sequence_number": n + 2, **where, "delta": "word", "logprobs": []}
        )
        for n in range(tokens)
    ]
    ending = typed({"type": "response.output_text.done", **where, "text": "word" * tokens})
    return opening, words, ending + typed({"type": "response.completed", "response": _response(tokens)})


def _message_stream(tokens: int) -> tuple[bytes, list[bytes], bytes]:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 31, "output_tokens": 1}
    opening = typed({"type": "message_start", "message": {"id": "msg_1", "content": [], "usage": usage}})
    opening += typed({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    word = typed({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word"}})
    ending = typed({"type": "content_block_stop", "index": 0}) + typed({"type": "ping"})
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": tokens}}
    return opening, [word] * tokens, ending + typed(delta) + typed({"type": "message_stop"})


def _whole(path: str, tokens: int) -> dict[str, Any]:
    if path.endswith("/responses"):
        return _response(tokens)
    if path.endswith("/messages"):
        usage = {"input_tokens": 36, "cache_read_input_tokens": 64, "output_tokens": tokens}
        return {"type": "message", "content": [{"type": "text", "text": "word"}], "usage": usage}
    counted: dict[str, Any] = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 64}}
    if path.endswith("/embeddings"):
        return {"object": "list", "data": [{"index": 0, "embedding": [0.25] * 64}], "usage": counted}
    choice = {"index": 0, "text": "word"} if "chat" not in path else {"index": 0, "message": {"content": "word"}}
    return {"choices": [choice | {"finish_reason": "stop"}], "usage": counted | {"completion_tokens": tokens}}


STREAMS = {
    "/v1/chat/completions": _chat_stream,
    "/v1/completions": _completion_stream,
    "/v1/responses": _response_stream,
    "/v1/messages": _message_stream,
}
"""How the answers of each API stream, by path; embeddings do not."""


class Packer:
    """Content codings: "gzip", "deflate", or "" for none. Every piece comes out as soon as it went in."""

    def __init__(self, coding: str) -> None:
        bits = {"": 0, "gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}[coding]
        self._packer = zlib.compressobj(wbits=bits) if bits else None

    def piece(self, data: bytes) -> bytes:
        return data if self._packer is None else self._packer.compress(data) + self._packer.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return b"" if self._packer is None else self._packer.flush()


def speaks(tokens: int = 4, gap_s: float = 0.0, delay_s: float = 0.0, coding: str = "", end: bytes = b"\n") -> Script:
    """A well-behaved engine of every API, streaming when asked to; lines of its events end with `end`."""

    async def script(got: Got, wire: Wire) -> None:
        packer = Packer(coding)
        named = [f"content-encoding: {coding}"] if coding else []
        if not got.json.get("stream") or got.path not in STREAMS:
            await asyncio.sleep(delay_s)
            data = packer.piece(json.dumps(_whole(got.path, tokens)).encode()) + packer.end()
            await wire.head("application/json", f"content-length: {len(data)}", *named)
            await wire.send(data)
            return
        opening, words, ending = STREAMS[got.path](tokens)
        await wire.head("text/event-stream", "transfer-encoding: chunked", *named)
        if opening:
            await wire.chunk(packer.piece(opening.replace(b"\n", end)))
        await asyncio.sleep(delay_s)
        for number, word in enumerate(words):
            await asyncio.sleep(gap_s if number else 0)
            await wire.chunk(packer.piece(word.replace(b"\n", end)))
        await wire.chunk(packer.piece(ending.replace(b"\n", end)) + packer.end())
        await wire.send(b"0\r\n\r\n")

    return script


def bomb(content_type: str, megabytes: int) -> Script:
    """A small compressed body that stands for a large one."""
    data = gzip.compress(b": ping\n\n" * (megabytes * 1024 * 128))

    async def script(_: Got, wire: Wire) -> None:
        await wire.head(content_type, "content-encoding: gzip", f"content-length: {len(data)}")
        await wire.send(data)

    return script


def raw(content_type: str, *pieces: bytes, gap_s: float = 0.0, whole: bool = True) -> Script:
    """These pieces as chunks; without the end of the body when not `whole`."""

    async def script(_: Got, wire: Wire) -> None:
        await wire.head(content_type, "transfer-encoding: chunked")
        for piece in pieces:
            await wire.chunk(piece)
            await asyncio.sleep(gap_s)
        if whole:
            await wire.send(b"0\r\n\r\n")

    return script


def refuses(status: str) -> Script:
    async def script(_: Got, wire: Wire) -> None:
        await wire.head("application/json", "content-length: 2", status=status)
        await wire.send(b"{}")

    return script


async def hangs(_: Got, wire: Wire) -> None:
    """Takes the request and says nothing."""
    await asyncio.sleep(60)
