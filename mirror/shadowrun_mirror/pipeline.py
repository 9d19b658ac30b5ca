"""The pipeline: what happens to a copy, step by step, and the pairs in flight. Glue; each step is its own file.

    receive -> facts -> admit (select, size, cap, expiry) -> count -> sanitise -> dispatch -> measure -> count

All of it runs on one event loop. A copy is decided and counted without awaiting; a pair then runs as a task.
"""

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from shadowrun_mirror.admit import Candidate, Gate
from shadowrun_mirror.client import Request
from shadowrun_mirror.config import SLO
from shadowrun_mirror.copied import Copy
from shadowrun_mirror.count import Counts, Pair
from shadowrun_mirror.dispatch import Dispatcher
from shadowrun_mirror.evidence import Evidence
from shadowrun_mirror.facts import facts_of, fields_of, traffic_class, unread_facts
from shadowrun_mirror.live import LiveConfig
from shadowrun_mirror.log import died, safe_name
from shadowrun_mirror.measure import ArmResult
from shadowrun_mirror.metrics import Metrics

_log = logging.getLogger(__name__)


class Clocks(msgspec.Struct, frozen=True):
    """UTC seconds and monotonic seconds; tests may pass their own."""

    wall: Callable[[], float] = time.time
    mono: Callable[[], float] = time.monotonic


class Pipeline:
    """Takes complete copies; answers for the evidence."""

    def __init__(
        self, live: LiveConfig, counts: Counts, metrics: Metrics, dispatcher: Dispatcher, clocks: Clocks | None = None
    ) -> None:
        self.live = live
        self.metrics = metrics
        self.clocks = clocks or Clocks()
        self._counts = counts
        self._dispatcher = dispatcher
        self._gate = Gate(live)
        self._pairs: set[asyncio.Task[None]] = set()

    def take(self, copy: Copy) -> None:
        """Decide about a copy, count it, and start its pair if it is admitted. Must be called on the event loop."""
        fields = None if copy.body is None else fields_of(copy.body)
        facts = unread_facts(copy.size) if fields is None else facts_of(fields, copy.size)
        rules = self.live.of_window(copy.window) or self.live.config
        class_name = traffic_class(rules.classes, facts)
        wall, mono = self.clocks.wall(), self.clocks.mono()
        objection = self._gate.objection(Candidate(copy=copy, facts=facts, fields=fields), wall, mono)
        if objection is not None:
            self._counts.lost(copy.window, class_name, copy.size, objection)
            self.metrics.lost(objection)
            return
        try:
            assert copy.body is not None  # the gate lets nothing else in
            assert fields is not None
            stream, slo = facts.stream is True, rules.class_slos.get(class_name, rules.slo)
            requests = self._dispatcher.requests(self.live.config, copy.target, copy.headers, copy.body, fields, stream)
            pair = Pair(
                window=copy.window,
                traffic_class=class_name,
                size=copy.size,
                arms=tuple(requests),
                indicators=rules.indicators,
                complete_at=copy.complete_at,
                admitted_at=mono,
                admitted_utc=wall,
                block_s=rules.block_s,
            )
            model = safe_name(facts.model)
            self._counts.admitted(pair)
        except BaseException:
            self._gate.release()
            raise
        task = asyncio.create_task(self._run(pair, requests, stream, slo, model), name="pair")
        self._pairs.add(task)
        task.add_done_callback(self._over)

    @property
    def in_flight(self) -> int:
        """Pairs in flight."""
        return self._gate.in_flight

    @property
    def expired(self) -> bool:
        """Whether the run's absolute end has passed on this replica."""
        return self.live.expired(self.clocks.wall(), self.clocks.mono())

    @property
    def copying(self) -> bool:
        """Whether a copy that arrives now may become a pair."""
        return self.live.config.copying and not self._gate.draining and not self.expired

    def evidence(self) -> Evidence:
        """A snapshot with the next sequence number; encode it before awaiting anything."""
        return self._counts.snapshot(self.clocks.wall(), self.live.config.version, self.copying, self.expired)

    async def drain(self, patience_s: float) -> None:
        """Admit nothing more and wait for the pairs in flight, at most `patience_s`; those left are abandoned."""
        self._gate.draining = True
        if self._pairs:
            await asyncio.wait(self._pairs, timeout=patience_s)
        for task in self._pairs:
            task.cancel()

    async def _run(self, pair: Pair, requests: dict[str, Request], stream: bool, slo: SLO, model: str) -> None:
        results = await self._dispatcher.send(requests, stream, slo)
        self._counts.ended(pair, results, self.clocks.wall())
        self.metrics.ended(results)
        if _log.isEnabledFor(logging.DEBUG):
            self._describe(pair, results, model)

    def _over(self, task: "asyncio.Task[None]") -> None:
        """Give the slot back, however the task ended: one that is cancelled before its first step runs nothing."""
        self._pairs.discard(task)
        self._gate.release()
        died(task)

    def _describe(self, pair: Pair, results: dict[str, ArmResult], requested_model: str) -> None:
        targets = {arm.name: arm for arm in self.live.config.arms}
        for arm, result in results.items():
            line = {
                "run": self.live.config.run,
                "arm": arm,
                "backend": f"{targets[arm].host}:{targets[arm].port}",
                "requested_model": requested_model,
                "target_model": targets[arm].model or requested_model,
                "class": pair.traffic_class,
                "window": pair.window,
                "outcome": result.failure or "completed",
                "e2e_s": round(result.e2e, 6) if result.failure is None else None,
            }
            _log.debug("pair ended", extra={"fields": line})
