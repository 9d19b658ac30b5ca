"""What became of the original of each copy is told to the mirror, without content; and nobody waits for the telling."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from shadowrun_mirror.capture.outcome_log import LOG_TAG, log_record

from tests.integration.capture.fast import FastServer, send_in_batches
from tests.integration.capture.harness import (
    PATH,
    Capture,
    Client,
    Message,
    answer,
    directive,
    running_capture,
    running_scene,
    until,
)

pytestmark = pytest.mark.path


class Log:
    """The mirror's end of the log: keeps what Envoy wrote."""

    def __init__(self) -> None:
        self.raw = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while more := await reader.read(1 << 16):
                self.raw += more
        finally:
            writer.close()

    def records(self) -> list[dict[str, Any]]:
        """All records of the messages, which have no framing but themselves: each begins with the same bytes."""
        begin = b"\x92" + msgspec.msgpack.encode(LOG_TAG)
        messages = [begin + rest for rest in self.raw.split(begin)[1:]]
        return [record for message in messages for _, record in msgspec.msgpack.decode(message)[1]]


async def behaves(head: Message, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    how = head.header("x-how")
    if how == "late":
        await asyncio.sleep(0.2)
        await answer(writer, "200 OK", [])
        return True
    if how == "stream":
        await answer(writer, "200 OK", [("Content-Length", "1000")], b"begins")
        await asyncio.sleep(30)
    if how == "silent":
        return False
    await answer(writer, "429 Slow" if how == "refuses" else "500 Oh", [])
    return True


async def test_each_copy_has_a_record_and_nothing_else_has(tmp_path: Path) -> None:
    log = Log()
    async with running_scene(tmp_path) as (capture, to_primary, _):
        server = await asyncio.start_server(log.serve, "127.0.0.1", capture.log_port)
        to_primary.behaviour = to_primary.keeping(behaves)
        secret = [("authorization", "Bearer canary"), ("x-conversation-id", "canary")]
        client = Client(capture.customers)
        await client.request([("x-how", "late")])  # before anything is copied
        await capture.follow(directive(max_body_bytes=100))
        for number, how in enumerate(("late", "refuses", "fails", "silent")):
            await client.request([("x-how", how), ("x-request-id", f"r{number}"), *secret])
        await client.request([("x-how", "late")], b"x" * 101)  # too large to be copied
        await client.request([("x-how", "late")], path="/other")
        left = Client(capture.customers)
        head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nx-how: stream\r\nx-request-id: r4\r\nContent-Length: 2\r\n\r\n{{}}"
        await left.send(head.encode())
        reader, _ = await left.streams()
        await reader.readuntil(b"begins")
        left.close()

        async def told() -> bool:
            return len(log.records()) >= 5

        await until(told, 5.0)
        await asyncio.sleep(0.5)
        records = {record["id"]: record for record in log.records()}
        assert sorted(records) == ["r0", "r1", "r2", "r3", "r4"]
        assert all(set(record) == set(log_record("run-1")) for record in records.values())
        assert {(record["run"], record["route"]) for record in records.values()} == {("run-1", "sampled-1")}
        assert [records[f"r{n}"]["status"] for n in range(5)] == [200, 429, 500, 503, 200]
        assert records["r0"]["flags"] == "-"
        assert 200_000 <= records["r0"]["first_byte_us"] < 1_000_000
        assert records["r3"]["first_byte_us"] is None
        assert "UC" in records["r3"]["flags"].split(",")
        assert records["r4"]["flags"] == "DC"
        assert b"canary" not in log.raw
        client.close()
        server.close()


Receiver = Callable[[int], AbstractAsyncContextManager[object]]


@asynccontextmanager
async def dead(_: int) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def wedged(port: int) -> AsyncIterator[None]:
    """Accepts, then never reads, with as little room in the kernel as there can be."""
    held: list[socket.socket] = []
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listening.bind(("127.0.0.1", port))
    listening.listen(128)
    listening.setblocking(False)

    async def accept() -> None:
        while True:
            held.append((await asyncio.get_running_loop().sock_accept(listening))[0])

    accepting = asyncio.create_task(accept())
    try:
        yield
    finally:
        accepting.cancel()
        for each in (listening, *held):
            each.close()


@asynccontextmanager
async def blackholed(port: int) -> AsyncIterator[None]:
    """Never answers a SYN: its queue of connections is full."""
    held = [socket.socket() for _ in range(3)]
    held[0].bind(("127.0.0.1", port))
    held[0].listen(0)
    for each in held[1:]:
        each.setblocking(False)
        each.connect_ex(("127.0.0.1", port))
    await asyncio.sleep(0.1)
    try:
        yield
    finally:
        for each in held:
            each.close()


async def stat(capture: Capture, name: str) -> int:
    stats = json.loads(await capture.admin(f"/stats?format=json&filter=^{name}$"))["stats"]
    return int(stats[0]["value"])


async def heap_bytes(capture: Capture) -> int:
    return int(json.loads(await capture.admin("/memory"))["allocated"])


@pytest.mark.parametrize("receiver", [dead, wedged, blackholed])
async def test_customers_do_not_wait_for_a_log_that_nobody_reads_and_memory_stays_bounded(
    receiver: Receiver, tmp_path: Path
) -> None:
    request_id = "r" * 2000  # long, so that little traffic makes much log
    raw = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nx-request-id: {request_id}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    async with (
        running_capture(tmp_path) as capture,
        FastServer(capture.primary_port),
        FastServer(capture.mirror_port),
        receiver(capture.log_port),
    ):
        await capture.follow(directive())
        assert await send_in_batches(capture.customers, [raw] * 200) == 200  # what an Envoy takes once
        before = await heap_bytes(capture)
        slowest = 0.0
        for _ in range(48 if receiver is wedged else 16):  # a fixed 1.6 MB of log each second
            sent = time.monotonic()
            assert await send_in_batches(capture.customers, [raw] * 200, connections=2, batch=1) == 200
            took = time.monotonic() - sent
            slowest = max(slowest, took / 100)
            await asyncio.sleep(max(0.0, 0.25 - took))
        assert slowest < 0.05
        assert await heap_bytes(capture) - before < 14 << 20  # of about 19 MB
        if receiver is wedged:  # its connection is given up, and with it what waited there
            assert await stat(capture, "cluster.log.upstream_cx_destroy") >= 1
        else:
            assert await stat(capture, "access_logs.fluentd.shadowrun.entries_lost") > 0
