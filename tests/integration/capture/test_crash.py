"""What an Envoy that dies leaves behind: its own words where they can be read, and nothing of any request."""

import asyncio
import ctypes
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from shadowrun_operator.manifests.capture import envoy_command

from tests.integration.capture.fast import FastServer, send_in_batches
from tests.integration.capture.harness import (
    ENVOY,
    PATH,
    Capture,
    Client,
    capture_on_free_ports,
    directive,
    request_bytes,
    running_capture,
    until,
)
from tests.ports import free_ports

pytestmark = pytest.mark.path

CANARY = b"canary-5fa1"
SAID = CANARY.decode()
BODY = CANARY * 100
ANSWER = b"HTTP/1.1 200 OK\r\nx-said: %b\r\ncontent-length: 13\r\n\r\nok%b" % (CANARY, CANARY)
_TGKILL = 234
DISCARDED = "2>/dev/null"


def request(*headers: tuple[str, str]) -> bytes:
    marked = [("authorization", SAID), (SAID, "1"), ("x-request-id", "r1"), *headers]
    return request_bytes(marked, BODY, path=f"{PATH}?{SAID}")


def break_worker(pid: int) -> None:
    """SIGSEGV to the thread that has the requests, as if it had met a null pointer."""
    (worker,) = (task for task in Path(f"/proc/{pid}/task").iterdir() if (task / "comm").read_text().startswith("wrk:"))
    ctypes.CDLL(None).syscall(_TGKILL, pid, int(worker.name), signal.SIGSEGV)


@asynccontextmanager
async def stuck(folder: Path) -> AsyncIterator[Capture]:
    """An Envoy whose worker is in the middle of a request full of canaries: the script for such baggage never ends."""
    async with running_capture(folder) as capture, FastServer(capture.primary_port, body=len(BODY), answer=ANSWER):
        await capture.follow(directive())
        await capture.stop()
        bootstrap = folder / "bootstrap.yaml"
        endless = "function envoy_on_request(handle) while true do end end"
        text, replaced = re.subn(
            'inline_string: ".*envoy_on_request.*"', f'inline_string: "{endless}"', bootstrap.read_text()
        )
        assert replaced == 1
        bootstrap.write_text(text)
        await capture.exec()
        await until(capture.is_ready, 20.0)
        assert await send_in_batches(capture.customers, [request()] * 20) == 20
        client = Client(capture.customers)
        await client.send(request(("baggage", "shadow=true")))
        await asyncio.sleep(0.2)
        try:
            yield capture
        finally:
            client.close()


async def dies(capture: Capture) -> bool:
    assert capture.process is not None
    break_worker(capture.process.pid)
    return await asyncio.wait_for(capture.process.wait(), 10.0) == -signal.SIGSEGV


def found_in(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert folder / "envoy.log" in files
    return [path for path in files if CANARY in path.read_bytes()]


async def test_an_envoy_that_crashes_in_a_request_leaves_nothing_of_it_anywhere(tmp_path: Path) -> None:
    async with stuck(tmp_path) as capture:
        assert await dies(capture)
    assert found_in(tmp_path) == []


async def test_what_its_container_throws_away_has_the_request_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keeping(bootstrap: str, concurrency: int, envoy: str) -> str:
        command = envoy_command(bootstrap, concurrency, envoy)
        assert command.endswith(DISCARDED)
        return command.removesuffix(DISCARDED)

    monkeypatch.setattr("tests.integration.capture.harness.envoy_command", keeping)
    async with stuck(tmp_path) as capture:
        assert await dies(capture)
    assert found_in(tmp_path) == [tmp_path / "envoy.log"]


async def test_what_is_wrong_with_its_configuration_can_be_read_in_the_containers_log(tmp_path: Path) -> None:
    capture = capture_on_free_ports(tmp_path)
    for bootstrap, said in (
        ("admin: [", "error at line 1"),
        ("static_resources: {listenerz: []}", "listenerz"),
        ("static_resources: {clusters: [{name: a, connect_timeout: -1s}]}", "error"),
    ):
        (tmp_path / "bootstrap.yaml").write_text(bootstrap)
        (tmp_path / "envoy.log").unlink(missing_ok=True)
        await capture.exec()
        assert capture.process is not None
        assert await asyncio.wait_for(capture.process.wait(), 10.0) == 1
        assert "initializing config" in capture.log
        assert said in capture.log


async def test_its_log_reaches_a_pipe_and_no_log_at_all_keeps_it_from_nothing(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("static_resources: {listenerz: []}")
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", envoy_command(str(bad), 1, str(ENVOY)), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), 10.0)
    assert b"listenerz" in out

    (port,) = free_ports(1)
    good = tmp_path / "good.yaml"
    good.write_text(f"admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}")
    command = "exec >&-; " + envoy_command(str(good), 1, str(ENVOY))
    process = await asyncio.create_subprocess_exec("sh", "-c", command)
    try:
        for _ in range(200):
            with suppress(OSError):
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                break
            await asyncio.sleep(0.05)
        else:
            pytest.fail("Envoy did not start")
    finally:
        process.kill()
        await process.wait()


async def test_a_mirror_whose_name_has_no_address_costs_copies_and_nothing_else(tmp_path: Path) -> None:
    async with running_capture(tmp_path, mirror_hosts=("nowhere.invalid",)) as capture:
        async with FastServer(capture.primary_port, body=len(BODY)):
            await capture.follow(directive())
            assert await send_in_batches(capture.customers, [request()] * 50) == 50
            await asyncio.sleep(0.5)
            assert await send_in_batches(capture.customers, [request()] * 50) == 50
        assert capture.process is not None
        assert capture.process.returncode is None
        assert (await capture.evidence()).overflow == 100
