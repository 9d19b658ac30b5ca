"""Envoy selects exactly whom the rule says, whatever the key looks like; what it copies is complete and marked."""

import asyncio
import random
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import xxhash
from shadowrun_mirror.config import CREDENTIAL_HEADERS, MODULO, CaptureRules, Sampling
from shadowrun_mirror.evidence import Amount, CaptureWindow
from shadowrun_mirror.select import is_selected

from tests.integration.capture.fast import FastServer, lines_of, send_in_batches
from tests.integration.capture.harness import (
    MAX_BODY,
    ONE,
    PATH,
    SEVERAL,
    Capture,
    Client,
    Headers,
    Peer,
    directive,
    running_capture,
    running_scene,
    until,
)

pytestmark = pytest.mark.path

Lines = list[tuple[bytes, bytes]]


def key_of(sampling: Sampling, lines: Lines) -> bytes:
    """The key by the rule in words, on header lines as a client writes them; empty: none."""
    for name in sampling.key_headers:
        values = [value.strip(b" \t") for header, value in lines if header == name.encode()]
        if name == "authorization":  # Envoy itself makes one line of several, for primary and mirror alike
            values = [value for value in values if value]
        if key := b",".join(values):
            return key
    return b""


def chosen(sampling: Sampling, lines: Lines) -> bool:
    """Whether a request is copied."""
    key = key_of(sampling, lines)
    if not key and sampling.needs_body:
        return True
    if not key and sampling.on_missing_key == "Random":
        key = b",".join(value for header, value in lines if header == b"x-request-id")
    threshold = min(sampling.threshold, *sampling.class_thresholds.values(), MODULO)
    return bool(key) and xxhash.xxh64_intdigest(key, sampling.seed) % MODULO >= threshold


def random_values(pick: random.Random) -> list[bytes]:
    """The lines of one header: none, one or several, of any kind of value."""
    letters = "abcXYZ0189-_.:/=; \té漢😀"

    def text(longest: int) -> bytes:
        return "".join(pick.choices(letters, k=pick.randint(1, longest))).encode()

    def anything() -> bytes:
        return bytes(pick.choices([9, *range(32, 127), *range(128, 256)], k=pick.randint(1, 30)))

    kinds: tuple[Callable[[], list[bytes]], ...] = (
        lambda: [str(uuid.UUID(int=pick.getrandbits(128), version=4)).encode()],
        lambda: [text(40)],
        lambda: [anything()],
        lambda: [b"  " + text(8) + b"  " + text(8) + b" \t"],
        lambda: [b""],
        list,
        lambda: [text(6), text(6)],
        lambda: [b"", text(6)],
        lambda: [text(3), b"", b" "],
        lambda: [b"Bearer sk-%d" % pick.getrandbits(60)],
        lambda: [b"user-%d" % pick.randint(0, 50)],
    )
    # One in a hundred is as long as a header may sensibly be.
    return [pick.randbytes(2048).hex().encode()] if pick.random() < 0.01 else pick.choice(kinds)()


SEED = 2**63 + 7
SAMPLINGS = {
    "conversation header": Sampling(
        unit="Conversation", threshold=MODULO * 7 // 10, seed=SEED, key_headers=("x-conversation-id",)
    ),
    "skip without a key": Sampling(
        unit="Key", threshold=MODULO * 9 // 10, seed=1, key_headers=("x-tenant",), on_missing_key="Skip"
    ),
    "request": Sampling(unit="Request", threshold=MODULO * 95 // 100, seed=0),
    "credential": Sampling(
        unit="Key", threshold=MODULO * 9 // 10, seed=2**64 - 1, key_headers=CREDENTIAL_HEADERS, on_missing_key="Skip"
    ),
    "header, else field of the body": Sampling(
        unit="Key", threshold=MODULO * 95 // 100, seed=SEED, key_headers=("x-tenant",), key_field="user"
    ),
    "lineage": Sampling(
        unit="Conversation",
        threshold=MODULO * 95 // 100,
        seed=3,
        key_headers=("x-conversation-id",),
        on_missing_key="Lineage",
    ),
    "rates of classes": Sampling(
        unit="Conversation",
        threshold=MODULO * 99 // 100,
        seed=4,
        key_headers=("x-conversation-id",),
        class_thresholds={"long": MODULO * 8 // 10, "short": MODULO},
    ),
}
KEYS = 100_000


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


@pytest.mark.parametrize("kind", SAMPLINGS)
async def test_envoy_selects_the_same_hundred_thousand_keys_as_the_rule_in_python(kind: str, tmp_path: Path) -> None:
    """A seventh of the keys for each kind of rule."""
    sampling, pick = SAMPLINGS[kind], random.Random(kind)
    count = -(-KEYS // len(SAMPLINGS))
    requests: list[bytes] = []
    expected: set[bytes] = set()
    for number in range(count):
        lines: Lines = [(b"x-n", b"%d" % number), (b"x-request-id", b"%032x" % pick.getrandbits(128))]
        for name in sampling.key_headers:
            # Of the many headers of the credential, most requests have only some.
            if name != "x-request-id" and (len(sampling.key_headers) == 1 or pick.random() < 0.3):
                lines += [(name.encode(), value) for value in random_values(pick)]
        if chosen(sampling, lines):
            expected.add(lines[0][1])
        head = b"".join(b"%s: %s\r\n" % line for line in lines)
        requests.append(b"POST %s HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n%s\r\n{}" % (PATH.encode(), head))
    assert 0.03 < len(expected) / count < 0.5
    told = msgspec.structs.replace(
        directive(), rules=CaptureRules(paths=(PATH,), max_body_bytes=MAX_BODY, sampling=sampling)
    )
    async with (
        running_capture(tmp_path) as capture,
        FastServer(capture.primary_port) as to_primary,
        FastServer(capture.mirror_port, keeps=True) as to_mirror,
    ):
        await capture.follow(told)
        assert await send_in_batches(capture.customers, requests) == count

        async def arrived() -> bool:
            return to_mirror.count >= len(expected)

        await until(arrived, 10.0)
        await asyncio.sleep(0.2)
        copies = [lines_of(head) for head in to_mirror.heads]
        assert sorted(value for copy in copies for name, value in copy if name == b"x-n") == sorted(expected)
        assert to_primary.count == count
        window = (await capture.evidence()).windows[1]
        assert window.sampled == Amount(requests=len(expected), bytes=2 * len(expected))
        assert window.plain == Amount(requests=count - len(expected), bytes=2 * (count - len(expected)))
        # What the mirror reads on a copy is the key that Envoy went by, and no other credential.
        for copy in copies:
            lowest = msgspec.structs.replace(sampling, threshold=sampling.lowest_threshold, class_thresholds={})
            assert is_selected(lowest, tuple(copy)) or (sampling.needs_body and not key_of(sampling, copy))
            others = {name.encode() for name in CREDENTIAL_HEADERS if name not in sampling.key_headers}
            assert not others & {name for name, _ in copy}


async def test_a_missing_key_is_left_out_when_the_rule_says_skip(tmp_path: Path) -> None:
    async with running_scene(tmp_path) as (capture, _, to_mirror):
        await capture.follow(directive(on_missing_key="Skip"))
        await send_all(capture, [[], [("x-conversation-id", "")], [("x-conversation-id", "c")]], connections=1)
        await settled(to_mirror, 1)
        assert [copy.header("x-conversation-id") for copy in to_mirror.received] == ["c"]
        assert (await capture.evidence()).windows[1].plain.requests == 2


@pytest.mark.parametrize("hosts", [ONE, SEVERAL])
async def test_copies_are_complete_and_marked_and_the_primary_sees_no_difference(
    hosts: tuple[str, ...], tmp_path: Path
) -> None:
    sent: Headers = [
        ("x-conversation-id", "c-1"),
        ("x-request-id", "r-1"),
        ("Authorization", "Bearer secret"),
        ("Cookie", "a=b"),
        ("X-Api-Key", "secret"),
        ("Baggage", "team=a"),
        ("x-shadowrun-window", "99"),
    ]
    async with running_scene(tmp_path, mirror_hosts=hosts) as (capture, to_primary, to_mirror):
        client = Client(capture.customers)
        body = bytes(range(256)) * (MAX_BODY >> 8)
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
        assert copy.header("x-envoy-upstream-rq-timeout-ms") is None  # an order to Envoy itself, and carried out
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
        await client.request([("baggage", "shadower=true,notshadow=true")], path=PATH + "?api-version=1")
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
