"""The funnel's equations at every instant, whatever comes and in whatever order; one pair's client is the test."""

import asyncio
import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from shadowrun_mirror.client import Ended, Exchange, HeadObjection, Request, Running
from shadowrun_mirror.config import Admission, MirrorConfig, Sampling, TrafficClass
from shadowrun_mirror.copied import Copy, Headers
from shadowrun_mirror.count import Counts
from shadowrun_mirror.dispatch import Dispatcher
from shadowrun_mirror.evidence import Amount, Evidence
from shadowrun_mirror.live import LiveConfig
from shadowrun_mirror.metrics import Metrics, Vitals
from shadowrun_mirror.pipeline import Clocks, Pipeline
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.stream import Reader

from tests.funnel import assert_adds_up
from tests.integration.mirror.rig import configuration

pytestmark = pytest.mark.mirror

UNITS = (
    Sampling(unit="Request", threshold=100_000, seed=7),
    Sampling(unit="Key", threshold=100_000, seed=7, key_headers=("x-key",), key_field="user", on_missing_key="Skip"),
    Sampling(unit="Conversation", threshold=100_000, seed=7, key_headers=("x-key",), class_thresholds={"long": 0}),
    Sampling(unit="Conversation", threshold=100_000, seed=7, key_headers=(), on_missing_key="Lineage"),
)
ANSWER = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"w"},"finish_reason":"stop"}]}'


class Arms:
    """A client whose exchanges end when the test says so."""

    def __init__(self) -> None:
        self.open: list[_Running] = []

    def start(self, request: Request, reader: Reader, objection: HeadObjection, ended: Ended) -> Running:
        running = _Running(self, reader, objection, ended)
        self.open.append(running)
        return running


class _Running:
    def __init__(self, arms: Arms, reader: Reader, objection: HeadObjection, ended: Ended) -> None:
        self._arms = arms
        self._reader = reader
        self._objection = objection
        self._ended = ended

    def give_up(self) -> None:
        if self in self._arms.open:
            self._arms.open.remove(self)

    def end(self, failure: FailureReason | None) -> None:
        self._arms.open.remove(self)
        if failure is None:
            self._objection(200, ((b"content-type", b"application/json"),))
            self._reader.feed(ANSWER, 2.0)
            self._ended(Exchange(failure=None, written_at=1.0, whole=True))
        else:
            self._ended(Exchange(failure=failure, written_at=None))


def pipeline_of(config: MirrorConfig, arms: Arms, clocks: Clocks, drawn: int = 0) -> Pipeline:
    return Pipeline(
        LiveConfig(config, clocks.wall(), clocks.mono()),
        Counts(config.run_uid, "pod", "pod-uid", "epoch"),
        Metrics(config),
        Dispatcher(arms, arms, lambda _: None, random.Random(1), clocks.mono),
        clocks,
        chance=lambda _: drawn,
    )


def body_of(turns: int, opening: int, **more: Any) -> bytes:
    messages = [{"role": "assistant" if n % 2 else "user", "content": f"{n}"} for n in range(2 * turns - 1)]
    messages[0]["content"] = f"opening {opening}"
    return json.dumps({"model": "m", "messages": messages} | more).encode()


class Funnel(RuleBasedStateMachine):
    """Copies of every kind, answers, failures, new configurations, time, and the end."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.arms = Arms()
        self.mono, self.wall = 50.0, 1000.0
        self.sent = Amount()
        self.pipeline: Pipeline | None = None

    def teardown(self) -> None:
        if self.pipeline is not None:
            self.run(self.pipeline.drain(0))
        for _ in range(3):
            self.run(asyncio.sleep(0))
        assert self.pipeline is None or self.pipeline.in_flight == 0
        self.loop.close()

    def run(self, work: Any) -> None:
        self.loop.run_until_complete(work)

    @property
    def config(self) -> MirrorConfig:
        assert self.pipeline is not None
        return self.pipeline.live.config

    @initialize(
        sampling=st.sampled_from(UNITS),
        cap=st.integers(0, 2),
        queued=st.integers(0, 2),
        models=st.sampled_from([(), (), (), ("m",), ("other",)]),
        window=st.integers(0, 1),
        external=st.booleans(),
        classed=st.booleans(),
    )
    def starts(
        self,
        sampling: Sampling,
        cap: int,
        queued: int,
        models: tuple[str, ...],
        window: int,
        external: bool,
        classed: bool,
    ) -> None:
        config = configuration([1, 2], window=window, models=models, source="External" if external else "Proxy")
        config = msgspec.structs.replace(
            config,
            capture=msgspec.structs.replace(config.capture, sampling=sampling),
            admission=Admission(max_in_flight=cap, timeout_s=1.0, max_queued=queued, max_wait_s=5.0),
            classes=(TrafficClass(name="long", min_prompt_tokens=60),) if classed or sampling.class_thresholds else (),
            expiry=2000.0,
        )

        async def start() -> None:
            clocks = Clocks(wall=lambda: self.wall, mono=lambda: self.mono)
            self.pipeline = pipeline_of(config, self.arms, clocks, drawn=500_000)

        self.run(start())

    @rule(
        request_id=st.none() | st.integers(0, 99),
        key=st.none() | st.integers(0, 3),
        turns=st.integers(1, 3),
        opening=st.integers(0, 3),
        window=st.sampled_from([0, 1, 1, 1, 1, 3]),
        kind=st.sampled_from([*["whole"] * 8, "door", "door", "chunked", "large", "broken", "encoded"]),
    )
    def copy_comes(
        self, request_id: int | None, key: int | None, turns: int, opening: int, window: int, kind: str
    ) -> None:
        self.copy_comes_with(request_id, key, turns, opening, window, kind)

    def copy_comes_with(
        self, request_id: int | None, key: int | None, turns: int, opening: int, window: int, kind: str
    ) -> None:
        assert self.pipeline is not None
        body: bytes | None = b"no json" if kind == "broken" else body_of(turns, opening, user=opening or None)
        size = len(body or b"")
        headers: Headers = ((b"x-shadowrun-window", str(window).encode()),)
        headers += () if request_id is None else ((b"x-request-id", str(request_id).encode()),)
        headers += () if key is None else ((b"x-key", str(key).encode()),)
        headers += ((b"content-encoding", b"gzip"),) if kind == "encoded" else ()
        length = None if kind == "chunked" else size  # chunked: at its head, nothing is known of its size
        shed = kind in ("door", "chunked") and self.pipeline.sheds_at_door(headers, length)
        size = 0 if shed and length is None else size
        shed_before = _shed(self.pipeline.evidence())
        copy = Copy(
            target=b"/v1/chat/completions",
            headers=headers,
            body=None if shed or kind == "large" else body,
            size=size,
            window=self.config.window if shed and self.config.source == "External" else window,
            complete_at=self.mono,
            shed=shed,
        )

        async def take() -> None:
            assert self.pipeline is not None
            self.pipeline.take(copy)

        self.run(take())
        observed = self.config.copying and not self.pipeline.expired
        if self.config.source == "Proxy" or observed:  # else a foreign proxy is not being observed
            self.sent += Amount(requests=1, bytes=size)
        if shed:  # what the door was told comes true
            assert _shed(self.pipeline.evidence()) == shed_before + 1

    @precondition(lambda self: bool(self.arms.open))
    @rule(index=st.integers(0, 20), failure=st.none() | st.sampled_from([FailureReason.TIMEOUT, FailureReason.CONNECT]))
    def an_arm_ends(self, index: int, failure: FailureReason | None) -> None:
        async def end() -> None:
            self.arms.open[index % len(self.arms.open)].end(failure)

        self.run(end())
        for _ in range(6):
            self.run(asyncio.sleep(0))

    @precondition(lambda self: bool(self.arms.open))
    @rule()
    def the_oldest_pair_ends(self) -> None:
        async def end() -> None:
            for running in self.arms.open[:2]:
                running.end(None)

        self.run(end())
        for _ in range(6):
            self.run(asyncio.sleep(0))

    @rule(number=st.integers(100, 10**6), count=st.integers(2, 5))
    def a_burst_comes(self, number: int, count: int) -> None:
        for offset in range(count):
            self.copy_comes_with(number + offset, number + offset, 1, number, self.config.window, "whole")

    @rule(seconds=st.sampled_from([0.1, 0.1, 3.0, 3.0, 6.0, 300.0]))
    def time_passes(self, seconds: float) -> None:
        self.mono += seconds
        self.wall += seconds
        self.look_at_the_queue()

    @rule(
        cap=st.integers(0, 3),
        queued=st.integers(0, 2),
        copying=st.sampled_from([True, True, True, False]),
        threshold=st.sampled_from([0, 500_000]),
    )
    def the_configuration_changes(self, cap: int, queued: int, copying: bool, threshold: int) -> None:
        assert self.pipeline is not None
        sampling = msgspec.structs.replace(self.config.capture.sampling, threshold=threshold)
        new = msgspec.structs.replace(
            self.config,
            version=self.config.version + 1,
            window=min(self.config.window + 1, 2),
            copying=copying,
            capture=msgspec.structs.replace(self.config.capture, sampling=sampling),
            admission=Admission(max_in_flight=cap, timeout_s=1.0, max_queued=queued, max_wait_s=5.0),
        )
        assert self.pipeline.live.offer(new, self.wall, self.mono) is None
        self.look_at_the_queue()

    def look_at_the_queue(self) -> None:
        """What the timer does, and what a new configuration sets off."""

        async def look() -> None:
            assert self.pipeline is not None
            self.pipeline.configured()

        self.run(look())
        assert self.pipeline is not None
        if not self.pipeline.copying:
            assert self.pipeline.queued == 0

    @invariant()
    def the_funnel_adds_up(self) -> None:
        if self.pipeline is None:
            return
        evidence = Evidence.decode(msgspec.json.encode(self.pipeline.evidence()))
        assert_adds_up(evidence)
        classes = [counted for window in evidence.windows.values() for counted in window.classes.values()]
        received = sum((counted.received for counted in classes), start=Amount())
        waiting = self.pipeline.queued
        assert received.requests + waiting == self.sent.requests
        assert received.bytes <= self.sent.bytes
        assert waiting or received == self.sent
        assert (self.pipeline._gate.held_bytes == 0) == (self.pipeline.in_flight + waiting == 0)
        assert sum(counted.in_flight.requests for counted in classes) == self.pipeline.in_flight
        assert not waiting or self.pipeline.in_flight >= self.config.admission.max_in_flight, "a free slot is not taken"
        late = sum(counted.dropped.get("ConversationJoinedLate", Amount()).requests for counted in classes)
        assert late == sum(window.lineage.joined_late for window in evidence.windows.values())
        for window in evidence.windows.values():
            assert window.lineage.openings <= window.lineage.conversations
        if self.config.capture.sampling.unit != "Conversation":
            assert all(window.lineage.conversations == 0 for window in evidence.windows.values())


def _shed(evidence: Evidence) -> int:
    classes = (counted for window in evidence.windows.values() for counted in window.classes.values())
    return sum(counted.dropped.get("Shed", Amount()).requests for counted in classes)


@pytest.mark.parametrize(("copying", "expired"), [(True, False), (False, False), (True, True)])
def test_of_a_foreign_proxy_nothing_is_observed_while_nothing_is_copied(copying: bool, expired: bool) -> None:
    config = configuration([1, 2], source="External", copying=copying)
    wall = 5e9 if expired else 1000.0

    async def take() -> tuple[bytes, Evidence]:
        pipeline = pipeline_of(config, Arms(), Clocks(lambda: wall, lambda: 50.0))
        for body in (None, b"no json"):
            pipeline.take(Copy(target=b"/", headers=(), body=body, size=9, window=1, complete_at=50.0))
        vitals = Vitals(
            in_flight=0, queued=0, copying=copying, held_bytes=0, lag_p50=0, lag_max=0, cpu_share=0, collector_s=0
        )
        return pipeline.metrics.render(vitals), pipeline.evidence()

    text, evidence = asyncio.run(take())
    observed = copying and not expired
    assert bool(evidence.windows) is observed
    expected = b'shadowrun_mirror_refused_total{reason="not_observing"} %d.0' % (0 if observed else 2)
    assert expected in text


def test_what_a_pair_held_is_free_when_it_has_ended_and_when_it_could_not_start() -> None:
    arms, config = Arms(), configuration([1, 2])

    async def lives() -> None:
        pipeline = pipeline_of(config, arms, Clocks(lambda: 1000.0, lambda: 50.0))
        body = body_of(1, 1)

        def take(request_id: bytes) -> None:
            ids = ((b"x-request-id", request_id),)
            pipeline.take(Copy(target=b"/", headers=ids, body=body, size=len(body), window=1, complete_at=50.0))

        take(b"1")
        assert pipeline._gate.held_bytes == len(body)
        await asyncio.sleep(0)
        for running in list(arms.open):
            running.end(None)
        for _ in range(3):
            await asyncio.sleep(0)
        assert (pipeline.in_flight, pipeline._gate.held_bytes) == (0, 0)
        pipeline._dispatcher._credential = _breaks
        with pytest.raises(RuntimeError):
            take(b"2")
        assert (pipeline.in_flight, pipeline._gate.held_bytes) == (0, 0)

    asyncio.run(lives())


def _breaks(_: str) -> str:
    raise RuntimeError


Funnel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_the_funnel_adds_up_at_every_instant = Funnel.TestCase
