"""Customers get what the primary sent, byte for byte, with copying on and off, whatever is asked or answered."""

import asyncio
import base64
import random
import time
from pathlib import Path

import pytest
from shadowrun_mirror.capture.routefile import write_routes
from shadowrun_mirror.capture.routes import passing_routes, routes

from tests.integration.capture.harness import (
    PATH,
    Client,
    Headers,
    Message,
    answer,
    directive,
    read_body,
    running_scene,
    until,
)

pytestmark = pytest.mark.path

VARIED = 1000
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding"}
STATUSES = (
    "200 OK",
    "201 Created",
    "400 Bad Request",
    "404 Nope",
    "418 I'm a teapot",
    "429 Slow Down",
    "500 Oh",
    "503 X",
)


def scripted_answer(number: int) -> tuple[str, Headers, list[bytes], str]:
    """(status, headers, pieces of the body, framing) number `number` of a fixed list."""
    pick = random.Random(number)
    headers: Headers = [("Date", "Mon, 30 Nov 2026 07:00:00 GMT"), ("Server", "uvicorn"), ("X-Number", str(number))]
    extra: Headers = [
        ("X-CamelCase-Header", "Mixed Case; value=1"),
        ("Set-Cookie", "a=1; Path=/"),
        ("Set-Cookie", "b=2"),
        ("x-request-id", "from-the-primary"),
        ("x-envoy-like", "1"),
        ("Retry-After", "2"),
        ("X-Empty", ""),
        ("Via", "1.1 own"),
        ("Content-Encoding", "identity"),
        ("openai-processing-ms", "12"),
        ("X-Long", "v" * 9000),
    ]
    headers += [header for header in extra if pick.random() < 0.4]
    pieces = [pick.randbytes(pick.choice((0, 1, 30, 3000, 40_000))) for _ in range(pick.randint(1, 6))]
    return pick.choice(STATUSES), headers, [piece for piece in pieces if piece], pick.choice(("sized", "chunked"))


async def scripted(head: Message, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    number = int(head.header("x-n") or 0)
    status, headers, pieces, framing = scripted_answer(number)
    if framing == "sized":
        await answer(writer, status, headers, b"".join(pieces))
        return True
    await answer(writer, status, [*headers, ("Transfer-Encoding", "chunked")])
    for piece in pieces:
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
        await asyncio.sleep(0.001)
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


def visible(message: Message) -> tuple[str, Headers, bytes]:
    """All of an answer that is not between two neighbours only. Header order and case count."""
    kept = [header for header in message.headers if header[0].lower() not in HOP_BY_HOP]
    return message.start, kept, message.body


async def ask_all(port: int) -> list[tuple[str, Headers, bytes]]:
    """What customers get who ask everything, over four connections."""

    async def some(first: int) -> dict[int, tuple[str, Headers, bytes]]:
        client, got = Client(port), {}
        for number in range(first, VARIED, 4):
            pick = random.Random(number)
            method = pick.choice(("POST", "POST", "POST", "POST", "GET", "PUT", "DELETE"))
            path = pick.choice(
                (PATH, PATH, PATH, PATH + "?a=%2F..//b&c", "/a//b/../c/%2e%2E/d", "/v1/models", "/x?y=1?z")
            )
            headers = [
                ("x-n", str(number)),
                ("X-Conversation-Id", f"c{number}"),
                ("X-Envoy-External-Address", "10.0.0.1"),
            ]
            body = pick.randbytes(pick.choice((0, 2, 900, 5000)))
            if body and number % 3 == 0:
                headers.append(("Transfer-Encoding", "chunked"))
                body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            got[number] = visible(await client.request(headers, body, method=method, path=path))
        assert client.connections == 1
        client.close()
        return got

    parts = await asyncio.gather(*(some(first) for first in range(4)))
    answers = {number: one for part in parts for number, one in part.items()}
    return [answers[number] for number in range(VARIED)]


async def test_a_thousand_varied_answers_are_the_same_direct_and_through_envoy(tmp_path: Path) -> None:
    async with running_scene(tmp_path) as (capture, to_primary, to_mirror):
        to_primary.behaviour = to_primary.keeping(scripted)
        direct = await ask_all(capture.primary_port)
        passing = await ask_all(capture.customers)
        await capture.follow(directive())
        copying = await ask_all(capture.customers)
        assert passing == direct
        assert copying == direct
        assert len({answer[0] for answer in direct}) == len(STATUSES)
        assert len(to_mirror.received) > 200
        # Nor does the primary see a path or a body differently.
        asked = [
            {received.header("x-n"): received for received in to_primary.received[start : start + VARIED]}
            for start in (0, VARIED, 2 * VARIED)
        ]
        for number, one in asked[0].items():
            two, three = asked[1][number], asked[2][number]
            assert one.start == two.start == three.start
            assert one.body == two.body == three.body
            # A method that may have a body, without one and without saying so, is said to have none.
            silent = not one.body and one.header("content-length") is one.header("transfer-encoding") is None
            for other in (two, three):
                assert end_to_end(other)[: len(end_to_end(one))] == end_to_end(one)
                added = {name for name, _ in other.headers} - {name for name, _ in one.headers}
                assert added - ({"content-length"} if silent else set()) == {"x-forwarded-proto", "x-request-id"}


def end_to_end(message: Message) -> Headers:
    return [header for header in message.headers if header[0].lower() not in HOP_BY_HOP]


async def streaming(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    await answer(writer, "200 OK", [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
    for number in range(40):
        event = b'data: {"n":%d}\n\n' % number
        writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        await writer.drain()
        await asyncio.sleep(0.05)
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


async def test_no_connection_breaks_while_the_routes_are_rewritten_fifty_times(tmp_path: Path) -> None:
    async with running_scene(tmp_path) as (capture, to_primary, _):
        quick = to_primary.behaviour

        async def either(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
            behave = to_primary.keeping(streaming) if head.header("x-stream") else quick
            return await behave(head, reader, writer)

        to_primary.behaviour = either
        streamed, steady = Client(capture.customers), Client(capture.customers)
        answers = 0

        async def rewrite() -> None:
            for number in range(50):
                told = directive(version=number + 1, window=number, threshold=number * 1000)
                content = (
                    routes(told, copying=True, version=f"{number}.0.copying") if number % 5 else passing_routes("1.1.x")
                )
                write_routes(capture.routes, content)
                await asyncio.sleep(0.03)

        stream = asyncio.create_task(streamed.request([("x-stream", "1")]))
        rewriting = asyncio.create_task(rewrite())
        while not (rewriting.done() and stream.done()):
            assert (await steady.request()).status == 200
            answers += 1
            await asyncio.sleep(0.002)
        events = (await stream).body.split(b"\n\n")
        assert events[:-1] == [b'data: {"n":%d}' % number for number in range(40)]
        assert (streamed.connections, steady.connections) == (1, 1)
        assert answers > 20
        stats = await capture.admin("/stats?filter=http.customers.rds.shadowrun.(config_reload|update_rejected)$")
        assert b"update_rejected: 0" in stats
        # Of some that come close upon each other Envoy may take the last one only.
        assert int(stats.split(b"config_reload: ")[1].split()[0]) >= 10
        streamed.close()
        steady.close()


async def test_events_reach_the_customer_as_they_are_sent(tmp_path: Path) -> None:
    async with running_scene(tmp_path) as (capture, to_primary, _):
        to_primary.behaviour = to_primary.keeping(streaming)
        await capture.follow(directive())
        client = Client(capture.customers)
        await client.send(f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        reader, _ = await client.streams()
        started = time.monotonic()
        await reader.readuntil(b'"n":0')
        first = time.monotonic() - started
        await reader.readuntil(b'"n":39')
        assert first < 0.5 < 1.5 < time.monotonic() - started
        client.close()


async def test_an_answer_that_ends_with_its_connection_arrives_whole(tmp_path: Path) -> None:
    async def unframed(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + b"y" * 300_000)
        await writer.drain()
        return False

    async with running_scene(tmp_path) as (capture, to_primary, _):
        to_primary.behaviour = to_primary.keeping(unframed)
        await capture.follow(directive())
        client = Client(capture.customers)
        assert (await client.request()).body == b"y" * 300_000
        client.close()


# What Envoy carries out for those it trusts, with values that would show. It trusts nobody, whatever a request says.
ORDERS = (
    ("x-envoy-retry-on", "5xx"),
    ("x-envoy-retry-grpc-on", "unavailable"),
    ("x-envoy-max-retries", "3"),
    ("x-envoy-retriable-status-codes", "503"),
    ("x-envoy-retriable-header-names", "x-broken"),
    ("x-envoy-hedge-on-per-try-timeout", "true"),
    ("x-envoy-upstream-rq-timeout-ms", "20"),
    ("x-envoy-upstream-rq-per-try-timeout-ms", "10"),
    ("x-envoy-upstream-rq-timeout-alt-response", "1"),
    ("x-envoy-upstream-stream-duration-ms", "20"),
)


@pytest.mark.parametrize("forwarded", ["", "10.0.0.1", "127.0.0.1", "::1", "10.0.0.1, 203.0.113.7"])
async def test_orders_to_an_envoy_in_a_customers_headers_change_nothing(tmp_path: Path, forwarded: str) -> None:
    async def late_and_broken(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(0.3)
        await answer(writer, "503 Broken", [("x-broken", "yes")])
        return True

    async with running_scene(tmp_path) as (capture, to_primary, _):
        to_primary.behaviour = to_primary.keeping(late_and_broken)
        await capture.follow(directive())
        client = Client(capture.customers)
        sender = [("x-forwarded-for", forwarded)] if forwarded else []
        got = await client.request([*ORDERS, ("x-envoy-internal", "true"), *sender])
        assert got.start == "HTTP/1.1 503 Broken"
        [received] = to_primary.received
        assert [name for name, _ in received.headers if name.startswith("x-envoy-")] == []
        assert received.header("x-forwarded-for") == (forwarded or None)
        client.close()


async def test_a_websocket_passes_through(tmp_path: Path) -> None:
    async def upgrading(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        assert head.header("upgrade") == "websocket"
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        writer.write(b"echo:" + await reader.readexactly(5))
        await writer.drain()
        return False

    async with running_scene(tmp_path) as (capture, to_primary, _):
        to_primary.behaviour = upgrading
        await capture.follow(directive())
        client = Client(capture.customers)
        key = base64.b64encode(b"0" * 16).decode()
        upgrade = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Key", key)]
        assert (await client.request(upgrade, b"", method="GET", path="/v1/realtime")).status == 101
        await client.send(b"hello")
        reader, _ = await client.streams()
        assert await reader.readexactly(10) == b"echo:hello"
        client.close()


async def test_the_primary_decides_whether_a_body_may_come(tmp_path: Path) -> None:
    async def asked_first(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        assert head.header("expect") == "100-continue"
        if head.header("x-refuse"):
            await answer(writer, "413 Too Large", [])
            return False
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await read_body(reader, head)
        await answer(writer, "200 OK", [], b"got %d" % len(head.body))
        return True

    async with running_scene(tmp_path) as (capture, to_primary, to_mirror):
        to_primary.behaviour = asked_first
        await capture.follow(directive())
        head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n"
        client = Client(capture.customers)
        await client.send(f"{head}\r\n".encode())
        reader, _ = await client.streams()
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5) == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"hello")
        assert (await client.receive()).body == b"got 5"

        async def copied() -> bool:
            return [copy.body for copy in to_mirror.received] == [b"hello"]

        await until(copied, 3.0)
        client.close()
        refused = Client(capture.customers)
        await refused.send(f"{head}x-refuse: 1\r\n\r\n".encode())
        assert (await asyncio.wait_for(refused.receive(), 5)).status == 413
        refused.close()


async def test_a_client_of_the_last_century_is_served(tmp_path: Path) -> None:
    async with running_scene(tmp_path) as (capture, _, to_mirror):
        await capture.follow(directive())
        client = Client(capture.customers)
        await client.send(f"POST {PATH} HTTP/1.0\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        got = await client.receive()
        assert (got.status, got.body) == (200, b'{"ok":true}')
        client.close()

        async def copied() -> bool:
            return [copy.body for copy in to_mirror.received] == [b"{}"]

        await until(copied, 3.0)


async def test_an_idle_connection_to_the_primary_is_closed_before_a_common_server_would(tmp_path: Path) -> None:
    async with running_scene(tmp_path) as (capture, to_primary, _):
        closed = asyncio.Event()
        quick = to_primary.behaviour

        async def watched(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
            await quick(head, reader, writer)
            if await reader.read(1) == b"":
                closed.set()
            return False

        to_primary.behaviour = watched
        client = Client(capture.customers)
        await client.request()
        started = time.monotonic()
        await asyncio.wait_for(closed.wait(), 6)
        assert 2.0 < time.monotonic() - started < 4.5
        client.close()
