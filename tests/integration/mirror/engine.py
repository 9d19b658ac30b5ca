"""A scripted engine on a real socket: every byte it sends, and when, is the test's. Keeps the requests it got."""

import asyncio
import json
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
