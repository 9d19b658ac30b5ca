"""Customers that never stop asking, and the primary that answers them: every answer is checked byte by byte.

What an answer must be follows from its request alone, so a customer can tell any difference by itself.
"""

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import AsyncIterator

from tests.integration.capture.harness import Capture, Client, Headers, Message, Peer, answer, read_body

CUSTOMERS = 4
PAUSE_S = 0.03
SIZES = (300, 2_000, 60_000, 2_000)
EVENTS = 5
_FRAME = 200  # more than the rest of a body around its content
_NOT_COMPARED = {"date", "x-envoy-upstream-service-time"}


def request_body(number: int, largest: int) -> bytes:
    """The body of the n-th request: every second one wants a stream, every fifth is one of the largest."""
    sizes = (*SIZES, largest - _FRAME)
    size = sizes[number % len(sizes)]
    content = f"request {number} ".ljust(size, "x")
    message = {"role": "user", "content": content}
    return json.dumps({"model": "m", "stream": number % 2 == 1, "messages": [message]}).encode()


def plain_answer(body: bytes) -> bytes:
    return json.dumps({"echo": hashlib.sha256(body).hexdigest(), "bytes": len(body)}).encode()


def stream_events(body: bytes) -> list[bytes]:
    digest = hashlib.sha256(body).hexdigest()
    return [f"data: {digest}-{number}\n\n".encode() for number in range(EVENTS)]


def answer_headers(body: bytes) -> Headers:
    """Headers the primary gives to this request, besides the framing."""
    return [("X-Echo", hashlib.sha256(body).hexdigest()[:8]), ("Server", "chat"), ("Set-Cookie", "a=1")]


async def answers(head: Message, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """The primary."""
    headers = answer_headers(head.body)
    if b'"stream": true' not in head.body[:100]:
        await answer(writer, "200 Fine", [*headers, ("Content-Type", "application/json")], plain_answer(head.body))
        return True
    framing = [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")]
    await answer(writer, "200 Fine", [*headers, *framing])
    for event in stream_events(head.body):
        writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0.002)
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


class Crowd:
    """What the customers saw so far."""

    def __init__(self, port: int, largest: int) -> None:
        self._port = port
        self._largest = largest
        self.sent = 0
        self.answered = 0
        self.wrong: list[str] = []
        self.longest_s = 0.0
        self._over = False
        self._customers: list[asyncio.Task[None]] = []

    def come(self) -> None:
        """Begin."""
        self._customers = [asyncio.create_task(self._ask()) for _ in range(CUSTOMERS)]

    async def leave(self) -> None:
        """Ask no more, and wait until every request that was sent has come to its end."""
        self._over = True
        await asyncio.gather(*self._customers)

    async def _ask(self) -> None:
        """One customer, until told to leave; it notes a failure and goes on over a new connection."""
        client = Client(self._port)
        try:
            while not self._over:
                await self._once(client)
                await asyncio.sleep(PAUSE_S)
        finally:
            client.close()

    async def _once(self, client: Client) -> None:
        number, started = self.sent, time.monotonic()
        self.sent += 1
        body = request_body(number, self._largest)
        try:
            got = await asyncio.wait_for(client.request([("Content-Type", "application/json")], body), 20)
        except (TimeoutError, ConnectionError, AssertionError, asyncio.IncompleteReadError) as error:
            self.wrong.append(f"request {number}: {type(error).__name__} {error}")
            client.close()
            return
        self.longest_s = max(self.longest_s, time.monotonic() - started)
        self.answered += 1
        difference = what_differs(body, streamed=number % 2 == 1, got=got)
        if difference:
            self.wrong.append(f"request {number}: {difference}")


def what_differs(body: bytes, *, streamed: bool, got: Message) -> str:
    """How an answer differs from what the primary sends for this request; "" when it does not."""
    expected = b"".join(stream_events(body)) if streamed else plain_answer(body)
    content_type = "text/event-stream" if streamed else "application/json"
    headers = {*answer_headers(body), ("Content-Type", content_type)}
    headers.add(("Transfer-Encoding", "chunked") if streamed else ("Content-Length", str(len(expected))))
    seen = {(name, value) for name, value in got.headers if name.lower() not in _NOT_COMPARED}
    if got.start != "HTTP/1.1 200 Fine":
        return got.start
    if seen != headers:
        return f"headers {seen ^ headers}"
    return "" if got.body == expected else f"{len(got.body)} bytes of body instead of {len(expected)}"


@contextlib.asynccontextmanager
async def asking(capture: Capture, largest: int) -> AsyncIterator[Crowd]:
    """Customers and their primary while inside; at the end every request that was sent has come to its end.

    `largest`: bytes of their largest bodies.
    """
    primary = Peer(capture.primary_port, answers)

    async def reads_then_answers(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await read_body(reader, head)
        return await answers(head, reader, writer)

    primary.behaviour = reads_then_answers
    await primary.start()
    crowd = Crowd(capture.customers, largest)
    crowd.come()
    try:
        yield crowd
    finally:
        await crowd.leave()
        await primary.stop()
