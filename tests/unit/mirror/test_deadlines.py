"""Whoever has not ended by its deadline is told, once, and one that breaks takes no other with it."""

import asyncio
from typing import Any

import pytest
from shadowrun_mirror.deadlines import Deadlines

pytestmark = pytest.mark.mirror


class Exchange:
    """Keeps when it was told."""

    def __init__(self, breaks: bool = False) -> None:
        self.told: list[float] = []
        self.was_told = asyncio.Event()
        self._breaks = breaks

    def late(self) -> None:
        self.told.append(asyncio.get_running_loop().time())
        self.was_told.set()
        if self._breaks:
            raise RuntimeError


async def _all_told(*exchanges: Exchange) -> None:
    async with asyncio.timeout(5):
        for exchange in exchanges:
            await exchange.was_told.wait()


async def test_each_is_told_at_its_own_deadline_in_any_order_of_timeouts() -> None:
    deadlines, started = Deadlines(), asyncio.get_running_loop().time()
    timeouts = (0.15, 0.05, 0.1, 0.05)
    exchanges = [Exchange() for _ in timeouts]
    for exchange, timeout in zip(exchanges, timeouts, strict=True):
        deadlines.add(exchange, timeout)
    await _all_told(*exchanges)
    for exchange, timeout in zip(exchanges, timeouts, strict=True):
        assert len(exchange.told) == 1
        assert exchange.told[0] - started >= timeout - 0.005
    assert exchanges[0].told > exchanges[2].told > exchanges[1].told


async def test_one_that_has_ended_is_not_told_and_a_later_one_still_is() -> None:
    deadlines = Deadlines()
    ended, later, last = Exchange(), Exchange(), Exchange()
    deadlines.add(ended, 0.03)
    deadlines.add(later, 0.03)
    deadlines.remove(ended, 0.03)
    deadlines.remove(ended, 0.03)
    await _all_told(later)
    assert not ended.told
    deadlines.add(last, 0.03)  # nothing was waiting any more
    await _all_told(last)


async def test_one_that_breaks_is_reported_and_the_others_are_told_all_the_same() -> None:
    broke: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broke.append(context["exception"]))
    deadlines = Deadlines()
    exchanges = [Exchange(breaks=True), Exchange(), Exchange(breaks=True), Exchange()]
    for number, exchange in enumerate(exchanges):
        deadlines.add(exchange, 0.02 + 0.01 * (number // 2))
    await _all_told(*exchanges)
    assert [type(error) for error in broke] == [RuntimeError] * 2
