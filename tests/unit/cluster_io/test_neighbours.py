"""Many passes share a list of runs, and none is given one that was begun before it asked."""

import asyncio
from typing import Any

import pytest
from shadowrun_operator.cluster.client import ApiRefusal
from shadowrun_operator.cluster.neighbours import Neighbours

from tests.unit.cluster_io.test_modes import run

pytestmark = pytest.mark.operator


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
    ((body, read),) = await _asked(neighbours, server)
    assert body["metadata"]["name"] == "x"
    assert read is not None
    assert len(server.begun) == 2


async def test_one_who_gives_up_takes_nothing_from_the_others_and_what_cannot_be_read_is_none() -> None:
    server, neighbours = Slow(), Neighbours()
    server.found = [{**run(), "spec": {"nonsense": 1}}]
    gives_up, stays = _asked(neighbours, server), _asked(neighbours, server)
    await _settled()
    gives_up.cancel()
    server.gate.set()
    ((_, read),) = await stays
    assert read is None
