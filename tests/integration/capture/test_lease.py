"""Copying goes on only while mirrors say so: the companion as a process, beside a real Envoy and a scripted mirror."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from shadowrun_operator.manifests.capture import companion_command

from tests.integration.capture.companions import LEASE_S, companioned, copies, passes
from tests.integration.capture.harness import (
    TOKEN,
    Capture,
    Client,
    Control,
    Message,
    answer,
    boot_files,
    companion_environment,
    companion_evidence,
    directive,
    running_scene,
    until,
)
from tests.ports import free_ports

pytestmark = pytest.mark.path


def only_child(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def limits_of(pid: int) -> dict[str, list[str]]:
    """Soft and hard limit by name, as the kernel has them."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return {line[:25].strip(): line[25:].split()[:2] for line in lines}


async def test_copying_stops_within_the_lease_and_two_seconds_when_the_mirror_dies(tmp_path: Path) -> None:
    async with companioned(tmp_path) as (capture, control, to_mirror):
        client = Client(capture.customers)
        await client.request()
        await control.stop()
        took = await until(lambda: passes(capture), LEASE_S + 2.0)
        assert took > LEASE_S - 1.5  # one late answer is not a dead mirror
        before = len(to_mirror.received)
        assert (await client.request()).status == 200
        await asyncio.sleep(0.3)
        assert len(to_mirror.received) == before
        window = (await companion_evidence(capture)).windows[1]
        assert (window.sampled.requests, window.plain.requests) == (1, 1)  # it still counts what it lets pass
        await control.start()
        await until(lambda: copies(capture), 3.0)
        client.close()


async def test_a_mirror_that_hangs_loses_the_lease_like_a_dead_one(tmp_path: Path) -> None:
    async with companioned(tmp_path) as (capture, control, _):

        async def hang(_: Message, __: asyncio.StreamReader, ___: asyncio.StreamWriter) -> bool:
            await asyncio.sleep(60)
            return False

        assert control.peer
        control.peer.behaviour = hang
        await until(lambda: passes(capture), LEASE_S + 2.0)


async def test_copying_ends_at_the_expiry_although_the_mirror_goes_on(tmp_path: Path) -> None:
    expiry_in = 4.0
    control = Control(free_ports(1)[0], directive(expiry_in=expiry_in, lease_s=60.0))
    started = time.monotonic()
    async with companioned(tmp_path, control) as (capture, _, __):
        await until(lambda: passes(capture), expiry_in + 2.0)
        assert time.monotonic() - started >= expiry_in - 0.1
        client = Client(capture.customers)
        assert (await client.request()).status == 200
        assert (await capture.evidence()).windows == {}  # a run that is over observes nothing
        client.close()


async def test_a_new_window_and_never_an_older_version(tmp_path: Path) -> None:
    async with companioned(tmp_path) as (capture, control, to_mirror):
        control.told = msgspec.structs.replace(control.told, version=5, window=2)

        async def at_five() -> bool:
            return (await companion_evidence(capture)).directive_version == 5

        await until(at_five, 3.0)
        client = Client(capture.customers)
        await client.request()
        control.told = msgspec.structs.replace(control.told, version=4, window=1)
        asked = control.asked

        async def asked_again() -> bool:
            return control.asked >= asked + 2

        await until(asked_again, 4.0)
        assert await at_five()
        await until(lambda: passes(capture), LEASE_S + 2.0)  # a mirror that is behind does not renew the lease
        assert await at_five()
        assert [copy.header("x-shadowrun-window") for copy in to_mirror.received] == ["2"]
        control.told = msgspec.structs.replace(control.told, version=6, copying=False)

        async def told_to_stop() -> bool:
            evidence = await companion_evidence(capture)
            return evidence.directive_version == 6 and not evidence.copying

        await until(told_to_stop, 3.0)
        client.close()


@asynccontextmanager
async def supervised(folder: Path) -> AsyncIterator[tuple[Capture, Control, asyncio.subprocess.Process]]:
    """The companion as its container runs it: in the shell that is the container's first process."""
    control = Control(free_ports(1)[0], directive(version=1, lease_s=60.0))
    async with running_scene(folder) as (capture, _, __):
        await control.start()
        boot = boot_files(folder, control.told)
        command = companion_command(
            str(capture.routes), str(boot), str(capture.outcome_log), capture.ports, sys.executable
        )
        environment = companion_environment(f"http://127.0.0.1:{control.port}")
        shell = await asyncio.create_subprocess_exec("sh", "-c", command, env=environment, start_new_session=True)
        try:
            await until(lambda: copies(capture), 10.0)
            yield capture, control, shell
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            await shell.wait()
            await control.stop()


async def test_a_companion_that_dies_leaves_pass_through_and_its_container_running(tmp_path: Path) -> None:
    async with supervised(tmp_path) as (capture, control, shell):
        first = (await companion_evidence(capture)).source
        await control.stop()
        os.kill(only_child(shell.pid), signal.SIGKILL)
        await until(lambda: passes(capture), 1.0)  # long before any lease, and without any Python
        await control.start()
        await until(lambda: copies(capture), 10.0)
        second = (await companion_evidence(capture)).source
        assert second.epoch == first.epoch  # the counters live in Envoy
        assert second.sequence > first.sequence
        assert shell.returncode is None
        shell.terminate()
        assert await asyncio.wait_for(shell.wait(), 5) == 0
        await until(lambda: passes(capture), 1.0)


async def test_a_companion_meets_its_own_limits_before_its_containers(tmp_path: Path) -> None:
    async with supervised(tmp_path) as (capture, _, shell):
        limits = limits_of(only_child(shell.pid))
        assert limits["Max core file size"] == ["0", "0"]
        assert limits["Max open files"] == ["256", "256"]
        soft, hard = map(int, limits["Max data size"])
        assert soft == hard < 200 << 20  # bytes, of the container's 256 Mi
        with ExitStack() as held:
            for _ in range(300):  # more connections than it may have
                held.enter_context(socket.create_connection(("127.0.0.1", capture.ports.companion), timeout=2))
            client = Client(capture.customers)
            assert (await client.request()).status == 200
            client.close()
        assert (await companion_evidence(capture)).windows[1].sampled.requests == 1
        assert shell.returncode is None


async def test_an_envoy_that_restarts_has_a_new_epoch_and_the_current_routes(tmp_path: Path) -> None:
    async with companioned(tmp_path) as (capture, _, __):
        client = Client(capture.customers)
        await client.request()
        before = await companion_evidence(capture)
        client.close()
        await capture.stop()
        asking = Client(capture.ports.companion)
        token = [("Authorization", f"Bearer {TOKEN}")]
        assert (await asking.request(token, b"", method="GET", path="/evidence")).status == 503  # never a zero
        asking.close()
        await capture.start()
        after = await companion_evidence(capture)
        assert before.windows[1].sampled.requests == 1
        assert after.source.epoch == capture.epoch != before.source.epoch
        assert (after.windows, after.copying, after.directive_version) == ({}, True, 1)


async def test_evidence_needs_the_token_and_admin_a_place_in_the_pod(tmp_path: Path) -> None:
    async with companioned(tmp_path) as (capture, _, __):
        for headers in ([], [("Authorization", "Bearer wrong")], [("Authorization", "Bearer \u00e9")]):
            client = Client(capture.ports.companion)
            assert (await client.request(headers, b"", method="GET", path="/evidence")).status == 401
            client.close()
        client = Client(capture.ports.companion)
        assert (await client.request([], b"", method="GET", path="/healthz")).status == 200
        client.close()
        evidence = await companion_evidence(capture)
        assert (evidence.run_uid, evidence.source.pod, evidence.source.pod_uid) == ("run-1", "capture-1", "uid-1")
        socket.create_connection(("127.0.0.1", capture.ports.admin), timeout=2).close()
        with pytest.raises(ConnectionRefusedError):  # a port open on all addresses would answer here as well
            socket.create_connection(("127.0.0.2", capture.ports.admin), timeout=2).close()


async def test_draining_waits_for_open_streams_and_serves_meanwhile(tmp_path: Path) -> None:
    async def long_answer(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await answer(writer, "200 OK", [("Content-Length", "4")])
        await asyncio.sleep(4.0)
        writer.write(b"done")
        await writer.drain()
        return True

    async with running_scene(tmp_path) as (capture, to_primary, _):
        quick = to_primary.behaviour

        async def either(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
            behave = to_primary.keeping(long_answer) if head.header("x-long") else quick
            return await behave(head, reader, writer)

        to_primary.behaviour = either
        streamed, other = Client(capture.customers), Client(capture.customers)
        stream = asyncio.create_task(streamed.request([("x-long", "1")]))
        await other.request()
        started = time.monotonic()
        arguments = [
            "drain",
            "--admin",
            f"http://127.0.0.1:{capture.ports.admin}",
            "--settle-s",
            "1",
            "--timeout-s",
            "30",
        ]
        drain = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shadowrun_mirror.capture", *arguments, env=companion_environment("unused")
        )

        async def not_ready() -> bool:
            return not await capture.is_ready()

        await until(not_ready, 3.0)
        last = await other.request()
        assert (last.status, last.header("connection")) == (200, "close")  # the hint to go elsewhere
        late = Client(capture.customers)
        assert (await late.request()).status == 200
        assert drain.returncode is None
        assert (await stream).body == b"done"
        for client in (streamed, other, late):
            client.close()
        assert await asyncio.wait_for(drain.wait(), 10) == 0
        assert time.monotonic() - started > 3.0
