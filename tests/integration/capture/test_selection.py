"""Envoy selects exactly whom the rule says, whatever the key looks like; what it copies is complete and marked."""

import asyncio
import random
import uuid
from pathlib import Path

import pytest
import xxhash
from shadowrun_mirror.config import MODULO
from shadowrun_mirror.directive import CaptureDirective
from shadowrun_mirror.evidence import Amount, CaptureWindow

from tests.integration.capture.harness import (
    PATH,
    Capture,
    Client,
    Headers,
    Peer,
    directive,
    running_scene,
    until,
)

pytestmark = pytest.mark.path


def chosen(told: CaptureDirective, headers: Headers) -> bool:
    """The rule in Python, on header lines as a client writes them."""
    sampling = told.rules.sampling
    for name in (*sampling.key_headers, "x-request-id"):
        key = ",".join(value.strip(" \t") for key, value in headers if key == name)
        if key:
            return (
                xxhash.xxh64_intdigest(key.encode("utf-8", "surrogateescape"), sampling.seed) % MODULO
                >= sampling.threshold
            )
    return False


def mixed_keys(count: int) -> list[Headers]:
    pick = random.Random(11)
    alphabet = "abcXYZ0189-_.:/ é漢😀"

    def text(length: int) -> str:
        return "".join(pick.choice(alphabet) for _ in range(length))

    made: list[Headers] = []
    for number in range(count):
        request_id = str(uuid.UUID(int=pick.getrandbits(128), version=4))
        kinds: tuple[list[str], ...] = (
            [str(uuid.UUID(int=pick.getrandbits(128), version=4))],
            [text(pick.randint(1, 40))],
            [f"  {text(8)}  {text(8)} "],
            [""],
            [],
            [text(1200)[:4096]],
            [text(5) + "a", "b" + text(5)],
            [f"user-{number}"],
            [f"not UTF-8: \udcff\udce9{number}"],
        )
        lines = kinds[number % len(kinds)]
        headers = [("x-n", str(number)), ("x-request-id", request_id)]
        made.append(headers + [("x-conversation-id", line) for line in lines])
    return made


async def send_all(capture: Capture, requests: list[Headers], connections: int = 8) -> None:
    async def some(part: list[Headers]) -> None:
        client = Client(capture.customers)
        for headers in part:
            assert (await client.request(headers)).status == 200
        client.close()

    await asyncio.gather(*(some(requests[start::connections]) for start in range(connections)))


async def settled(peer: Peer, count: int) -> None:
    async def there() -> bool:
        return len(peer.received) >= count

    await until(there, 10.0)
    await asyncio.sleep(0.2)


async def test_envoy_selects_the_same_ten_thousand_keys_as_the_rule_in_python(tmp_path: Path) -> None:
    told = directive(threshold=MODULO * 7 // 10)
    requests = mixed_keys(10_400)
    expected = {headers[0][1] for headers in requests if chosen(told, headers)}
    assert 0.25 < len(expected) / len(requests) < 0.35
    async with running_scene(tmp_path) as (capture, to_primary, to_mirror):
        await capture.follow(told)
        await send_all(capture, requests)
        await settled(to_mirror, len(expected))
        copied = [copy.header("x-n") for copy in to_mirror.received]
        assert sorted(map(str, copied)) == sorted(expected)
        assert len(to_primary.received) == len(requests)
        window = (await capture.evidence()).windows[1]
        assert window.sampled == Amount(requests=len(expected), bytes=2 * len(expected))
        rest = len(requests) - len(expected)
        assert window.plain == Amount(requests=rest, bytes=2 * rest)


async def test_a_missing_key_is_left_out_when_the_rule_says_skip(tmp_path: Path) -> None:
    async with running_scene(tmp_path) as (capture, _, to_mirror):
        await capture.follow(directive(on_missing_key="Skip"))
        await send_all(capture, [[], [("x-conversation-id", "")], [("x-conversation-id", "c")]], connections=1)
        await settled(to_mirror, 1)
        assert [copy.header("x-conversation-id") for copy in to_mirror.received] == ["c"]
        assert (await capture.evidence()).windows[1].plain.requests == 2


async def test_copies_are_complete_and_marked_and_the_primary_sees_no_difference(tmp_path: Path) -> None:
    sent: Headers = [
        ("x-conversation-id", "c-1"),
        ("x-request-id", "r-1"),
        ("Authorization", "Bearer secret"),
        ("Cookie", "a=b"),
        ("X-Api-Key", "secret"),
        ("Baggage", "team=a"),
        ("x-shadowrun-window", "99"),
    ]
    async with running_scene(tmp_path) as (capture, to_primary, to_mirror):
        client = Client(capture.customers)
        body = bytes(range(256)) * 4000
        await client.request(sent, body)
        await capture.follow(directive(window=3))
        await client.request(sent, body)
        await settled(to_mirror, 1)
        before, after = to_primary.received
        assert after == before
        assert [header for header in after.headers if header in sent] == sent
        (copy,) = to_mirror.received
        assert copy.body == body
        assert copy.start == f"POST {PATH} HTTP/1.1"
        assert copy.header("x-shadowrun-run") == "run-1"
        assert copy.header("x-shadowrun-window") == "3"
        assert copy.header("x-request-id") == "r-1"
        assert copy.header("host") == "chat.test"
        assert copy.header("baggage") == "team=a"
        for credential in ("authorization", "cookie", "x-api-key"):
            assert copy.header(credential) is None
        client.close()


async def test_what_is_out_of_scope_or_already_a_copy_is_neither_copied_nor_counted(tmp_path: Path) -> None:
    async with running_scene(tmp_path) as (capture, _, to_mirror):
        await capture.follow(directive())
        client = Client(capture.customers)
        await client.request([], b"", method="GET")
        await client.request([], path="/v1/embeddings")
        await client.request([], path=PATH + "/more")
        await client.request([("x-shadowrun-run", "other")])
        await client.request([("baggage", "a=b, shadow = true;p=1")])
        upgrading = Client(capture.customers)
        await upgrading.request([("upgrade", "websocket"), ("connection", "upgrade")], b"")
        upgrading.close()
        assert (await capture.evidence()).windows == {}
        await client.request([("baggage", "shadow=truely,notshadow=true")], path=PATH + "?api-version=1")
        await settled(to_mirror, 1)
        assert [copy.start.split(" ")[1] for copy in to_mirror.received] == [PATH + "?api-version=1"]
        assert (await capture.evidence()).windows[1].sampled.requests == 1
        client.close()


async def test_counters_are_exact_per_window_in_requests_and_bytes(tmp_path: Path) -> None:
    async with running_scene(tmp_path) as (capture, _, to_mirror):
        client = Client(capture.customers)
        chunked = [("Transfer-Encoding", "chunked")]
        await capture.follow(directive(version=1, window=0, max_body_bytes=1000))
        for size in (0, 1, 1000):
            await client.request([], b"x" * size)
        await client.request([], b"x" * 1001)
        await client.request(chunked, b"3\r\nabc\r\n0\r\n\r\n")
        await capture.follow(directive(version=2, window=1, threshold=MODULO, max_body_bytes=1000))
        await client.request([], b"x" * 70)
        await client.request(chunked, b"3\r\nabc\r\n0\r\n\r\n")
        await settled(to_mirror, 3)
        assert (await capture.evidence()).windows == {
            0: CaptureWindow(sampled=Amount(requests=3, bytes=1001), oversized=Amount(requests=2, bytes=1001)),
            1: CaptureWindow(plain=Amount(requests=2, bytes=70)),
        }
        assert sorted(len(copy.body) for copy in to_mirror.received) == [0, 1, 1000]
        assert "access logger" not in (capture.folder / "envoy.log").read_text()  # a body of unknown size is no error
        client.close()


async def test_a_request_is_counted_when_its_headers_arrive(tmp_path: Path) -> None:
    async with running_scene(tmp_path) as (capture, _, to_mirror):
        await capture.follow(directive())
        client = Client(capture.customers)
        await client.send(f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx".encode())

        async def counted() -> bool:
            evidence = await capture.evidence()
            return evidence.windows.get(1) == CaptureWindow(sampled=Amount(requests=1, bytes=1000))

        await until(counted, 2.0)
        assert (await capture.evidence()).active_requests == 1
        client.close()  # a customer who gives up leaves no half copy behind
        await asyncio.sleep(0.3)
        assert to_mirror.received == []
        assert (await capture.evidence()).active_requests == 0
