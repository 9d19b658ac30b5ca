"""The pipeline: what happens to a copy, step by step, and the pairs in flight. Glue; each step is its own file.

    receive -> facts -> admit (select, follow, size, cap, queue, expiry) -> count -> sanitise -> dispatch -> measure
            -> count

All of it runs on one event loop. A copy is decided and counted without awaiting, at once or when it leaves the queue;
a pair then runs as a task.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from functools import partial

import msgspec

from shadowrun_mirror.admit import Candidate, Gate, place_of
from shadowrun_mirror.client import Request
from shadowrun_mirror.config import SLO, Comparison, TrafficClass, wants_copies
from shadowrun_mirror.copied import REQUEST_ID_HEADER, Copy, Headers, joined, window_of
from shadowrun_mirror.count import Counts, Pair
from shadowrun_mirror.dispatch import Dispatcher
from shadowrun_mirror.evidence import Evidence
from shadowrun_mirror.facts import (
    Facts,
    Wanted,
    facts_of,
    fields_of,
    size_decides,
    traffic_class,
    unread_facts,
    wanted_facts,
)
from shadowrun_mirror.join import request_mark
from shadowrun_mirror.live import LiveConfig
from shadowrun_mirror.log import died, safe_name
from shadowrun_mirror.measure import ArmResult
from shadowrun_mirror.metrics import Metrics
from shadowrun_mirror.reasons import DropReason, ExcludeReason, FlagReason

_log = logging.getLogger(__name__)

_TICK_S = 0.25
"""How late, at most, a copy in the queue learns that the run has expired."""


class Clocks(msgspec.Struct, frozen=True):
    """UTC seconds and monotonic seconds; tests may pass their own."""

    wall: Callable[[], float] = time.time
    mono: Callable[[], float] = time.monotonic


class _Reading(msgspec.Struct, frozen=True):
    """What the classes in force ask of a request, worked out once."""

    classes: tuple[TrafficClass, ...]
    wanted: Wanted
    by_size: bool  # whether the size of a body decides its class


class Pipeline:
    """Takes complete copies; answers for the evidence. `chance(n)` draws a whole number below n at random."""

    def __init__(
        self,
        live: LiveConfig,
        counts: Counts,
        metrics: Metrics,
        dispatcher: Dispatcher,
        clocks: Clocks | None = None,
        chance: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        self.live = live
        self.metrics = metrics
        self.clocks = clocks or Clocks()
        self._counts = counts
        self._dispatcher = dispatcher
        self._gate = Gate(live, chance, self.clocks.mono())
        self._reading = _reading(live.config.classes)
        self._timer: asyncio.TimerHandle | None = None
        self._pairs: set[asyncio.Task[None]] = set()

    def take(self, copy: Copy) -> None:
        """Decide about a copy, count it, and start its pair if it is admitted. Must be called on the event loop.

        A proxy of the user's own goes on copying before and after the run, and while it is suspended. Nothing is
        observed then, nor once the run has expired, as capture of ours would pass those requests uncounted.
        """
        config = self.live.config
        if config.source == "External" and (not self._wanted or self.expired):
            self.metrics.refused("not_observing")
            return
        candidate = self._candidate(copy)
        wall, mono = self.clocks.wall(), self.clocks.mono()
        decision = self._gate.decide(candidate, wall, mono)
        if decision.seen is not None:
            self._counts.traced(copy.window, decision.seen)
        if decision.reason is not None:
            self._lost(candidate, decision.reason)
        elif decision.waits:
            self._wake_later(mono)
        else:
            self._start(candidate, decision.flags, wall, mono)

    def sheds_at_door(self, headers: Headers, length: int | None) -> bool:
        """Whether a copy with this head and this content-length would certainly be shed; its body need not be read.

        The door then hands it on with `shed` set. Without a length (None) the body is read where classes go by its
        size; where there are none it is not kept, and the door hands the copy on when it ends. Changes nothing.
        """
        config = self.live.config
        if not self._gate.is_full:
            return False
        window = config.window if config.source == "External" else window_of(headers)
        if window is None:
            return False
        classes = (self.live.of_window(window) or config).classes
        if classes and (length is None or not self._read_for(classes).by_size):
            return False
        size = length or 0
        copy = Copy(target=b"", headers=headers, body=None, size=size, window=window, complete_at=0.0, shed=True)
        return self._gate.would_shed(self._candidate(copy), self.clocks.wall(), self.clocks.mono())

    def configured(self) -> None:
        """Act on the configuration that has just come into force: it may have more room, or want no more copies."""
        self.metrics.configured(self.live.config)
        self._serve_queue()

    @property
    def in_flight(self) -> int:
        """Pairs in flight."""
        return self._gate.in_flight

    @property
    def queued(self) -> int:
        """Copies that wait for a slot; they are in no counter yet."""
        return self._gate.waiting

    @property
    def expired(self) -> bool:
        """Whether the run's absolute end has passed on this replica."""
        return self.live.expired(self.clocks.wall(), self.clocks.mono())

    @property
    def copying(self) -> bool:
        """Whether a copy that arrives now may become a pair."""
        return self._wanted and not self._gate.draining and not self.expired

    @property
    def _wanted(self) -> bool:
        return wants_copies(self.live.config, self.clocks.wall())

    def evidence(self) -> Evidence:
        """A snapshot with the next sequence number; encode it before awaiting anything."""
        return self._counts.snapshot(self.clocks.wall(), self.live.config.version, self.copying, self.expired)

    async def drain(self, patience_s: float) -> None:
        """Admit nothing more and wait for the pairs in flight, at most `patience_s`; those left are abandoned.

        What waits in the queue is dropped at once.
        """
        self._gate.draining = True
        self._serve_queue()
        if self._pairs:
            await asyncio.wait(self._pairs, timeout=patience_s)
        for task in self._pairs:
            task.cancel()

    def _candidate(self, copy: Copy) -> Candidate:
        rules = self.live.of_window(copy.window)
        reading = self._read_for((rules or self.live.config).classes)
        fields = None if copy.body is None or _is_encoded(copy.headers) else fields_of(copy.body)
        facts = unread_facts(copy.size) if fields is None else facts_of(fields, copy.size, reading.wanted)
        class_name = traffic_class(reading.classes, facts)
        return Candidate(copy=copy, facts=facts, fields=fields, class_name=class_name, rules=rules)

    def _read_for(self, classes: tuple[TrafficClass, ...]) -> _Reading:
        if self._reading.classes is not classes:
            self._reading = _reading(classes)
        return self._reading

    def _lost(self, candidate: Candidate, reason: ExcludeReason | DropReason) -> None:
        self._counts.lost(candidate.copy.window, candidate.class_name, candidate.copy.size, reason)
        self.metrics.lost(reason)

    def _start(self, candidate: Candidate, flags: tuple[FlagReason, ...], wall: float, mono: float) -> None:
        """Start the pair of a copy that has a slot. A fault of our own gives the slot back and is raised."""
        copy, rules, fields = candidate.copy, candidate.rules, candidate.fields
        try:
            assert copy.body is not None  # the gate lets nothing else in
            assert rules is not None
            assert fields is not None
            stream, slo = candidate.facts.stream is True, rules.class_slos.get(candidate.class_name, rules.slo)
            config = self.live.config
            keyed = any(arm.keyed for arm in config.arms)
            place = place_of(config.capture.sampling, candidate) if keyed else None
            requests = self._dispatcher.requests(config, copy.target, copy.headers, copy.body, fields, stream, place)
            request_id = joined(copy.headers, REQUEST_ID_HEADER)
            pair = Pair(
                window=copy.window,
                traffic_class=candidate.class_name,
                size=copy.size,
                arms=tuple(requests),
                indicators=rules.indicators,
                complete_at=copy.complete_at,
                admitted_at=mono,
                admitted_utc=wall,
                block_s=rules.block_s,
                flags=flags,
                request_mark=request_mark(request_id) if request_id else 0,
            )
            self._counts.admitted(pair)
        except BaseException:
            self._gate.release(copy.size)
            raise
        running = self._run(pair, requests, stream, slo, rules.comparison, candidate.facts)
        task = asyncio.create_task(running, name="pair")
        self._pairs.add(task)
        task.add_done_callback(partial(self._over, copy.size))

    def _serve_queue(self) -> None:
        """Let out of the queue whatever must leave it now."""
        wall, mono = self.clocks.wall(), self.clocks.mono()
        while (left := self._gate.next(wall, mono)) is not None:
            waiting, reason = left
            if reason is not None:
                self._lost(waiting.candidate, reason)
                continue
            try:
                self._start(waiting.candidate, (*waiting.flags, FlagReason.QUEUED), wall, mono)
            except Exception as error:
                # As at the door: the next in the queue are not to suffer for it.
                self.metrics.refused("internal")
                _log.error("a queued copy could not be taken", extra={"fields": {"error": type(error).__name__}})
        self._wake_later(mono)

    def _wake_later(self, mono: float) -> None:
        """Look at the queue again when its first has waited too long, and often enough to notice the expiry."""
        due = self._gate.next_due()
        if due is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(min(max(due - mono, 0.0), _TICK_S) + 0.001, self._tick)
        elif due is None and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        self._serve_queue()

    async def _run(
        self,
        pair: Pair,
        requests: dict[str, Request],
        stream: bool,
        slo: SLO,
        comparison: Comparison | None,
        facts: Facts,
    ) -> None:
        results = await self._dispatcher.send(requests, stream, slo, comparison)
        flags = self._counts.ended(pair, results, self.clocks.wall())
        self.metrics.ended(results, flags)
        if _log.isEnabledFor(logging.DEBUG):
            self._describe(pair, results, facts)

    def _over(self, size: int, task: "asyncio.Task[None]") -> None:
        """Give the slot back, however the task ended: one that is cancelled before its first step runs nothing."""
        self._pairs.discard(task)
        self._gate.release(size)
        self._serve_queue()
        died(task)

    def _describe(self, pair: Pair, results: dict[str, ArmResult], facts: Facts) -> None:
        requested_model = safe_name(facts.model)
        targets = {arm.name: arm for arm in self.live.config.arms}
        for arm, result in results.items():
            line = {
                "run": self.live.config.run,
                "arm": arm,
                "backend": f"{targets[arm].host}:{targets[arm].port}",
                "requested_model": requested_model,
                "target_model": targets[arm].model or requested_model,
                "adapter": safe_name(facts.adapter) if facts.adapter else None,
                "class": pair.traffic_class,
                "window": pair.window,
                "outcome": result.failure or "completed",
                "ttft_s": round(result.ttft, 6) if result.failure is None and result.ttft is not None else None,
                "e2e_s": round(result.e2e, 6) if result.failure is None else None,
            }
            _log.debug("pair ended", extra={"fields": line})


def _reading(classes: tuple[TrafficClass, ...]) -> _Reading:
    return _Reading(classes=classes, wanted=wanted_facts(classes), by_size=size_decides(classes))


def _is_encoded(headers: Headers) -> bool:
    """Whether the body is compressed or the like; no engine takes that, and nothing here unpacks it."""
    return joined(headers, b"content-encoding").lower() not in (b"", b"identity")
