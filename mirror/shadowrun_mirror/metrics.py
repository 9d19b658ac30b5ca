"""Prometheus metrics of one replica. Labels come from the configuration and from `reasons`, never from a request.

Everything that can be named in advance is registered at zero. The verdict never reads these: it has the evidence.
"""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from shadowrun_mirror.config import MirrorConfig
from shadowrun_mirror.measure import ArmResult
from shadowrun_mirror.reasons import DropReason, ExcludeReason, FailureReason

_PREFIX = "shadowrun_mirror"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_RESULT = {
    DropReason.TOO_LARGE: "skipped_size",
    DropReason.UNPARSABLE: "unparsable",
    DropReason.SHED: "shed",
    DropReason.DUPLICATE: "duplicate",
    DropReason.DISABLED: "disabled",
    DropReason.EXPIRED: "expired",
    DropReason.CONFIG_BEHIND: "config_behind",
    ExcludeReason.NOT_SELECTED: "not_selected",
    ExcludeReason.MODEL_NOT_LISTED: "model_not_listed",
}
_ENDS = ("mirrored", "timeout", "error")
REFUSALS = ("method", "target", "other_run", "window", "bad_request", "incomplete", "internal")
_LATENCIES = ("ttft", "tpot", "e2e")
_TOKENS = ("prompt", "cached", "output")
_COMPLETED = "completed"


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
        for result in (*_RESULT.values(), *_ENDS):
            self._requests.labels(result)
        for reason in REFUSALS:
            self._refused.labels(reason)
        self._arms: dict[str, _ArmMetrics] = {}
        self.configured(config)

    def configured(self, config: MirrorConfig) -> None:
        """Register what a configuration names."""
        self._version.set(config.version)
        self._arms = {arm.name: self._arm(arm.name, arm.model) for arm in config.arms}

    def lost(self, reason: ExcludeReason | DropReason) -> None:
        """A copy that did not become a pair."""
        self._requests.labels(_RESULT[reason]).inc()

    def refused(self, reason: str) -> None:
        """A request that is in no funnel; `reason` is one of `REFUSALS`."""
        self._refused.labels(reason).inc()

    def ended(self, results: Mapping[str, ArmResult]) -> None:
        """A pair whose last arm has ended."""
        failures = {result.failure for result in results.values()} - {None}
        end = "timeout" if FailureReason.TIMEOUT in failures else "error" if failures else "mirrored"
        self._requests.labels(end).inc()
        for arm, result in results.items():
            self._arms[arm].ended(result)

    def render(self, in_flight: int, copying: bool, lag: tuple[float, float]) -> bytes:
        """The exposition text; `lag` is (p50, max) in seconds."""
        self._in_flight.set(in_flight)
        self._copying.set(copying)
        self._lag.labels("p50").set(lag[0])
        self._lag.labels("max").set(lag[1])
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
        self._bundled.inc(result.bundled)
        for name, value in zip(_LATENCIES, (result.ttft, result.tpot, result.e2e), strict=True):
            if value is not None:
                self._latencies[name].observe(value)
        if result.tokens is not None:
            counts = (result.tokens.prompt, result.tokens.cached, result.tokens.output)
            for kind, count in zip(_TOKENS, counts, strict=True):
                self._tokens[kind].inc(count)
