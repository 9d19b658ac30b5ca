"""What the API server has said is recalled no longer than the look allows, and not once somebody spoke of a change."""

import asyncio
from types import SimpleNamespace

import pytest
from shadowrun_operator.cluster import memory
from shadowrun_operator.cluster.memory import Recall

pytestmark = pytest.mark.operator


class Asked:
    """Each answer is another one."""

    def __init__(self) -> None:
        self.times = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self) -> int:
        self.times += 1
        answer = self.times
        await self.gate.wait()
        return answer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    found = SimpleNamespace(now=1000.0)
    found.monotonic = lambda: found.now
    monkeypatch.setattr(memory, "time", found)
    return found


async def test_an_answer_is_recalled_for_as_long_as_the_look_says(clock: SimpleNamespace) -> None:
    recall, ask = Recall(), Asked()
    assert await recall.told("pods", ask, seconds=30) == 1
    clock.now += 29
    assert await recall.told("pods", ask, seconds=30) == 1
    assert await recall.told("nodes", ask, seconds=30) == 2, "another question"
    assert await recall.told("pods", ask, seconds=10) == 3, "too old for this look"
    clock.now += 30
    assert await recall.told("pods", ask, seconds=30) == 4


async def test_a_look_that_takes_no_older_answer_asks_and_leaves_nothing(clock: SimpleNamespace) -> None:
    recall, ask = Recall(), Asked()
    assert await recall.told("pods", ask, seconds=0) == 1
    assert await recall.told("pods", ask, seconds=30) == 2
    assert await recall.told("pods", ask, seconds=0) == 3


async def test_what_was_asked_before_a_change_is_not_recalled_after_it(clock: SimpleNamespace) -> None:
    recall, ask = Recall(), Asked()
    await recall.told("pods", ask, seconds=30)
    recall.forget()
    ask.gate.clear()
    asking = asyncio.create_task(recall.told("pods", ask, seconds=30))
    await asyncio.sleep(0)
    recall.forget()
    ask.gate.set()
    assert await asking == 2
    assert await recall.told("pods", ask, seconds=30) == 3, "the answer was on its way when the change was spoken of"


async def test_an_age_counts_from_the_question(clock: SimpleNamespace) -> None:
    recall, ask = Recall(), Asked()
    ask.gate.clear()
    asking = asyncio.create_task(recall.told("pods", ask, seconds=30))
    await asyncio.sleep(0)
    clock.now += 30
    ask.gate.set()
    assert await asking == 1
    assert await recall.told("pods", ask, seconds=30) == 2
