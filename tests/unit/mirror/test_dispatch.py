"""Whatever breaks on the way to an arm, the pair ends, and nothing of what broke is said but its type."""

import asyncio
import random
from collections.abc import Callable

import pytest
from shadowrun_mirror.client import Ended, Exchange, HeadObjection, Request, Running
from shadowrun_mirror.config import SLO
from shadowrun_mirror.dispatch import Dispatcher
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.stream import Reader

pytestmark = pytest.mark.mirror


class Arms:
    """A client that does what `behave` does, and keeps the order and what was given up."""

    def __init__(self, behave: Callable[[Request, Reader, Ended], None]) -> None:
        self.behave = behave
        self.sent: list[str] = []
        self.given_up = 0

    def start(self, request: Request, reader: Reader, objection: HeadObjection, ended: Ended) -> Running:
        self.sent.append(request.host)
        self.behave(request, reader, ended)
        return self

    def give_up(self) -> None:
        self.given_up += 1


def dispatcher(arms: Arms, http2: Arms | None = None, seed: int = 1) -> Dispatcher:
    return Dispatcher(arms, http2 or arms, lambda _: None, random.Random(seed), lambda: 0.0)


def requests(*names: str, http2: str = "") -> dict[str, Request]:
    return {
        name: Request(
            host=name,
            port=1,
            target=b"/v1/completions",
            headers=(),
            body=b"{}",
            timeout_s=1,
            max_answer_bytes=1000,
            http2=name == http2,
        )
        for name in names
    }


def _ends(_: Request, __: Reader, ended: Ended) -> None:
    asyncio.get_running_loop().call_soon(ended, Exchange(failure=FailureReason.CONNECT, written_at=None))


def _reports_a_fault(_: Request, __: Reader, ended: Ended) -> None:
    asyncio.get_running_loop().call_soon(ended, RuntimeError("the prompt was: hello"))


def _raises(_: Request, __: Reader, ___: Ended) -> None:
    raise RuntimeError("the prompt was: hello")


def _hangs(_: Request, __: Reader, ___: Ended) -> None:
    return


async def test_every_arm_has_a_result_in_the_order_of_the_arms() -> None:
    results = await dispatcher(Arms(_ends)).send(requests("a", "b", "c"), True, SLO())
    assert list(results) == ["a", "b", "c"]
    assert {result.failure for result in results.values()} == {FailureReason.CONNECT}


@pytest.mark.parametrize("behave", [_reports_a_fault, _raises])
async def test_a_fault_of_our_own_ends_the_pair_and_says_no_more_than_its_type(
    behave: Callable[[Request, Reader, Ended], None], caplog: pytest.LogCaptureFixture
) -> None:
    results = await dispatcher(Arms(behave)).send(requests("a", "b"), True, SLO())
    assert [result.failure for result in results.values()] == [FailureReason.MALFORMED] * 2
    assert [record.fields["error"] for record in caplog.records if hasattr(record, "fields")] == ["RuntimeError"] * 2
    assert "hello" not in caplog.text


async def test_no_arm_is_always_first() -> None:
    firsts = set()
    for seed in range(20):
        arms = Arms(_ends)
        await dispatcher(arms, seed=seed).send(requests("a", "b", "c"), True, SLO())
        firsts.add(arms.sent[0])
    assert firsts == {"a", "b", "c"}


async def test_each_arm_is_spoken_to_in_its_protocol() -> None:
    plain, http2 = Arms(_ends), Arms(_ends)
    await dispatcher(plain, http2).send(requests("a", "b", http2="b"), True, SLO())
    assert (plain.sent, http2.sent) == (["a"], ["b"])


async def test_a_pair_that_is_given_up_closes_what_is_open() -> None:
    arms = Arms(_hangs)
    task = asyncio.create_task(dispatcher(arms).send(requests("a", "b"), True, SLO()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert arms.given_up == 2
