"""A replica stands by until it holds the Lease, answers the kubelet meanwhile, and lets go when it ends."""

import asyncio
import logging
import os
import signal
from typing import Any

import pytest
from shadowrun_operator import standby
from shadowrun_operator.standby import run_with

from tests.ports import free_ports

pytestmark = pytest.mark.operator


class Held:
    """Stands for a Lease that is given when the test says so, and lost when it says so."""

    def __init__(self) -> None:
        self.given, self.gone = asyncio.Event(), asyncio.Event()
        self.given_up = False

    async def acquired(self) -> None:
        await self.given.wait()

    async def lost(self) -> None:
        await self.gone.wait()

    def is_held(self) -> bool:
        return self.given.is_set() and not self.gone.is_set()

    async def give_up(self) -> None:
        self.given_up = True


@pytest.fixture
def liveness() -> str:
    (port,) = free_ports(1)
    return f"http://127.0.0.1:{port}/healthz"


async def _asked(liveness: str) -> bytes:
    host, port = liveness.split("/")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_it_answers_while_it_stands_by_then_runs_and_lets_go_at_the_end(liveness: str) -> None:
    lease, begun, end = Held(), asyncio.Event(), asyncio.Event()

    async def operator() -> None:
        begun.set()
        await end.wait()

    found: Any = lease
    running = asyncio.create_task(run_with(found, operator, liveness=liveness))
    await asyncio.sleep(0.1)
    assert (await _asked(liveness)).startswith(b"HTTP/1.1 200 ")
    assert not begun.is_set()
    lease.given.set()
    await asyncio.wait_for(begun.wait(), 5)
    with pytest.raises(OSError, match="Connect call failed"):
        await _asked(liveness)
    assert not lease.given_up
    end.set()
    await asyncio.wait_for(running, 5)
    assert lease.given_up


async def test_one_that_is_told_to_stop_while_it_stands_by_never_runs(liveness: str) -> None:
    lease: Any = Held()

    async def operator() -> None:
        raise AssertionError("it ran")

    running = asyncio.create_task(run_with(lease, operator, liveness=liveness))
    await asyncio.sleep(0.1)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, 5)


async def test_one_that_loses_the_lease_ends_without_giving_it_up(
    liveness: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Held()
    ends: list[int] = []
    lease.given.set()
    monkeypatch.setattr(os, "_exit", ends.append)
    monkeypatch.setattr(logging, "shutdown", lambda: None)

    async def operator() -> None:
        lease.gone.set()
        await asyncio.sleep(0.1)
        assert ends == [standby.LOST], "the process is gone by now"

    found: Any = lease
    await asyncio.wait_for(run_with(found, operator, liveness=liveness), 5)
    assert ends == [standby.LOST]


async def test_one_that_can_never_acquire_the_lease_says_why_and_does_not_end_as_if_all_were_well(
    liveness: str,
) -> None:
    class Broken(Held):
        async def acquired(self) -> None:
            raise KeyError("metadata")

    async def operator() -> None:
        raise AssertionError("it ran")

    found: Any = Broken()
    with pytest.raises(KeyError, match="metadata"):
        await asyncio.wait_for(run_with(found, operator, liveness=liveness), 5)
