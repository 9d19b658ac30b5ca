"""Receivers that misbehave, each on a port of its own choice: what stands where the mirror should be.

Each is a behaviour of a scripted peer, or less than a peer: nothing there, or something that is never reached.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from tests.integration.capture.harness import Behaviour, Message, Peer, answer, read_body

ENDLESS_S = 60.0
SIXTY_MB = 60 << 20
PIECE = b"x" * (1 << 20)
CONTINUES = b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000


async def never_reads(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.sleep(ENDLESS_S)
    return False


async def reads_slowly(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    left = int(head.header("content-length") or 0)
    while left > 0 and (piece := await reader.read(min(left, 20_000))):
        left -= len(piece)
        await asyncio.sleep(0.1)
    await answer(writer, "202 Accepted", [])
    return True


async def never_answers(head: Message, reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> bool:
    await read_body(reader, head)
    await asyncio.sleep(ENDLESS_S)
    return False


async def answers_sixty_megabytes(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    await read_body(reader, head)
    await answer(writer, "200 OK", [("Content-Length", str(SIXTY_MB))])
    for _ in range(SIXTY_MB // len(PIECE)):
        writer.write(PIECE)
        await writer.drain()
    return True


async def hangs_up(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.transport.abort()
    return False


async def refuses_before_reading(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    await answer(writer, "503 Busy", [("Connection", "close")])
    return False


async def says_continue_without_end(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """An answer that never comes to its status; each is complete by itself, so that no limit on heads is met."""
    await read_body(reader, head)
    until = asyncio.get_running_loop().time() + ENDLESS_S
    while asyncio.get_running_loop().time() < until:
        writer.write(CONTINUES)
        await writer.drain()
        await asyncio.sleep(0)
    return False


Fault = Callable[[int], AbstractAsyncContextManager[None]]
"""Something in the mirror's place, on its port, while inside."""


def behaving(behaviour: Behaviour) -> Fault:
    """A peer that does this with every request."""

    @contextlib.asynccontextmanager
    async def fault(port: int) -> AsyncIterator[None]:
        peer = await Peer(port, behaviour).start()
        try:
            yield
        finally:
            await peer.stop()

    return fault


@contextlib.asynccontextmanager
async def down(_: int) -> AsyncIterator[None]:
    """Nobody listens: every connection is refused."""
    yield


@contextlib.asynccontextmanager
async def blackholed(port: int) -> AsyncIterator[None]:
    """A connection never comes about: the queue of a socket that nobody accepts from is full, and so SYNs get lost."""
    with contextlib.ExitStack() as held:
        listening = held.enter_context(socket.socket())
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(0)
        for _ in range(2):  # one more than the length of the queue
            filler = held.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        yield


MIRRORS: dict[str, Fault] = {
    "never-reads": behaving(never_reads),
    "reads-slowly": behaving(reads_slowly),
    "never-answers": behaving(never_answers),
    "down": down,
    "blackholed": blackholed,
    "answers-60-MB": behaving(answers_sixty_megabytes),
    "hangs-up": behaving(hangs_up),
    "refuses-before-reading": behaving(refuses_before_reading),
}


async def stalls_in_the_middle(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    await read_body(reader, head)
    await answer(writer, "200 OK", [("Content-Type", content_type(head)), ("Transfer-Encoding", "chunked")])
    writer.write(piece_of(head))
    await asyncio.sleep(ENDLESS_S)
    return False


async def streams_without_end(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    await read_body(reader, head)
    await answer(writer, "200 OK", [("Content-Type", content_type(head)), ("Transfer-Encoding", "chunked")])
    while True:
        writer.write(piece_of(head))
        await writer.drain()
        await asyncio.sleep(0.01)


def content_type(head: Message) -> str:
    return "text/event-stream" if _streamed(head) else "application/json"


def piece_of(head: Message) -> bytes:
    """One chunk of an answer that goes on."""
    piece = b'data: {"choices":[{"index":0,"delta":{"content":"word"}}]}\n\n' if _streamed(head) else b'{"choices":['
    return f"{len(piece):x}\r\n".encode() + piece + b"\r\n"


def _streamed(head: Message) -> bool:
    return b'"stream": true' in head.body[:200] or b'"stream":true' in head.body[:200]


ARMS = MIRRORS | {
    "stalls-in-the-middle": behaving(stalls_in_the_middle),
    "streams-without-end": behaving(streams_without_end),
}
