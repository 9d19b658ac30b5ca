"""What became of the original of each copy is written down, without content, and told to the mirrors; nobody waits."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from shadowrun_mirror.capture.outcome_file import OutcomeFile
from shadowrun_mirror.capture.outcome_log import MAX_ID, log_record
from shadowrun_mirror.capture.telling import Telling
from yarl import URL

from tests.integration.capture.companions import companioned
from tests.integration.capture.fast import FastServer, send_in_batches
from tests.integration.capture.faults import MIRRORS
from tests.integration.capture.harness import (
    PATH,
    TOKEN,
    Capture,
    Client,
    Message,
    Peer,
    answer,
    capture_on_free_ports,
    directive,
    read_body,
    running_capture,
    running_scene,
    until,
)
from tests.ports import free_ports

pytestmark = pytest.mark.path


def written(capture: Capture, first: int = 0) -> list[dict[str, Any]]:
    """The records that are in the log, from line `first` on."""
    return [json.loads(line) for line in capture.outcome_log.read_bytes().lstrip(b"\0").splitlines()[first:]]


def taken_by(log: Path) -> int:
    """Bytes that the log takes, which are fewer than its size: what was read is a hole."""
    return log.stat().st_blocks * 512


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
    async with running_scene(tmp_path) as (capture, to_primary, _):
        to_primary.behaviour = to_primary.keeping(behaves)
        secret = [("authorization", "Bearer canary"), ("x-conversation-id", "canary")]
        client = Client(capture.customers)
        await client.request([("x-how", "late")])  # before anything is copied
        await capture.follow(directive(max_body_bytes=100))
        for number, how in enumerate(("late", "refuses", "fails", "silent")):
            await client.request([("x-how", how), ("x-request-id", f"r{number}"), *secret])
        await client.request([("x-how", "late")], b"x" * 101)  # too large to be copied
        await client.request([("x-how", "late")], path="/other")
        await client.request([("x-how", "late"), ("x-request-id", "r5" + "é" * 2000), *secret])
        left = Client(capture.customers)
        head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nx-how: stream\r\nx-request-id: r4\r\nContent-Length: 2\r\n\r\n{{}}"
        await left.send(head.encode())
        reader, _ = await left.streams()
        await reader.readuntil(b"begins")
        left.close()

        async def all_written() -> bool:
            return len(written(capture)) >= 6

        await until(all_written, 5.0)
        await asyncio.sleep(0.8)
        records = {record["id"][:2]: record for record in written(capture)}
        assert sorted(records) == ["r0", "r1", "r2", "r3", "r4", "r5"]
        assert all(set(record) == set(log_record("run-1")) for record in records.values())
        assert {record["run"] for record in records.values()} == {"run-1"}
        assert [records[f"r{n}"]["status"] for n in range(5)] == [200, 429, 500, 503, 200]
        assert records["r0"]["flags"] == "-"
        assert 200_000 <= records["r0"]["first_byte_us"] < 1_000_000
        assert records["r3"]["first_byte_us"] is None
        assert "UC" in records["r3"]["flags"].split(",")
        assert records["r4"]["flags"] == "DC"
        assert len(records["r5"]["id"]) <= MAX_ID
        assert b"canary" not in capture.outcome_log.read_bytes()
        client.close()


async def heap_bytes(capture: Capture) -> int:
    return int(json.loads(await capture.admin("/memory"))["allocated"])


async def stat(capture: Capture, name: str) -> int:
    stats = json.loads(await capture.admin(f"/stats?format=json&filter=^{name}$"))["stats"]
    return int(stats[0]["value"])


@contextlib.contextmanager
def device_without_room(_: Path) -> Iterator[Path]:
    yield Path("/dev/full")


@contextlib.contextmanager
def small_volume(folder: Path) -> Iterator[Path]:
    """What a volume in memory of bounded size is to a pod; only root can make one here."""
    mount = shutil.which("mount")
    volume = folder / "volume"
    volume.mkdir()
    options = ["-t", "tmpfs", "-o", "size=64k", "tmpfs", str(volume)]
    if mount is None or os.geteuid() != 0 or subprocess.run([mount, *options], check=False).returncode != 0:
        pytest.skip("no volume can be mounted here")
    try:
        yield volume / "outcomes.jsonl"
    finally:
        subprocess.run(["umount", str(volume)], check=True)


@pytest.mark.parametrize("room", [device_without_room, small_volume])
async def test_customers_do_not_wait_for_a_log_without_room_and_memory_stays_bounded(room: Any, tmp_path: Path) -> None:
    request_id = "r" * MAX_ID  # long, so that little traffic makes much log
    raw = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nx-request-id: {request_id}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    async with AsyncExitStack() as stack:
        log = stack.enter_context(room(tmp_path))
        capture = capture_on_free_ports(tmp_path)
        capture.outcome_log = log
        stack.push_async_callback(capture.stop)
        await capture.start()
        for port in (capture.primary_port, capture.mirror_port):
            await stack.enter_async_context(FastServer(port))
        await capture.follow(directive())
        assert await send_in_batches(capture.customers, [raw] * 1000) == 1000  # what an Envoy takes once, and the room
        before, slowest = await heap_bytes(capture), 0.0
        for _ in range(40):
            sent = time.monotonic()
            assert await send_in_batches(capture.customers, [raw] * 400, connections=2, batch=1) == 400
            slowest = max(slowest, (time.monotonic() - sent) / 200)
        assert slowest < 0.05
        assert await stat(capture, "filesystem.write_failed") > 0
        assert await heap_bytes(capture) - before < 2 << 20  # of about 6 MB
        if log.name != "full":
            assert taken_by(log) <= 64 << 10
            told = b"\n".join(OutcomeFile(log).take()).split(b"\n")
            assert len(told) > 100
            await asyncio.sleep(1.0)  # there is room again, and what follows is whole
            OutcomeFile(log).take()
            assert await send_in_batches(capture.customers, [raw] * 21) == 21

            async def whole() -> bool:
                return len(written(capture, first=1)) == 20  # that one may follow on a torn record's line

            await until(whole, 5.0)


class Told:
    """A mirror's control port as far as outcomes go; keeps the records, and those that were torn apart."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.records: list[dict[str, Any]] = []
        self.torn: list[bytes] = []
        self.bodies: list[bytes] = []
        self.peer = Peer(port, self.behave, host=host)

    async def behave(self, head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await read_body(reader, head)
        assert head.start.startswith("POST /outcomes ")
        assert head.header("authorization") == f"Bearer {TOKEN}"
        self.bodies.append(head.body)
        for line in head.body.splitlines():
            try:
                self.records.append(json.loads(line))
            except ValueError:
                self.torn.append(line)
        await answer(writer, "204 No Content", [])
        return True

    def ids(self) -> list[str]:
        return [record["id"] for record in self.records]


def requests(first: int, count: int) -> list[bytes]:
    head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nx-request-id: %d\r\nContent-Length: 2\r\n\r\n{{}}"
    return [(head % number).encode() for number in range(first, first + count)]


async def test_every_record_is_told_once_while_the_log_is_emptied_under_load(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    mirror = Told(port)
    async with (
        running_capture(tmp_path) as capture,
        FastServer(capture.primary_port),
        FastServer(capture.mirror_port),
        aiohttp.ClientSession() as http,
    ):
        await mirror.peer.start()
        await capture.follow(directive())
        said: list[str] = []

        def telling() -> Telling:
            return Telling(OutcomeFile(capture.outcome_log), URL(f"http://127.0.0.1:{port}"), TOKEN, http, said.append)

        done = asyncio.Event()

        async def tells() -> None:
            while not done.is_set():
                await telling().turn()  # anew each time, as after a restart
                await asyncio.sleep(0.001)  # far more often than it does

        telling_on = asyncio.create_task(tells())
        for first in range(0, 20_000, 1000):
            assert await send_in_batches(capture.customers, requests(first, 1000)) == 1000

        async def all_told() -> bool:
            return len(mirror.records) >= 20_000

        await until(all_told, 10.0)
        done.set()
        await telling_on
        await mirror.peer.stop()
        assert taken_by(capture.outcome_log) <= os.sysconf("SC_PAGESIZE")
    assert said == []
    assert mirror.torn == []
    assert sorted(map(int, mirror.ids())) == list(range(20_000))


@asynccontextmanager
async def telling_to(folder: Path, url: str, said: list[str]) -> AsyncIterator[tuple[Path, Telling]]:
    async with aiohttp.ClientSession() as http:
        log = folder / "outcomes.jsonl"
        yield log, Telling(OutcomeFile(log), URL(url), TOKEN, http, said.append)


async def test_every_mirror_behind_the_name_is_told_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    asked: list[str] = []

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        asked.append(host)
        return [(None, None, None, "", (each, port)) for each in hosts]

    said: list[str] = []
    async with telling_to(tmp_path, f"http://x-mirror-pods.ns.svc:{port}", said) as (log, telling):
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        mirrors = [Told(port, host) for host in hosts]
        for mirror in mirrors[:2]:
            await mirror.peer.start()
        log.write_bytes(b'{"id": "1"}\n{"id": "2"}\n{"id":')
        await telling.turn()
        with log.open("ab") as file:
            file.write(b' "3"}\n')
        await telling.turn()
        assert [mirror.ids() for mirror in mirrors] == [["1", "2", "3"]] * 2 + [[]]
        assert said == ["outcomes that a mirror was not told: 2"]  # the third comes with the next minute
        assert asked == ["x-mirror-pods.ns.svc"] * 2  # again, since one of them was not there
        for mirror in mirrors[:2]:
            await mirror.peer.stop()


async def test_a_name_without_an_address_costs_the_records(tmp_path: Path) -> None:
    said: list[str] = []
    async with telling_to(tmp_path, "http://nowhere.invalid:9090", said) as (log, telling):
        log.write_bytes(b"1\n2\n")
        await telling.turn()
        assert taken_by(log) <= os.sysconf("SC_PAGESIZE")
        await telling.turn()
    assert said == ["outcomes that a mirror was not told: 2"]


async def test_a_log_that_cannot_be_emptied_is_said_once_and_by_its_kind(tmp_path: Path) -> None:
    said: list[str] = []
    async with telling_to(tmp_path, "http://127.0.0.1:1", said) as (log, telling):
        log.mkdir()
        await telling.turn()
        await telling.turn()
        log.rmdir()
        await telling.turn()
    assert said == ["the outcome log cannot be emptied: IsADirectoryError", "the outcome log can be emptied"]


@pytest.mark.parametrize("fault", MIRRORS)
async def test_whatever_a_mirror_does_with_outcomes_a_turn_ends_and_keeps_nothing(fault: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    said: list[str] = []
    async with (
        MIRRORS[fault](port),
        telling_to(tmp_path, f"http://127.0.0.1:{port}", said) as (log, telling),
    ):
        log.write_bytes(b'{"canary": 1}\n' * 200_000)  # 2.8 MB
        started = time.monotonic()
        await telling.turn()
        assert time.monotonic() - started < 4.0
        assert taken_by(log) <= os.sysconf("SC_PAGESIZE")
    assert len(said) == 1
    assert "canary" not in said[0]
    assert 0 < int(said[0].removeprefix("outcomes that a mirror was not told: ")) <= 200_000


async def test_the_companion_tells_what_envoy_wrote(tmp_path: Path) -> None:
    async with companioned(tmp_path) as (capture, control, _):
        client = Client(capture.customers)
        for number in range(5):
            await client.request([("x-request-id", f"r{number}")])

        async def told() -> bool:
            return len(control.outcomes) >= 5

        await until(told, 5.0)
        client.close()
        assert sorted(json.loads(line)["id"] for line in control.outcomes) == ["r0", "r1", "r2", "r3", "r4"]
        assert written(capture) == []
