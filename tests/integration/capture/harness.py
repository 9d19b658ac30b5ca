"""A real Envoy between a raw HTTP client, a scripted primary and a scripted mirror, all on free loopback ports."""

import asyncio
import contextlib
import json
import os
import shlex
import sys
import time
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from shadowrun_mirror.capture.routefile import write_first_routes, write_routes
from shadowrun_mirror.capture.routes import routes
from shadowrun_mirror.capture.stats import STATS_QUERY, capture_evidence, envoy_epoch, version_text
from shadowrun_mirror.config import CaptureRules, MissingKey, Pauses, Sampling, encode
from shadowrun_mirror.directive import CaptureDirective
from shadowrun_mirror.evidence import CaptureEvidence, Source
from shadowrun_operator.manifests.bootstrap import CapturePorts, ShadowBaggage, capture_bootstrap
from shadowrun_operator.manifests.capture import envoy_command

from tests.ports import free_ports

_wheel = find_spec("envoy")
assert _wheel is not None
assert _wheel.submodule_search_locations is not None
ENVOY = Path(_wheel.submodule_search_locations[0]) / "_bin" / "envoy"
PATH = "/v1/chat/completions"
MAX_BODY = 1 << 20
"""Bodies that are copied."""
ONE, SEVERAL = ("127.0.0.1",), ("127.0.0.1", "localhost")
"""Names of mirrors. Those of several are of one, but its copies pass a listener inside Envoy first."""
TOKEN = "letmein"
Headers = list[tuple[str, str]]


@dataclass
class Message:
    """One request or response as it was on the wire; `chunked` bodies are joined."""

    start: str
    headers: Headers
    body: bytes = b""

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key.lower() == name]
        return ",".join(found) if found else None

    @property
    def status(self) -> int:
        return int(self.start.split(" ")[1])


async def read_head(reader: asyncio.StreamReader) -> Message | None:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    start, *lines = raw.decode("latin-1")[:-4].split("\r\n")
    return Message(start, [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)])


async def read_body(reader: asyncio.StreamReader, message: Message, *, until_closed: bool = False) -> None:
    if (message.header("transfer-encoding") or "").lower() == "chunked":
        while size := int((await reader.readline()).split(b";")[0], 16):
            message.body += await reader.readexactly(size)
            await reader.readexactly(2)
        while (await reader.readline()) not in (b"\r\n", b""):
            pass
    elif (length := message.header("content-length")) is not None:
        message.body = await reader.readexactly(int(length))
    elif until_closed:
        message.body = await reader.read()


Behaviour = Callable[[Message, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]
"""Answers one request whose head has been read; returns whether the connection goes on."""


async def answer(writer: asyncio.StreamWriter, status: str, headers: Headers, body: bytes = b"") -> None:
    head = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
    if not any(name.lower() in ("content-length", "transfer-encoding") for name, _ in headers):
        head.append(f"Content-Length: {len(body)}")
    writer.write("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)
    await writer.drain()


@dataclass
class Peer:
    """A scripted HTTP/1.1 server that keeps what it received."""

    port: int
    behaviour: Behaviour
    received: list[Message] = field(default_factory=list)
    host: str = "127.0.0.1"
    _server: asyncio.Server | None = None
    _serving: set["asyncio.Task[None]"] = field(default_factory=set)

    async def start(self) -> "Peer":
        self._server = await asyncio.start_server(self._serve, self.host, self.port, limit=1 << 20)
        return self

    async def stop(self) -> None:
        if self._server:
            self._server.close()
            serving = list(self._serving)
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while head := await read_head(reader):
                if not await self.behaviour(head, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return  # the other side, or the end of the test, cut the connection
        finally:
            self._serving.discard(task)
            if self._server and self._server.is_serving():
                writer.close()
            else:
                writer.transport.abort()

    def keeping(self, behaviour: Behaviour) -> Behaviour:
        """Read the whole body, keep the request, then behave."""

        async def kept(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
            await read_body(reader, head)
            self.received.append(head)
            return await behaviour(head, reader, writer)

        return kept


async def accepts(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    await answer(writer, "202 Accepted", [])
    return True


async def ok(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    await answer(writer, "200 OK", [("Content-Type", "application/json"), ("Date", "now")], b'{"ok":true}')
    return True


def primary(port: int) -> Peer:
    peer = Peer(port, ok)
    peer.behaviour = peer.keeping(ok)
    return peer


def mirror(port: int) -> Peer:
    peer = Peer(port, accepts)
    peer.behaviour = peer.keeping(accepts)
    return peer


class Client:
    """One keep-alive connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.connections = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
            self.connections += 1
        return self._streams

    async def send(self, raw: bytes) -> None:
        _, writer = await self.streams()
        writer.write(raw)
        await writer.drain()

    async def receive(self) -> Message:
        reader, _ = await self.streams()
        head = await read_head(reader)
        assert head is not None, "the connection was closed instead of an answer"
        if head.status not in (101, 204, 304):
            await read_body(reader, head, until_closed=True)
        return head

    async def request(
        self,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"{}",
        *,
        method: str = "POST",
        path: str = PATH,
    ) -> Message:
        await self.send(request_bytes(headers, body, method=method, path=path))
        return await self.receive()

    def close(self) -> None:
        if self._streams:
            self._streams[1].transport.abort()
            self._streams = None


def request_bytes(headers: Sequence[tuple[str, str]], body: bytes, *, method: str = "POST", path: str = PATH) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1".encode(),
        b"Host: chat.test",
        *(f"{k}: {v}".encode("utf-8", "surrogateescape") for k, v in headers),
    ]
    if not any(name.lower() == "transfer-encoding" for name, _ in headers) and (body or method == "POST"):
        lines.append(f"Content-Length: {len(body)}".encode())
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def directive(
    *,
    version: int = 1,
    window: int = 1,
    copying: bool = True,
    threshold: int = 0,
    expiry_in: float = 3600.0,
    lease_s: float = 10.0,
    max_body_bytes: int = MAX_BODY,
    key_header: str = "x-conversation-id",
    on_missing_key: MissingKey = "Random",
    seed: int = 2**63 + 7,
    pauses: Pauses | None = None,
) -> CaptureDirective:
    sampling = Sampling(
        unit="Conversation", threshold=threshold, seed=seed, key_headers=(key_header,), on_missing_key=on_missing_key
    )
    return CaptureDirective(
        version=version,
        run_uid="run-1",
        window=window,
        copying=copying,
        expiry=time.time() + expiry_in,
        lease_s=lease_s,
        rules=CaptureRules(paths=(PATH,), max_body_bytes=max_body_bytes, sampling=sampling, pauses=pauses),
    )


@dataclass
class Capture:
    """A running Envoy and the ports around it."""

    folder: Path
    customers: int
    primary_port: int
    mirror_port: int
    ports: CapturePorts
    primary_host: str = "127.0.0.1"
    mirror_hosts: tuple[str, ...] = ONE
    key_headers: tuple[str, ...] = ("x-conversation-id",)
    shadow_baggage: ShadowBaggage = "Strip"
    guarded: bool = True
    process: asyncio.subprocess.Process | None = None
    epoch: str = ""
    outcome_log: Path = Path()

    def __post_init__(self) -> None:
        self.outcome_log = self.folder / "outcomes.jsonl"

    @property
    def routes(self) -> Path:
        return self.folder / "routes"

    @property
    def log(self) -> str:
        """All that is in the log of Envoy's container."""
        return (self.folder / "envoy.log").read_text()

    async def start(self, max_body_bytes: int = MAX_BODY) -> None:
        await self.launch(max_body_bytes)
        await until(self.is_ready, 20.0)
        self.epoch = envoy_epoch(await self.admin("/server_info"))

    async def launch(self, max_body_bytes: int = MAX_BODY) -> None:
        bootstrap = capture_bootstrap(
            listen_port=self.customers,
            primary_host=self.primary_host,
            primary_port=self.primary_port,
            mirror_hosts=self.mirror_hosts,
            mirror_port=self.mirror_port,
            mirrors=len(self.mirror_hosts),
            key_headers=self.key_headers,
            run_uid="run-1",
            outcome_log=str(self.outcome_log),
            shadow_baggage=self.shadow_baggage,
            guarded=self.guarded,
            max_body_bytes=max_body_bytes,
            ports=self.ports,
            routes_folder=str(self.routes),
            listen_address="127.0.0.1",
        )
        (self.folder / "bootstrap.yaml").write_text(bootstrap)
        if not self.routes.exists():
            self.routes.mkdir()
            write_first_routes(self.routes)
        await self.exec()

    async def exec(self) -> None:
        """Start Envoy with the bootstrap that is there, as its container does."""
        command = envoy_command(shlex.quote(str(self.folder / "bootstrap.yaml")), 1, shlex.quote(str(ENVOY)))
        with (self.folder / "envoy.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec("sh", "-c", command, stdout=log, stderr=log)

    async def stop(self) -> None:
        if self.process and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.returncode is None, self.log
        with contextlib.suppress(OSError, AssertionError):
            return (await self._get(self.ports.readiness, "/ready")).status == 200
        return False

    async def _get(self, port: int, path: str, method: str = "GET") -> Message:
        client = Client(port)
        try:
            return await client.request([("Connection", "close")], b"", method=method, path=path)
        finally:
            client.close()

    async def admin(self, path: str, method: str = "GET") -> bytes:
        return (await self._get(self.ports.admin, path, method)).body

    async def is_quiet(self) -> bool:
        """Whether no copy is on its way."""
        active = await self.admin("/stats?filter=cluster.(copies|mirror).*upstream_rq_active$")
        return all(line.endswith(b" 0") for line in active.strip().splitlines())

    async def evidence(self) -> CaptureEvidence:
        raw = await self.admin("/stats?" + urllib.parse.urlencode(STATS_QUERY))
        epoch = envoy_epoch(await self.admin("/server_info"))
        source = Source(pod="p", pod_uid="u", epoch=epoch, sequence=1, time=time.time())
        return capture_evidence(raw, run_uid="run-1", source=source)

    async def follow(self, told: CaptureDirective, *, copying: bool = True, paused: bool = False) -> None:
        """Write the routes as the companion would, and wait until Envoy follows them."""
        standing = "nolease" if not (copying and told.copying) else "paused" if paused else "copying"
        version = version_text(told.version, told.window, standing)
        write_routes(self.routes, routes(told, copying=copying, paused=paused, version=version))

        async def followed() -> bool:
            stats: Any = json.loads(await self.admin("/stats?format=json&filter=version_text"))
            return any(stat.get("value") == version for stat in stats["stats"])

        await until(followed, 5.0)


def capture_on_free_ports(folder: Path) -> Capture:
    customers, to_primary, to_mirror, admin, readiness, companion = free_ports(6)
    ports = CapturePorts(admin=admin, readiness=readiness, companion=companion)
    return Capture(folder, customers, to_primary, to_mirror, ports)


@contextlib.asynccontextmanager
async def running_capture(
    folder: Path,
    *,
    max_body_bytes: int = MAX_BODY,
    shadow_baggage: ShadowBaggage = "Strip",
    mirror_hosts: tuple[str, ...] = ONE,
) -> AsyncIterator[Capture]:
    capture = capture_on_free_ports(folder)
    capture.shadow_baggage = shadow_baggage
    capture.mirror_hosts = mirror_hosts
    try:
        await capture.start(max_body_bytes)
        yield capture
    finally:
        await capture.stop()


@contextlib.asynccontextmanager
async def running_scene(
    folder: Path, *, max_body_bytes: int = MAX_BODY, mirror_hosts: tuple[str, ...] = ONE
) -> AsyncIterator[tuple[Capture, Peer, Peer]]:
    """Envoy, a primary that answers at once, a mirror that accepts at once."""
    async with running_capture(folder, max_body_bytes=max_body_bytes, mirror_hosts=mirror_hosts) as capture:
        to_primary, to_mirror = primary(capture.primary_port), mirror(capture.mirror_port)
        await to_primary.start()
        await to_mirror.start()
        try:
            yield capture, to_primary, to_mirror
        finally:
            await to_primary.stop()
            await to_mirror.stop()


@dataclass
class Control:
    """The mirror's control port: answers `GET /directive` with whatever the test has put here, keeps the outcomes."""

    port: int
    told: CaptureDirective
    asked: int = 0
    peer: Peer | None = None
    outcomes: list[bytes] = field(default_factory=list)

    async def start(self) -> "Control":
        async def behave(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
            await read_body(reader, head)
            allowed = head.header("authorization") == f"Bearer {TOKEN}"
            if allowed and head.start.startswith("POST /outcomes "):
                self.outcomes += head.body.splitlines()
                await answer(writer, "204 No Content", [])
                return True
            self.asked += 1
            allowed = allowed and head.start.startswith("GET /directive ")
            await answer(writer, "200 OK" if allowed else "401 No", [], encode(self.told) if allowed else b"")
            return True

        self.peer = await Peer(self.port, behave).start()
        return self

    async def stop(self) -> None:
        if self.peer:
            await self.peer.stop()


def boot_files(folder: Path, told: CaptureDirective) -> Path:
    boot = folder / "boot"
    boot.mkdir(exist_ok=True)
    (boot / "directive.json").write_bytes(encode(msgspec.structs.replace(told, copying=False, version=0)))
    (boot / "token").write_text(TOKEN + "\n")
    return boot


async def start_companion(capture: Capture, boot: Path, mirror_url: str) -> asyncio.subprocess.Process:
    arguments = ["run", "--routes", capture.routes, "--boot", boot, "--host", "127.0.0.1"]
    arguments += ["--outcomes", capture.outcome_log]
    arguments += ["--admin", f"http://127.0.0.1:{capture.ports.admin}", "--port", str(capture.ports.companion)]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shadowrun_mirror.capture", *map(str, arguments), env=companion_environment(mirror_url)
    )


def companion_environment(mirror_url: str) -> dict[str, str]:
    return {**os.environ, "MIRROR_URL": mirror_url, "MIRRORS_URL": mirror_url} | {
        "POD_NAME": "capture-1",
        "POD_UID": "uid-1",
        "PYTHONPATH": "mirror",
    }


async def companion_evidence(capture: Capture, token: str = TOKEN) -> CaptureEvidence:
    client = Client(capture.ports.companion)
    try:
        got = await client.request([("Authorization", f"Bearer {token}")], b"", method="GET", path="/evidence")
    finally:
        client.close()
    assert got.status == 200, (got.status, got.body)
    return CaptureEvidence.decode(got.body)


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float) -> float:
    """Wait for a condition; returns the seconds it took."""
    started = time.monotonic()
    while not await condition():
        assert time.monotonic() - started < timeout_s, f"not within {timeout_s} s"
        await asyncio.sleep(0.02)
    return time.monotonic() - started
