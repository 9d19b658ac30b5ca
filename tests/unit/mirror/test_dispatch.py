"""Whatever breaks on the way to an arm, the pair ends, and nothing of what broke is said but its type."""

import asyncio
import random
from collections.abc import Callable

import msgspec
import pytest
from shadowrun_mirror.breaker import FAILURES, FIRST_WAIT_S, State
from shadowrun_mirror.client import Ended, Exchange, HeadObjection, Request, Running
from shadowrun_mirror.config import SLO, Admission, CaptureRules, Comparison, Sampling
from shadowrun_mirror.dispatch import Dispatcher
from shadowrun_mirror.facts import fields_of
from shadowrun_mirror.reasons import FailureReason, Likeness
from shadowrun_mirror.stream import Reader

from tests.integration.mirror.rig import configuration

pytestmark = pytest.mark.mirror


class Arms:
    """A client that does what `behave` does, and keeps the order and what was given up."""

    def __init__(self, behave: Callable[[Request, Reader, Ended], None]) -> None:
        self.behave = behave
        self.sent: list[str] = []
        self.given_up = 0
        self.objection: HeadObjection = lambda _, __: None

    def start(self, request: Request, reader: Reader, objection: HeadObjection, ended: Ended) -> Running:
        self.sent.append(request.host)
        self.objection = objection
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


def _says(words: dict[str, str]) -> Callable[[Request, Reader, Ended], None]:
    def behave(request: Request, reader: Reader, ended: Ended) -> None:
        if not words[request.host]:
            _ends(request, reader, ended)
            return
        reader.feed(b'{"choices":[{"index":0,"text":"%b"}]}' % words[request.host].encode(), 1.0)
        asyncio.get_running_loop().call_soon(ended, Exchange(failure=None, written_at=0.5, whole=True))

    return behave


@pytest.mark.parametrize(
    ("baseline", "candidate", "control", "found"),
    [
        ("word", "word", "sword", [None, Likeness.MATCH, Likeness.LENGTH]),
        ("word", "", "lord", [None, Likeness.FAILED, Likeness.VALUE]),
        ("", "", "word", [None, Likeness.BOTH_FAILED, Likeness.FAILED]),
    ],
)
async def test_answers_are_held_against_the_baselines_where_that_is_asked_for(
    baseline: str, candidate: str, control: str, found: list[Likeness | None]
) -> None:
    arms = Arms(_says({"a": baseline, "b": candidate, "c": control}))
    results = await dispatcher(arms).send(requests("a", "b", "c"), False, SLO(), Comparison())
    assert [result.likeness for result in results.values()] == found
    results = await dispatcher(arms).send(requests("a", "b", "c"), False, SLO())
    assert {result.likeness for result in results.values()} == {None}


async def test_only_a_stream_that_is_compared_is_not_told_by_a_glance() -> None:
    glances: list[bool] = []

    def behave(request: Request, reader: Reader, ended: Ended) -> None:
        glances.append(reader.glance is not None)
        _ends(request, reader, ended)

    await dispatcher(Arms(behave)).send(requests("a"), True, SLO())
    await dispatcher(Arms(behave)).send(requests("a"), True, SLO(), Comparison())
    assert glances == [True, False]


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


class Tried:
    """One arm, tried again and again by pairs of one; `now` is the test's."""

    def __init__(self, behave: Callable[[Request, Reader, Ended], None]) -> None:
        self.now = 0.0
        self.states: list[State] = []
        self.arms = Arms(behave)
        self._dispatcher = Dispatcher(
            self.arms,
            self.arms,
            lambda _: None,
            random.Random(1),
            lambda: self.now,
            lambda _, state: self.states.append(state),
        )

    async def send(self) -> FailureReason | None:
        return (await self._dispatcher.send(requests("a"), True, SLO()))["a"].failure


@pytest.mark.parametrize(
    ("status", "failure", "state"),
    [
        (0, FailureReason.STREAM_CUT, "open"),
        (0, FailureReason.MALFORMED, "open"),
        (503, FailureReason.HTTP_5XX, "open"),
        (200, FailureReason.TIMEOUT, "closed"),
        (200, FailureReason.STREAM_CUT, "closed"),
        (429, FailureReason.HTTP_4XX, "closed"),
    ],
)
async def test_an_arm_that_gives_no_head_below_500_is_left_alone(
    status: int, failure: FailureReason, state: State
) -> None:
    def behave(_: Request, __: Reader, ended: Ended) -> None:
        def answer() -> None:
            if status:
                tried.arms.objection(status, ((b"content-type", b"text/event-stream"),))
            ended(Exchange(failure=failure, written_at=0.0))

        asyncio.get_running_loop().call_soon(answer)

    tried = Tried(behave)
    assert {await tried.send() for _ in range(FAILURES)} == {failure}
    assert tried.states[-1] == state


async def test_the_breaker_closes_at_the_head_of_the_probes_answer_while_the_answer_goes_on() -> None:
    tried = Tried(_ends)
    for _ in range(FAILURES):
        await tried.send()
    assert tried.states == ["closed", "open"]
    tried.now, tried.arms.behave = FIRST_WAIT_S, _hangs
    probe = asyncio.create_task(tried.send())
    await asyncio.sleep(0)
    assert await tried.send() is FailureReason.BREAKER_OPEN
    tried.arms.objection(200, ((b"content-type", b"text/event-stream"),))
    assert tried.states == ["closed", "open", "probing", "closed"]
    tried.arms.behave = _ends
    assert await tried.send() is FailureReason.CONNECT
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)


async def test_answers_that_began_and_then_fail_all_at_once_do_not_open_it() -> None:
    waiting: list[tuple[HeadObjection, Ended]] = []
    tried = Tried(lambda _, __, ended: waiting.append((tried.arms.objection, ended)))
    pairs = [asyncio.create_task(tried.send()) for _ in range(FAILURES)]
    await asyncio.sleep(0)
    for objection, _ in waiting:
        objection(200, ((b"content-type", b"text/event-stream"),))
    for _, ended in waiting:
        ended(Exchange(failure=FailureReason.TIMEOUT, written_at=0.0))
    assert await asyncio.gather(*pairs) == [FailureReason.TIMEOUT] * FAILURES
    assert tried.states == ["closed"]


@pytest.mark.parametrize("behave", [_reports_a_fault, _raises])
async def test_faults_of_our_own_leave_no_arm_alone(behave: Callable[[Request, Reader, Ended], None]) -> None:
    tried = Tried(behave)
    for _ in range(2 * FAILURES):
        assert await tried.send() is FailureReason.MALFORMED
    assert tried.states == ["closed"]


def test_pseudonyms_follow_the_seed_which_nobody_outside_knows() -> None:
    """The run's uid is in its objects for all to read; the seed is not."""

    def pseudonym(run_uid: str, seed: int) -> bytes:
        config = configuration([1, 2], run_uid=run_uid)
        rules = CaptureRules(
            paths=config.capture.paths,
            max_body_bytes=1000,
            sampling=Sampling(unit="Request", threshold=0, seed=seed),
        )
        body = b'{"model":"m","prompt_cache_key":"alice"}'
        fields = fields_of(body)
        assert fields is not None
        config = msgspec.structs.replace(config, capture=rules)
        made = dispatcher(Arms(_ends)).requests(config, b"/v1/chat/completions", (), body, fields, False)
        return made["baseline"].body

    assert pseudonym("one", 1) == pseudonym("two", 1) != pseudonym("one", 2)
    assert b"alice" not in pseudonym("one", 1)


def test_only_arms_that_choose_among_their_pods_are_given_a_place() -> None:
    config = configuration([1, 2])
    keyed = msgspec.structs.replace(config.arms[0], keyed=True)
    config = msgspec.structs.replace(config, arms=(keyed, *config.arms[1:]))
    made = dispatcher(Arms(_ends)).requests(config, b"/v1/chat/completions", (), b"{}", {}, True, place=7)
    assert [request.place for request in made.values()] == [7, None]


@pytest.mark.parametrize(("stream", "wire", "event"), [(True, 5000, 700), (False, 700, 700)])
def test_only_what_must_be_kept_of_an_answer_has_the_smaller_bound(stream: bool, wire: int, event: int) -> None:
    admission = Admission(max_in_flight=1, timeout_s=1.0, max_answer_bytes=5000, max_kept_bytes=700)
    config = configuration([1, 2], admission=admission)
    made = dispatcher(Arms(_ends)).requests(config, b"/v1/chat/completions", (), b"{}", {}, stream)
    assert {(one.max_answer_bytes, one.max_event_bytes) for one in made.values()} == {(wire, event)}
