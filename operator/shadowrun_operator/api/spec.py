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
from shadowrun_operator.api.life import DailyWindow, KeepArms, Schedule
from shadowrun_operator.api.quantities import Duration, Latency, Percent, PerSecond, Size
from shadowrun_operator.api.traffic import (
    Admission,
    Capture,
    CaptureExternal,
    CaptureHTTPRoute,
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
    """Least time since the first counted pair; only a proven failure, a stop, the expiry or trouble ends it earlier."""
    pairs: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Counted pairs after which the run ends."""
    tokens: int | None = Field(default=None, ge=1, le=1_000_000_000_000_000)
    """Prompt tokens of counted pairs after which the run ends."""
    gpu_hours: int | None = Field(default=None, ge=1, le=1_000_000)
    """Accelerator hours, by the limits of all arms' pods since copying began, that end it; not before minDuration."""
    decided: bool = False
    """Whether the run ends once every criterion is decided, and at any time once one is refuted."""
    match_rate: Percent | None = Field(
        default=None,
        json_schema_extra=rules(
            (
                "self.matches('[1-9]') && !self.startsWith('100')",
                "matchRate must be above 0% and below 100%: no number of pairs proves that all answers match",
            )
        ),
    )
    """Share of matches which, once proven over 200 compared pairs or more, ends the run; the verdict ignores it."""


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


_HARDWARE_UNKNOWN = (
    "self.hardware.policy == 'Report' && size(self.hardware.matchLabelKeys) == 0"
    " && size(self.hardware.nodeSelector) == 0"
)


_FIXED_CLASSES = "self.classes.all(k, !has(k.when.turns) && !has(k.when.promptTokens))"
"""A conversation is of one class from its beginning to its end."""

_COMPARED = "has(self.comparison) && self.comparison.output == 'Parity'"
_STAY = "self.hardware.crossover == 'Disabled'"
_WARM_UP = "duration(self.arms.warmup.duration)"
_ENDS_BY_COUNT = " || ".join(f"has(self.endConditions.{end})" for end in ("pairs", "tokens", "gpuHours", "matchRate"))


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
                f"size(self.sampling.classRates) == 0 || self.sampling.unit != 'Conversation' || {_FIXED_CLASSES}",
                "with classRates and unit Conversation no class may be by turns or promptTokens: conversations grow",
            ),
            (
                f"self.mirror.replicas == 1 || !({_NEEDS_BODY})",
                "mirror.replicas above 1 needs a key that capture can see: a header or the credential, without Lineage",
            ),
            (
                "self.mirror.replicas == 1 || self.capture.mode == 'Proxy' || self.sampling.unit != 'Conversation'",
                "mirror.replicas above 1 without mode Proxy needs unit Request or Key, or conversations are scattered",
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
                "!has(self.livePathGuard) || self.capture.mode == 'Proxy'",
                "livePathGuard needs an Envoy of our own: in modes External and HTTPRoute customers are not seen",
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
            (
                "!has(self.capture.httpRoute) || self.capture.httpRoute.serviceName != self.primary.service.name",
                "capture.httpRoute.serviceName must differ from the primary's Service",
            ),
            (
                f"!has(self.arms.template.external) || ({_HARDWARE_UNKNOWN})",
                "nobody sees the nodes of arms behind URLs: hardware.policy must be Report, and its labels left out",
            ),
            (
                "!has(self.arms.template.external) || !has(self.endConditions.gpuHours)",
                "endConditions.gpuHours counts what the arms' pods hold, and arms behind URLs have none here",
            ),
            (
                f"{_STAY} || !has(self.arms.template.external)",
                "hardware.crossover moves the arms' pods, and arms behind URLs have none here: leave it out",
            ),
            (
                f"{_STAY} || !has(self.arms.template.leaderWorkerSetRef)",
                "hardware.crossover moves pods that serve by themselves, and not groups of them: leave it out",
            ),
            (
                f"{_STAY} || !({_ENDS_BY_COUNT})",
                "hardware.crossover is at half of duration: leave endConditions.pairs, tokens, gpuHours, matchRate out",
            ),
            (
                f"!has(self.endConditions.matchRate) || ({_COMPARED})",
                "endConditions.matchRate needs answers that are compared: set comparison.output to Parity",
            ),
            (
                f"{_STAY} || {_WARM_UP} + {_WARM_UP} < duration(self.duration)",
                "with hardware.crossover half of duration must be longer than arms.warmup.duration, which is repeated",
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
    """How answers are compared, which no verdict looks at; they are only measured when absent."""
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
    """Time since the first counted pair, pauses included, that ends the run; once started only ever shorter."""
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
    """Longest time from creation, or from schedule, to the first counted pair; later the run ends as inconclusive."""
    schedule: Schedule | None = None
    """When the run begins, and at which hours it copies; at once and at all hours when absent."""
    live_path_guard: LivePathGuard | None = None
    """When the customers' own path ends the run."""
    suspend: bool = False
    """Whether copying is paused; the clock of the run goes on."""
    stop: Stop = Stop()
    """An early end by hand."""
    keep_arms: KeepArms | None = None
    """Arms that stay for a while after the end, for debugging; they are removed with the rest when absent."""
    ttl_after_finished: Duration | None = None
    """Time after the end after which the ShadowRun is deleted, with evidence and report; kept when absent."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """All classes, the implied one last."""
        return (*(c.name for c in self.classes), DEFAULT_CLASS)

    @property
    def arm_names(self) -> tuple[str, ...]:
        """All arms, the baseline first."""
        return ("baseline", "candidate", "control") if self.arms.control == "Enabled" else ("baseline", "candidate")

    @property
    def keyed_arms(self) -> bool:
        """Whether each arm has several pods and what is drawn together has to keep to one of them."""
        return self.arms.replicas > 1 and self.sampling.unit != "Request"

    @property
    def made_arms(self) -> tuple[str, ...]:
        """The arms that pods are made for: all, or none where they exist already behind URLs."""
        return () if self.arms.template.external is not None else self.arm_names


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
    "CaptureHTTPRoute",
    "CaptureProxy",
    "ClassCondition",
    "ClassCoverage",
    "ClassRate",
    "Comparison",
    "CountRange",
    "Coverage",
    "Criterion",
    "DailyWindow",
    "Duration",
    "EndConditions",
    "Hardware",
    "KeepArms",
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
    "Schedule",
    "SecretKeyRef",
    "ServicePort",
    "Size",
    "Spec",
    "Stop",
    "TrafficClass",
    "Warmup",
]
