"""Many passes share a list of runs, and none is given one that was begun before it asked."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from shadowrun_operator.cluster import neighbours as module
from shadowrun_operator.cluster.client import ApiRefusal
from shadowrun_operator.cluster.neighbours import Neighbours

from tests.unit.cluster_io.test_modes import run as made

pytestmark = pytest.mark.operator


def run(name: str = "x", uid: str = "uid-x", *, version: str = "1") -> dict[str, Any]:
    found = made(name, uid)
    return {**found, "metadata": {**found["metadata"], "resourceVersion": version}}


class Slow:
    """An API server whose lists take as long as the test wants."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.found: list[dict[str, Any]] = [run()]
        self.gate = asyncio.Event()
        self.refusal: ApiRefusal | None = None

    async def list(self, kind: str, namespace: str) -> list[dict[str, Any]]:
        self.begun.append(namespace)
        found = list(self.found)
        await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal
        return found


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def _asked(neighbours: Neighbours, server: Slow, namespace: str = "n") -> "asyncio.Task[tuple[Any, ...]]":
    return asyncio.create_task(neighbours.of(server, namespace))  # type: ignore[arg-type]


async def test_those_who_ask_together_share_a_list_and_those_who_ask_meanwhile_share_the_next() -> None:
    server, neighbours = Slow(), Neighbours()
    first = [_asked(neighbours, server) for _ in range(50)]
    await _settled()
    server.found = [run(), run("y", "uid-y")]
    second = [_asked(neighbours, server) for _ in range(50)]
    elsewhere = _asked(neighbours, server, "m")
    await _settled()
    assert server.begun == ["n", "m"]
    server.gate.set()
    assert {len(await task) for task in first} == {1}
    assert {len(await task) for task in second} == {2}, "what has changed since is seen"
    await elsewhere
    assert server.begun == ["n", "m", "n"]


async def test_a_refusal_is_told_to_all_who_waited_and_the_next_list_is_a_new_one() -> None:
    server, neighbours = Slow(), Neighbours()
    server.refusal = ApiRefusal(429, "TooManyRequests", "later")
    server.gate.set()
    told = await asyncio.gather(*(_asked(neighbours, server) for _ in range(3)), return_exceptions=True)
    assert told == [server.refusal] * 3
    server.refusal = None
    (found,) = await _asked(neighbours, server)
    assert found.name == "x"
    assert len(server.begun) == 2


async def test_one_who_gives_up_takes_nothing_from_the_others_and_what_cannot_be_read_is_as_stored() -> None:
    server, neighbours = Slow(), Neighbours()
    server.found = [{**run(), "spec": {"nonsense": 1}}]
    gives_up, stays = _asked(neighbours, server), _asked(neighbours, server)
    await _settled()
    gives_up.cancel()
    server.gate.set()
    assert await stays == tuple(server.found)


async def test_an_older_list_serves_those_whom_it_will_do_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    server, neighbours, now = Slow(), Neighbours(), 1000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    server.gate.set()
    await neighbours.of(server, "n")  # type: ignore[arg-type]
    server.found = [run(), run("y", "uid-y")]
    now += 29
    assert len(await neighbours.of(server, "n", seconds=30)) == 1  # type: ignore[arg-type]
    now += 1
    assert len(await neighbours.of(server, "n", seconds=30)) == 2  # type: ignore[arg-type]
    server.found = []
    assert await _asked(neighbours, server) == ()


async def test_a_run_is_read_once_in_each_version() -> None:
    server, neighbours = Slow(), Neighbours()
    server.gate.set()
    server.found = [run(), run("y", "uid-y")]
    x, y = await _asked(neighbours, server)
    server.found = [run(version="2"), run("y", "uid-y")]
    new_x, same_y = await _asked(neighbours, server)
    assert new_x is not x
    assert same_y is y
