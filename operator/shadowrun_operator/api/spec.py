"""The spec of a ShadowRun: what a user asks for, with the bounds and rules of every field.

The CRD is generated from these models. What the API server can check (patterns, bounds, CEL) is stated here and
checked there; reading a stored object repeats the patterns and bounds only. This module must not decide anything.
"""

from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints

from shadowrun_operator.api.arms import (
    Arms,
    ArmTemplate,
    Candidate,
    Hardware,
    ObjectRef,
    SecretKeyRef,
    Warmup,
)
from shadowrun_operator.api.block import DEFAULT_CLASS, MAX_CLASSES, Block, map_by, rules
from shadowrun_operator.api.criteria import (
    SLO,
    ClassCondition,
    ClassCoverage,
    Comparison,
    CountRange,
    Coverage,
    Criterion,
    Metric,
    TrafficClass,
)
from shadowrun_operator.api.quantities import Duration, Latency, Percent, PerSecond, Size
from shadowrun_operator.api.traffic import (
    Admission,
    Capture,
    CaptureExternal,
    CaptureProxy,
    ClassRate,
    Mirror,
    Primary,
    Queue,
    Sampling,
    SamplingKey,
    ServicePort,
)

MAX_CRITERIA = 10

Sentence = Annotated[str, StringConstraints(max_length=256)]


class EndConditions(Block):
    """When the run may end before its duration; any one is enough, but none before minDuration."""

    min_duration: Duration = Duration("24h")
    """Shortest counted time; only a proven failure, a stop, the expiry or trouble ends the run earlier."""
    pairs: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Counted pairs after which the run ends."""
    tokens: int | None = Field(default=None, ge=1, le=1_000_000_000_000_000)
    """Prompt tokens of counted pairs after which the run ends."""
    gpu_hours: int | None = Field(default=None, ge=1, le=1_000_000)
    """Accelerator hours, by the limits of all arms' pods since copying began, after which the run ends."""
    decided: bool = False
    """Whether the run ends once every criterion is decided, and at any time once one is refuted."""
    match_rate: Percent | None = None
    """Share of equal answers which, once proven, ends the run."""


class LivePathGuard(Block):
    """How much worse the customers' own path may become before the run ends."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "has(self.maxLatencyIncrease) || has(self.maxErrorIncrease)",
                "livePathGuard needs maxLatencyIncrease, maxErrorIncrease or both",
            )
        )
    )

    max_latency_increase: Percent | None = None
    """Largest tolerated increase of the customers' latency."""
    max_error_increase: Percent | None = None
    """Largest tolerated increase of the customers' share of errors, in percentage points."""
    pause_share: Percent = Field(
        default=Percent("5%"),
        json_schema_extra=rules(
            (
                "self.matches('^([1-9]|[1-4][0-9])([.][0-9]+)?%$|^50([.]0+)?%$')",
                "pauseShare must be at least 1% and at most 50%",
            )
        ),
    )
    """Share of the time in which nothing is copied, in slots drawn at random, so that customers can be compared."""
    pause_slot: Duration = Field(
        default=Duration("10s"),
        json_schema_extra=rules(
            (
                "duration(self) >= duration('5s') && duration(self) <= duration('5m')",
                "pauseSlot must be between 5s and 5m",
            )
        ),
    )
    """Length of such a slot."""


class Stop(Block):
    """An early end by hand."""

    reason: Sentence = ""
    """Why the run was stopped; writing anything here ends the run as inconclusive."""


_NEEDS_BODY = (
    "(has(self.sampling.key) && has(self.sampling.key.bodyField)) || self.sampling.onMissingKey == 'Lineage'"
    " || (self.sampling.unit == 'Conversation' && !has(self.sampling.key))"
)
"""The mirror alone can tell: by the body, or by what it remembers of the conversation."""

_WITHIN_SLO_NEEDS_SLO = (
    "!self.criteria.exists(c, c.metric == 'WithinSLO') || has(self.slo.ttft) || has(self.slo.tpot)"
    " || has(self.slo.e2e) || self.classes.exists(k, has(k.slo))"
)


class Spec(Block):
    """What is tested against what, on which share of the traffic, by which criteria, and for how long."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "self.criteria.all(c, c.class in ['', 'default'] || self.classes.exists(k, k.name == c.class))",
                "a criterion names a class that spec.classes does not have",
            ),
            (
                "self.sampling.classRates.all(r, r.class == 'default' || self.classes.exists(k, k.name == r.class))",
                "sampling.classRates names a class that spec.classes does not have",
            ),
            (
                "size(self.sampling.classRates) == 0 || self.criteria.all(c, c.class != '')",
                "with sampling.classRates every criterion must name a class: all together some would count too often",
            ),
            (
                f"self.mirror.replicas == 1 || !({_NEEDS_BODY})",
                "mirror.replicas above 1 needs a key that capture can see: a header or the credential, without Lineage",
            ),
            (
                "self.mirror.replicas == 1 || self.capture.mode != 'External' || self.sampling.unit != 'Conversation'",
                "mirror.replicas above 1 in mode External needs unit Request or Key: conversations would be scattered",
            ),
            (
                "self.admission.maxInFlight >= self.mirror.replicas",
                "admission.maxInFlight is divided among the mirror's replicas and must not be below their number",
            ),
            (
                "self.admission.queue.maxLength == 0 || self.admission.queue.maxLength >= self.mirror.replicas",
                "admission.queue.maxLength is divided among the mirror's replicas and must not be below their number",
            ),
            (
                "!has(self.livePathGuard) || self.capture.mode != 'External'",
                "livePathGuard needs an Envoy of our own: in mode External customers are not seen",
            ),
            (_WITHIN_SLO_NEEDS_SLO, "a criterion on WithinSLO needs a limit in spec.slo or in the slo of a class"),
            (
                "duration(self.endConditions.minDuration) <= duration(self.duration)",
                "endConditions.minDuration (default 24h) must not exceed duration",
            ),
            (
                "!has(self.capture.proxy) || self.capture.proxy.serviceName != self.primary.service.name",
                "capture.proxy.serviceName must differ from the primary's Service",
            ),
            (
                "!has(self.capture.external) || self.capture.external.serviceName != self.primary.service.name",
                "capture.external.serviceName must differ from the primary's Service",
            ),
        )
    )

    primary: Primary
    """The live system."""
    capture: Capture
    """Where and what to copy."""
    sampling: Sampling = Sampling()
    """Which share of the traffic is copied."""
    admission: Admission = Admission()
    """Limits on the work the arms are given."""
    mirror: Mirror = Mirror()
    """The receiver of the copies."""
    arms: Arms
    """The receivers that are compared."""
    hardware: Hardware = Hardware()
    """Where the arms run and what must be equal there."""
    classes: tuple[TrafficClass, ...] = Field(
        default=(),
        max_length=MAX_CLASSES,
        json_schema_extra=rules(
            ("self.all(c, self.exists_one(d, d.name == c.name))", "every class needs a name of its own")
        ),
    )
    """Classes of requests in the order they are tried."""
    slo: SLO = SLO()
    """Service level objective of all classes without one of their own."""
    coverage: Coverage = Coverage()
    """How much of the selected traffic must have been measured."""
    comparison: Comparison | None = None
    """How answers are compared."""
    criteria: tuple[Criterion, ...] = Field(min_length=1, max_length=MAX_CRITERIA, json_schema_extra=map_by("name"))
    """What must hold for the verdict Pass."""
    duration: Duration = Field(
        default=Duration("168h"),
        json_schema_extra=rules(
            (
                "duration(self) > duration('0s') && duration(self) <= duration('720h')",
                "duration must be above 0s and at most 720h (30 days)",
            )
        ),
    )
    """Counted time after which the run ends; once started it can only be shortened."""
    end_conditions: EndConditions = EndConditions()
    """When the run may end earlier."""
    start_deadline: Duration = Field(
        default=Duration("30m"),
        json_schema_extra=rules(
            (
                "duration(self) > duration('0s') && duration(self) <= duration('24h')",
                "startDeadline must be above 0s and at most 24h",
            )
        ),
    )
    """Longest time from creation to the first counted pair; later the run ends as inconclusive."""
    live_path_guard: LivePathGuard | None = None
    """When the customers' own path ends the run."""
    suspend: bool = False
    """Whether copying is paused; the clock of the run goes on."""
    stop: Stop = Stop()
    """An early end by hand."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """All classes, the implied one last."""
        return (*(c.name for c in self.classes), DEFAULT_CLASS)

    @property
    def arm_names(self) -> tuple[str, ...]:
        """All arms, the baseline first."""
        return ("baseline", "candidate", "control") if self.arms.control == "Enabled" else ("baseline", "candidate")


__all__ = [
    "DEFAULT_CLASS",
    "MAX_CLASSES",
    "MAX_CRITERIA",
    "SLO",
    "Admission",
    "ArmTemplate",
    "Arms",
    "Candidate",
    "Capture",
    "CaptureExternal",
    "CaptureProxy",
    "ClassCondition",
    "ClassCoverage",
    "ClassRate",
    "Comparison",
    "CountRange",
    "Coverage",
    "Criterion",
    "Duration",
    "EndConditions",
    "Hardware",
    "Latency",
    "LivePathGuard",
    "Metric",
    "Mirror",
    "ObjectRef",
    "PerSecond",
    "Percent",
    "Primary",
    "Queue",
    "Sampling",
    "SamplingKey",
    "SecretKeyRef",
    "ServicePort",
    "Size",
    "Spec",
    "Stop",
    "TrafficClass",
    "Warmup",
]
