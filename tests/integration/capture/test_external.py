"""Other proxies as the source of copies: the examples as they are given, with only their names and ports replaced."""

import asyncio
import json
import os
import random
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import xxhash
from shadowrun_mirror.config import MODULO, Admission, CaptureRules, Sampling
from shadowrun_mirror.evidence import Amount

from tests.cluster import debian
from tests.integration.capture.harness import (
    ENVOY,
    PATH,
    Client,
    Headers,
    Message,
    Peer,
    answer,
    mirror,
    read_body,
    until,
)
from tests.integration.capture.live_scene import total
from tests.integration.mirror.engine import Engine, answers
from tests.integration.mirror.process import MirrorProcess
from tests.integration.mirror.rig import configuration
from tests.ports import free_ports

pytestmark = pytest.mark.path


def chat(text: str, *, stream: bool = False) -> bytes:
    asked = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": text}]}
    return json.dumps(asked).encode()


EXAMPLES = Path("examples/proxies")
NGINX = debian.Package("nginx-light", "nginx")
REQUESTS = 20


@dataclass
class Proxy:
    """One running example."""

    folder: Path
    port: int
    primary: Peer
    mirror: Peer


def configured(example: str, folder: Path, *, port: int, primary_port: int, mirror_port: int) -> Path:
    """The example on free ports of this machine; each replacement must find its place."""
    text = (EXAMPLES / example).read_text()
    replacements = {
        "nginx.conf": {
            "listen 8080;": f"listen 127.0.0.1:{port};",
            "chat.inference.svc:8000": f"127.0.0.1:{primary_port}",
            "prefix-cache-copies.inference.svc:8080": f"127.0.0.1:{mirror_port}",
            "/tmp/shadowrun-": f"{folder}/",
        },
        "envoy.yaml": {
            "{address: 0.0.0.0, port_value: 8080}": f"{{address: 127.0.0.1, port_value: {port}}}",
            "{address: chat.inference.svc, port_value: 8000}": f"{{address: 127.0.0.1, port_value: {primary_port}}}",
            "{address: prefix-cache-copies.inference.svc, port_value: 8080}": (
                f"{{address: 127.0.0.1, port_value: {mirror_port}}}"
            ),
        },
    }
    for name, ours in replacements[example].items():
        assert name in text, name
        text = text.replace(name, ours)
    path = folder / example
    path.write_text(text)
    return path


def command(example: str, path: Path) -> list[str | Path]:
    if example == "envoy.yaml":
        return [ENVOY, "-c", path, "--disable-hot-restart", "--concurrency", "1", "-l", "error"]
    if not NGINX.installed():
        debian.install([NGINX.name])
    user = "user root;" if os.geteuid() == 0 else ""  # else its workers may not enter the test's folder
    return [shutil.which("nginx") or "/usr/sbin/nginx", "-p", path.parent, "-c", path, "-g", f"daemon off; {user}"]


async def greets(head: Message, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Answers with the size of what it got, in one piece or in several."""
    size = b"%d" % len(head.body)
    if len(head.body) % 2:
        await answer(writer, "200 OK", [("Content-Type", "text/plain")], size)
        return True
    await answer(writer, "200 OK", [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
    for piece in (size, b" bytes"):
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    return True


@asynccontextmanager
async def running(example: str, folder: Path) -> AsyncIterator[Proxy]:
    port, primary_port, mirror_port = free_ports(3)
    path = configured(example, folder, port=port, primary_port=primary_port, mirror_port=mirror_port)
    async with AsyncExitStack() as stack:
        to_primary, to_mirror = Peer(primary_port, greets), mirror(mirror_port)
        to_primary.behaviour = to_primary.keeping(greets)
        for peer in (to_primary, to_mirror):
            await peer.start()
            stack.push_async_callback(peer.stop)
        with (folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(*command(example, path), stdout=log, stderr=log)

        async def end() -> None:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()

        stack.push_async_callback(end)

        async def serves() -> bool:
            assert process.returncode is None, (folder / "log").read_text()
            with suppress(OSError):
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                return True
            return False

        await until(serves, 10.0)
        yield Proxy(folder, port, to_primary, to_mirror)


@dataclass
class Request:
    """One request of a customer."""

    headers: Headers
    body: bytes
    wire: bytes
    path: str = PATH


def varied() -> list[Request]:
    """Twenty requests of sizes from nothing to just under a megabyte, every other one of them chunked."""
    pick = random.Random(3)
    made = []
    for number in range(REQUESTS):
        body = pick.randbytes(pick.choice((0, 1, 700, 9_000, 70_000, 300_000, 990_000)))
        headers: Headers = [("x-request-id", f"r{number}"), ("Authorization", "Bearer secret"), ("x-tenant", "a b")]
        wire = body
        if number % 2:
            cuts = sorted({0, len(body), *(pick.randint(0, len(body)) for _ in range(3))})
            pieces = [body[start:end] for start, end in pairwise(cuts)]
            wire = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
            headers.append(("Transfer-Encoding", "chunked"))
        made.append(Request(headers, body, wire, PATH + ("?a=b" if number % 5 == 0 else "")))
    return made


async def customers(proxy: Proxy) -> float:
    """All requests one after the other over one connection; returns the longest time of one, in seconds."""
    client = Client(proxy.port)
    longest = 0.0
    for request in varied():
        started = time.monotonic()
        got = await asyncio.wait_for(client.request(request.headers, request.wire, path=request.path), 20)
        longest = max(longest, time.monotonic() - started)
        size = len(request.body)
        assert (got.status, got.body) == (200, b"%d" % size if size % 2 else b"%d bytes" % size)
    assert client.connections == 1
    client.close()
    return longest


both = pytest.mark.parametrize("example", ["nginx.conf", "envoy.yaml"])


@both
async def test_copies_are_complete_and_have_the_ids_and_none_of_the_credentials(example: str, tmp_path: Path) -> None:
    async with running(example, tmp_path) as proxy:
        await customers(proxy)

        async def arrived() -> bool:
            return len(proxy.mirror.received) >= REQUESTS

        await until(arrived, 5.0)
        await asyncio.sleep(0.3)
        copies = {copy.header("x-request-id"): copy for copy in proxy.mirror.received}
        assert len(proxy.mirror.received) == len(copies) == REQUESTS
        for request, original in zip(varied(), proxy.primary.received, strict=True):
            copy = copies[original.header("x-request-id")]
            assert copy.body == original.body == request.body
            assert copy.start.split(" ")[:2] == original.start.split(" ")[:2] == ["POST", request.path]
            assert (copy.header("authorization"), original.header("authorization")) == (None, "Bearer secret")
            assert copy.header("x-tenant") == "a b"
            assert copy.header("host") == original.header("host") == "chat.test"


@both
async def test_a_request_without_an_id_gets_one_and_what_is_no_request_for_the_mirror_is_not_copied(
    example: str, tmp_path: Path
) -> None:
    async with running(example, tmp_path) as proxy:
        client = Client(proxy.port)
        await client.request([], b"x")
        for baggage in ("shadow=true", "a=b, shadow = true;p", "shadow=true,c=d", "shadow", "c=d\t,\tshadow.run;p"):
            await client.request([("baggage", baggage)])
        await client.request([], b"", method="GET")
        await client.request([], path="/v1/models")
        await client.request([("baggage", "notshadow=true,Shadow=true,shadow x=1")], b"y")
        await asyncio.sleep(0.5)
        assert sorted(copy.body for copy in proxy.mirror.received) == [b"x", b"y"]
        ids = {copy.header("x-request-id") for copy in proxy.mirror.received}
        assert ids == {proxy.primary.received[number].header("x-request-id") for number in (0, -1)}
        assert None not in ids
        client.close()


@both
async def test_the_mirror_selects_by_the_key_from_what_the_proxy_copied(example: str, tmp_path: Path) -> None:
    async with (
        running(example, tmp_path) as proxy,
        Engine(answers()) as baseline,
        Engine(answers()) as candidate,
    ):
        await proxy.mirror.stop()
        boot = tmp_path / "mirror"
        boot.mkdir()
        sampling = Sampling(
            unit="Conversation",
            threshold=MODULO // 2,
            seed=9,
            key_headers=("x-conversation-id",),
            on_missing_key="Skip",
        )
        rules = CaptureRules(paths=(PATH,), max_body_bytes=1 << 20, sampling=sampling)
        admission = Admission(max_in_flight=2 * REQUESTS, timeout_s=5.0)
        real = MirrorProcess(boot, proxy.mirror.port, *free_ports(1))
        await real.start(
            configuration([baseline.port, candidate.port], capture=rules, admission=admission, source="External")
        )
        try:
            chosen = [
                xxhash.xxh64_intdigest(b"c%d" % n, sampling.seed) % MODULO >= MODULO // 2 for n in range(REQUESTS)
            ]
            bodies = [chat("x" * (n * 40_000), stream=bool(n % 2)) for n in range(REQUESTS)]
            client = Client(proxy.port)
            for number, body in enumerate(bodies):
                await client.request([("x-conversation-id", f"c{number}")], body)
            await client.request([], chat("without a key"))
            client.close()

            async def all_arrived() -> bool:
                counted = total(await real.settled())
                return counted.received.requests == REQUESTS + 1

            await until(all_arrived, 10.0)
            counted = total(await real.settled())
            assert 5 < sum(chosen) < REQUESTS - 5
            sizes = [len(body) for body, is_in in zip(bodies, chosen, strict=True) if is_in]
            assert counted.admitted == Amount(requests=len(sizes), bytes=sum(sizes))
            assert counted.excluded["NotSelected"].requests == REQUESTS + 1 - len(sizes)
            assert counted.dropped == {}
            assert counted.arms["candidate"].completed == counted.admitted
        finally:
            await real.kill()


async def down(peer: Peer) -> None:
    await peer.stop()


async def never_reads(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.sleep(60)
    return False


async def reads_slowly(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    for _ in range(600):
        if not await reader.read(20_000):
            break
        await asyncio.sleep(0.1)
    return False


async def never_answers(head: Message, reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> bool:
    await read_body(reader, head)
    await asyncio.sleep(60)
    return False


def behaves(
    behaviour: Callable[[Message, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]],
) -> Callable[[Peer], Awaitable[None]]:
    async def arrange(peer: Peer) -> None:
        peer.behaviour = behaviour

    return arrange


MIRRORS = {
    "down": down,
    "never-reads": behaves(never_reads),
    "reads-slowly": behaves(reads_slowly),
    "never-answers": behaves(never_answers),
}


@both
@pytest.mark.parametrize("fault", MIRRORS)
async def test_no_customer_fails_or_waits_for_a_mirror_that_misbehaves(
    example: str, fault: str, tmp_path: Path
) -> None:
    async with running(example, tmp_path) as proxy:
        alone = await customers(proxy)
        await MIRRORS[fault](proxy.mirror)
        together = await asyncio.gather(*(customers(proxy) for _ in range(4)))
        # A customer who waits for the mirror of nginx without its second server does so for a second each time.
        assert max(together) < alone + 0.7
        assert len(proxy.primary.received) == 5 * REQUESTS
