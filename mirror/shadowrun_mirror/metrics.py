"""Prometheus metrics of one replica. Labels come from the configuration and from `reasons`, never from a request.

Everything that can be named in advance is registered at zero. The verdict never reads these: it has the evidence.
"""

from collections.abc import Iterable, Mapping

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from shadowrun_mirror.breaker import State
from shadowrun_mirror.config import MirrorConfig
from shadowrun_mirror.join import KINDS, Outcome
from shadowrun_mirror.measure import ArmResult
from shadowrun_mirror.reasons import DropReason, ExcludeReason, FailureReason, FlagReason, Likeness

_PREFIX = "shadowrun_mirror"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_RESULT = {
    DropReason.TOO_LARGE: "skipped_size",
    DropReason.UNPARSABLE: "unparsable",
    DropReason.SHED: "shed",
    DropReason.QUEUE_TIMEOUT: "queue_timeout",
    DropReason.CONVERSATION_JOINED_LATE: "joined_late",
    DropReason.DUPLICATE: "duplicate",
    DropReason.DISABLED: "disabled",
    DropReason.EXPIRED: "expired",
    DropReason.CONFIG_BEHIND: "config_behind",
    ExcludeReason.NOT_SELECTED: "not_selected",
    ExcludeReason.NOT_COPYING: "not_copying",
    ExcludeReason.MODEL_NOT_LISTED: "model_not_listed",
}
_ENDS = ("mirrored", "timeout", "error")
REFUSALS = (
    "method",
    "target",
    "path",
    "other_run",
    "window",
    "loop",
    "not_observing",
    "bad_request",
    "incomplete",
    "memory",
    "connections",
    "log_record",
    "internal",
)
_LATENCIES = ("ttft", "tpot", "e2e")
_TOKENS = ("prompt", "cached", "output")
_COMPLETED = "completed"
_DOZEN = 16


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """How the process is at the moment of a scrape. Lags in seconds."""

    in_flight: int
    queued: int
    copying: bool
    held_bytes: int
    lag_p50: float
    lag_max: float
    cpu_share: float
    collector_s: float


class Metrics:
    """All metrics, in a registry of their own."""

    def __init__(self, config: MirrorConfig) -> None:
        self._registry = CollectorRegistry()
        registry = self._registry
        self._requests = Counter(
            f"{_PREFIX}_requests",
            "Complete copies by what became of them: mirrored when every arm answered, timeout or error when one did "
            "not, or the reason no arm got it.",
            ["result"],
            registry=registry,
        )
        self._refused = Counter(
            f"{_PREFIX}_refused", "Requests that were not complete copies of this run.", ["reason"], registry=registry
        )
        self._answers = Counter(
            f"{_PREFIX}_answers", "Answers by arm and outcome.", ["arm", "model", "outcome"], registry=registry
        )
        self._tokens = Counter(
            f"{_PREFIX}_tokens", "Tokens as the arms reported them.", ["arm", "model", "kind"], registry=registry
        )
        self._bundled = Counter(
            f"{_PREFIX}_bundled_answers",
            "Completed answers whose tokens all came in one event, so that they have no TPOT.",
            ["arm", "model"],
            registry=registry,
        )
        self._compared = Counter(
            f"{_PREFIX}_compared_answers",
            "Answers held against the baseline's: match, the kind of difference, or why nothing can be said.",
            ["arm", "result"],
            registry=registry,
        )
        self._latencies = {
            name: Histogram(
                f"{_PREFIX}_{name}_seconds",
                f"{name.upper()} of completed answers.",
                ["arm", "model"],
                buckets=_SECONDS,
                registry=registry,
            )
            for name in _LATENCIES
        }
        self._in_flight = Gauge(f"{_PREFIX}_pairs_in_flight", "Pairs in flight.", registry=registry)
        self._copying = Gauge(f"{_PREFIX}_copying", "1 while copies are admitted.", registry=registry)
        self._version = Gauge(f"{_PREFIX}_config_version", "Version of the configuration in force.", registry=registry)
        self._lag = Gauge(
            f"{_PREFIX}_loop_lag_seconds",
            "How late the event loop woke up over the last minute.",
            ["statistic"],
            registry=registry,
        )
        self._flagged = Counter(
            f"{_PREFIX}_flagged_pairs",
            "Pairs that ended with something to know about them.",
            ["flag"],
            registry=registry,
        )
        self._primary = Counter(
            f"{_PREFIX}_primary_outcomes",
            "What became of the original requests, by the log of capture; every mirror is told of all.",
            ["outcome"],
            registry=registry,
        )
        self._queued = Gauge(f"{_PREFIX}_copies_queued", "Copies that wait for a slot.", registry=registry)
        self._held = Gauge(f"{_PREFIX}_held_bytes", "Bytes of requests that are not complete yet.", registry=registry)
        self._share = Gauge(f"{_PREFIX}_cpu_share", "Share of one core used over half a second.", registry=registry)
        self._collector = Gauge(
            f"{_PREFIX}_collector_seconds", "Time in the garbage collector since the start.", registry=registry
        )
        self._breaker = Gauge(
            f"{_PREFIX}_breaker_open",
            "1 while an arm is left alone after failures in a row.",
            ["arm"],
            registry=registry,
        )
        for flag in FlagReason:
            self._flagged.labels(flag.value)
        for kind in KINDS:
            self._primary.labels(kind)
        self._results = {result: self._requests.labels(result) for result in (*_RESULT.values(), *_ENDS)}
        for reason in REFUSALS:
            self._refused.labels(reason)
        self._arms: dict[str, _ArmMetrics] = {}
        self._ended: list[tuple[dict[str, _ArmMetrics], Mapping[str, ArmResult], Iterable[FlagReason]]] = []
        self.configured(config)

    def configured(self, config: MirrorConfig) -> None:
        """Register what a configuration names."""
        self._version.set(config.version)
        self._arms = {arm.name: self._arm(arm.name, arm.model) for arm in config.arms}
        for arm in self._arms:
            self._breaker.labels(arm)
        if config.comparison is not None:
            for challenger in config.arms[1:]:
                for result in Likeness:
                    self._compared.labels(challenger.name, result.value)

    def lost(self, reason: ExcludeReason | DropReason) -> None:
        """A copy that did not become a pair."""
        self._results[_RESULT[reason]].inc()

    def refused(self, reason: str, count: int = 1) -> None:
        """Requests, or lines of capture's log, that are in no funnel; `reason` is one of `REFUSALS`."""
        self._refused.labels(reason).inc(count)

    def primary_ended(self, outcome: Outcome) -> None:
        """The original of a request, copied or not, has ended."""
        self._primary.labels(outcome.kind).inc()

    def breaker_turned(self, arm: str, state: State) -> None:
        """The breaker of an arm came into another state."""
        self._breaker.labels(arm).set(state != "closed")

    def ended(self, results: Mapping[str, ArmResult], flags: Iterable[FlagReason] = ()) -> None:
        """A pair whose last arm has ended. Counted by the dozen: one at a time, on cold caches, costs three times."""
        self._ended.append((self._arms, results, flags))
        if len(self._ended) >= _DOZEN:
            self._catch_up()

    def _catch_up(self) -> None:
        while self._ended:  # one by one: what breaks on a pair takes no other with it
            self._count_ended(*self._ended.pop(0))

    def _count_ended(
        self, arms: "dict[str, _ArmMetrics]", results: Mapping[str, ArmResult], flags: Iterable[FlagReason]
    ) -> None:
        for flag in flags:
            self._flagged.labels(flag.value).inc()
        failures = {result.failure for result in results.values()} - {None}
        end = "timeout" if FailureReason.TIMEOUT in failures else "error" if failures else "mirrored"
        self._results[end].inc()
        for arm, result in results.items():
            arms[arm].ended(result)
            if result.likeness is not None:
                self._compared.labels(arm, result.likeness.value).inc()

    def render(self, vitals: Vitals) -> bytes:
        """The exposition text."""
        self._catch_up()
        self._in_flight.set(vitals.in_flight)
        self._queued.set(vitals.queued)
        self._copying.set(vitals.copying)
        self._held.set(vitals.held_bytes)
        self._lag.labels("p50").set(vitals.lag_p50)
        self._lag.labels("max").set(vitals.lag_max)
        self._share.set(vitals.cpu_share)
        self._collector.set(vitals.collector_s)
        return generate_latest(self._registry)

    def _arm(self, arm: str, model: str) -> "_ArmMetrics":
        return _ArmMetrics(
            answers={outcome: self._answers.labels(arm, model, outcome) for outcome in (_COMPLETED, *FailureReason)},
            tokens={kind: self._tokens.labels(arm, model, kind) for kind in _TOKENS},
            bundled=self._bundled.labels(arm, model),
            latencies={name: histogram.labels(arm, model) for name, histogram in self._latencies.items()},
        )


class _ArmMetrics:
    """The metrics of one arm under its present labels; finding them by label for each answer would cost more."""

    def __init__(
        self,
        answers: dict[str, Counter],
        tokens: dict[str, Counter],
        bundled: Counter,
        latencies: dict[str, Histogram],
    ) -> None:
        self._answers = answers
        self._tokens = tokens
        self._bundled = bundled
        self._latencies = latencies

    def ended(self, result: ArmResult) -> None:
        self._answers[result.failure or _COMPLETED].inc()
        if result.failure is not None:
            return
        if result.bundled:
            self._bundled.inc()
        for name, value in zip(_LATENCIES, (result.ttft, result.tpot, result.e2e), strict=True):
            if value is not None:
                self._latencies[name].observe(value)
        if result.tokens is not None:
            counts = (result.tokens.prompt, result.tokens.cached, result.tokens.output or 0)
            for kind, count in zip(_TOKENS, counts, strict=True):
                if count:
                    self._tokens[kind].inc(count)
