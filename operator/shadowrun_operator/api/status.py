"""The status of a ShadowRun: what the operator has seen and concluded, bounded so that it stays below 16 KiB.

The schema in the CRD is generated from these models; without it the API server would prune the status. Times are
RFC 3339 strings in UTC. Every number of requests is exact; tokens are estimated from bytes unless `tokenBasis` says
otherwise. This module must not decide anything.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, StringConstraints
from pydantic_core import CoreSchema, core_schema

from shadowrun_operator.api.block import Block, ShortName, map_by

MESSAGE_LENGTH = 512
CONDITION_LENGTH = 256
NOTE_LENGTH = 120
"""Longest message of the run, of a condition, and of a criterion; see `shortened`."""

MAX_IMAGES = 1
MAX_NODES = 2
"""Most images and nodes of an arm that the status shows; the report has all."""

MAX_DIFFERENCES = 5
"""Most paths at which the arms differ that the status shows; the report has all."""

MAX_DROPPED = 6
"""Most reasons of drops that the status shows, those of the most requests; the report has all."""


def shortened(text: str, length: int) -> str:
    """The text, cut with an ellipsis where it is longer than `length` characters."""
    return text if len(text) <= length else text[: length - 1] + "…"


@dataclass(frozen=True)
class Cut:
    """Text for people: cut where it is too long, so that no status is ever refused for a long sentence."""

    length: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """A string of bounded length, shortened before it is checked."""
        return core_schema.no_info_before_validator_function(
            lambda value: shortened(value, self.length) if isinstance(value, str) else value,
            core_schema.str_schema(max_length=self.length),
        )


def _first(number: int) -> BeforeValidator:
    """Keeps the first entries of a list that the report has in full."""

    def cut(value: Any) -> Any:
        return tuple(value)[:number] if isinstance(value, list | tuple) else value

    return BeforeValidator(cut)


Phase = Literal["Pending", "Preparing", "WarmingUp", "Running", "Finishing", "Complete"]
Verdict = Literal["Pass", "Fail", "Inconclusive"]
Outcome = Literal["Pass", "Fail", "Inconclusive"]
ConditionStatus = Literal["True", "False", "Unknown"]
DifferenceKind = Literal["Failed", "FieldMissing", "FieldExtra", "Type", "Length", "Order", "Value"]
Arm = Literal["baseline", "candidate", "control"]

Count = Annotated[int, Field(ge=0, le=999_999_999_999)]
Tokens = Annotated[int, Field(ge=0, le=999_999_999_999_999)]
Time = Annotated[
    str, StringConstraints(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$", max_length=20)
]
Word = Annotated[str, StringConstraints(pattern="^[A-Za-z]([A-Za-z0-9]*)?$", min_length=1, max_length=40)]
ShortWord = Annotated[str, StringConstraints(pattern="^[A-Za-z]([A-Za-z0-9]*)?$", min_length=1, max_length=16)]
LossReason = Annotated[str, StringConstraints(pattern="^[A-Za-z]([A-Za-z0-9]*)?$", min_length=1, max_length=24)]
Message = Annotated[str, Cut(MESSAGE_LENGTH)]
ConditionMessage = Annotated[str, Cut(CONDITION_LENGTH)]
Note = Annotated[str, Cut(NOTE_LENGTH)]
Image = Annotated[str, Cut(200)]
Accelerator = Annotated[str, Cut(96)]
Shares = Annotated[str, Cut(64)]
Node = Annotated[str, Cut(63)]
Version = Annotated[str, Cut(40)]
PATH_LENGTH = 64
Path = Annotated[str, Cut(PATH_LENGTH)]
Interval = Annotated[str, Cut(32)]
Share = Annotated[str, Cut(8)]
Figure = Annotated[str, Cut(16)]
"""A number with its unit for people, such as "1.42 s" or "98.1%"; machines read the report instead."""


class ArmFunnel(Block):
    """The last steps of the funnel for one arm: admitted = completed + failed + inFlight."""

    name: Arm
    """Name of the arm."""
    completed: Count = 0
    """Answered in full."""
    within_slo: Count = Field(default=0, alias="withinSLO")
    """Answered in full and within the service level objective."""
    failed: Count = 0
    """Not answered properly."""
    in_flight: Count = 0
    """Not finished yet; what was in flight when a mirror died is dropped instead."""


class FunnelCounts(Block):
    """The funnel in one unit: seen = notSelected + selected; selected = dropped + inTransit + admitted."""

    seen: Count = 0
    """In scope at capture."""
    not_selected: Count = 0
    """Left out by sampling or by the list of models."""
    selected: Count = 0
    """To be measured."""
    dropped: Count = 0
    """Selected and given to no arm."""
    in_transit: Count = 0
    """Selected by capture and not yet counted by the mirror."""
    admitted: Count = 0
    """Given to every arm."""
    arms: tuple[ArmFunnel, ...] = Field(default=(), max_length=3, json_schema_extra=map_by("name"))
    """What became of the admitted, for each arm."""


class Funnel(Block):
    """What became of the traffic in scope over the counted windows."""

    requests: FunnelCounts = FunnelCounts()
    """In requests."""
    tokens: FunnelCounts = FunnelCounts()
    """In prompt tokens."""
    token_basis: Literal["Estimated", "Counted"] = "Estimated"  # noqa: S105
    """Whether tokens are estimated from bytes or counted by an engine."""


class Dropped(Block):
    """A reason for which selected requests reached no arm."""

    reason: LossReason
    """Machine word of the reason."""
    requests: Count = 0
    """How many requests."""
    tokens: Tokens = 0
    """How many prompt tokens."""


class Failure(Block):
    """A reason for which arms did not answer properly, in requests of each arm."""

    reason: ShortWord
    """Machine word of the reason."""
    baseline: Count = 0
    """How many requests of the baseline."""
    candidate: Count = 0
    """How many requests of the candidate."""
    control: Count = 0
    """How many requests of the control."""


class CriterionStatus(Block):
    """What the evidence says about one criterion."""

    name: ShortName
    """Name of the criterion."""
    traffic_class: Annotated[str, StringConstraints(max_length=32)] = Field(default="", alias="class")
    """Class of requests it looks at; empty means all together."""
    outcome: Outcome
    """Whether it is proven, refuted or open."""
    observed: Figure = ""
    """The figure of the candidate as measured."""
    baseline: Figure = ""
    """The same figure of the baseline."""
    limit: Figure = ""
    """What the difference of the shares had to exceed, in points."""
    interval: Interval = ""
    """Bounds of that difference, in points, which the outcome rests on."""
    pairs: Count = 0
    """Counted pairs it rests on."""
    needed: Count = 0
    """Estimated further pairs until it is decided; 0 when it is decided or cannot be told."""
    reason: Annotated[str, StringConstraints(max_length=16)] = ""
    """Machine word for why it is open; empty when it is decided."""
    message: Note = ""
    """A sentence with the numbers."""
    informational: bool = False
    """Whether it takes no part in the verdict."""


class ClassStatus(Block):
    """How much of one class was measured."""

    name: ShortName
    """Name of the class."""
    selected_requests: Count = 0
    """Selected requests."""
    selected_tokens: Tokens = 0
    """Selected prompt tokens."""
    pairs: Count = 0
    """Requests that became pairs."""
    pair_tokens: Tokens = 0
    """Prompt tokens of those."""
    request_coverage: Figure = ""
    """Share of the selected requests that became pairs."""
    token_coverage: Figure = ""
    """Share of the selected tokens that became pairs."""


class Difference(Block):
    """A way in which answers of the candidate differ from the baseline's."""

    kind: DifferenceKind
    """Machine word of the first difference that was found in an answer."""
    pairs: Count = 0
    """How many pairs."""


class ComparisonStatus(Block):
    """How often the candidate's answer was the baseline's; no part of the verdict."""

    compared: Count = 0
    """Pairs of which that can be said."""
    matched: Count = 0
    """Pairs whose answers were equal."""
    match_rate: Share = ""
    """What the share of matches is at least, beyond chance; empty while there are too few pairs to say."""
    control: Share = ""
    """Share of matches of the control, the baseline's equal."""
    differed: tuple[Difference, ...] = Field(default=(), max_length=7, json_schema_extra=map_by("kind"))
    """In what the others differ."""


class ArmStatus(Block):
    """What one arm runs and where."""

    name: Arm
    """Name of the arm."""
    ready: bool = False
    """Whether all of its pods are ready."""
    images: Annotated[tuple[Image, ...], _first(MAX_IMAGES)] = Field(default=(), max_length=MAX_IMAGES)
    """Image of the first container as it runs, with its digest; the report has all of them."""
    nodes: Annotated[tuple[Node, ...], _first(MAX_NODES)] = Field(default=(), max_length=MAX_NODES)
    """Nodes its pods run on; the report has all of them."""
    accelerator: Accelerator = ""
    """What the matched labels of its nodes say."""


class Versions(Block):
    """Versions of what took part."""

    operator: Version = ""
    """Version of the operator."""
    envoy: Version = ""
    """Version of Envoy."""
    kubernetes: Version = ""
    """Version of the API server."""


class Provenance(Block):
    """What is needed to say later what the verdict was about."""

    spec_hash: Annotated[str, StringConstraints(max_length=64)] = ""
    """Hash of the parts of the spec that decide the evidence, taken at acceptance."""
    seed_fingerprint: Annotated[str, StringConstraints(max_length=64)] = ""
    """Short hash of the sampling seed."""
    versions: Versions = Versions()
    """Versions of what took part."""
    window: Count = 0
    """Number of the window; 0 is the warm-up, 1 counts. With hardware.crossover 2 is a warm-up again, and 3 counts."""
    window_version: Count = 0
    """Version of the configuration that the window began with."""
    capture: Annotated[str, StringConstraints(max_length=16)] = ""
    """How copies were made, as spec.capture.mode says."""
    hours_seen: tuple[Annotated[int, Field(ge=0, le=23)], ...] = Field(default=(), max_length=24)
    """Hours of the day (UTC) in which pairs were counted."""


class ReportRef(Block):
    """Where the full report is."""

    name: Annotated[str, StringConstraints(max_length=63)]
    """Name of the ConfigMap, in the run's namespace."""


class Condition(Block):
    """One condition, after the conventions of Kubernetes."""

    type: ShortWord
    """Type of the condition."""
    status: ConditionStatus
    """Whether it holds."""
    observed_generation: Count = 0
    """Generation of the object that it was derived from."""
    last_transition_time: Time
    """When its status last changed."""
    reason: Word
    """Machine word for why."""
    message: ConditionMessage = ""
    """A sentence for people."""


class Status(Block):
    """What has been seen and concluded; written by the operator only."""

    observed_generation: Count = 0
    """Generation of the object that this status was derived from."""
    phase: Phase = "Pending"
    """Summary of the conditions for people."""
    verdict: Verdict | None = None
    """Conclusion of the run, set only at its end."""
    reason: Word | None = None
    """Machine word for the verdict."""
    message: Message = ""
    """A sentence with the numbers the verdict rests on, or with what the run is waiting for."""
    start_time: Time | None = None
    """When the first counted pair was complete; the duration counts from here."""
    expiry_time: Time | None = None
    """When everything ends at the latest, whatever else happens; written once, at acceptance."""
    completion_time: Time | None = None
    """When the run was complete and everything removed, but what spec.keepArms keeps."""
    arms_kept_until: Time | None = None
    """Until when the arms stay after the end, for debugging; absent when they are gone."""
    end_reason: Word | None = None
    """Why the run ended."""
    attempt: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """How many runs of the same spec have copied traffic in this namespace, this one included; 0 before it does."""
    pairs: Count = 0
    """Counted pairs: requests that every arm has finished, answered or not."""
    within_slo: Shares = Field(default="", alias="withinSLO")
    """Shares of answers within the service level objective, candidate and baseline."""
    funnel: Funnel = Funnel()
    """What became of the traffic in scope."""
    dropped: Annotated[tuple[Dropped, ...], _first(MAX_DROPPED)] = Field(
        default=(), max_length=MAX_DROPPED, json_schema_extra=map_by("reason")
    )
    """Why selected requests reached no arm, by the reasons of the most requests; the report has all."""
    failures: tuple[Failure, ...] = Field(default=(), max_length=10, json_schema_extra=map_by("reason"))
    """Why arms did not answer properly."""
    criteria: tuple[CriterionStatus, ...] = Field(default=(), max_length=10, json_schema_extra=map_by("name"))
    """What the evidence says about each criterion."""
    classes: tuple[ClassStatus, ...] = Field(default=(), max_length=9, json_schema_extra=map_by("name"))
    """How much of each class was measured."""
    comparison: ComparisonStatus | None = None
    """How the arms' answers compare; absent where they are not compared."""
    arms: tuple[ArmStatus, ...] = Field(default=(), max_length=3, json_schema_extra=map_by("name"))
    """What each arm runs and where."""
    difference: Annotated[tuple[Path, ...], _first(MAX_DIFFERENCES)] = Field(default=(), max_length=MAX_DIFFERENCES)
    """Where the candidate's pods differ from the baseline's, such as spec.containers[engine].args; empty if nowhere."""
    provenance: Provenance = Provenance()
    """What the verdict is about."""
    report_ref: ReportRef | None = None
    """Where the full report is."""
    conditions: tuple[Condition, ...] = Field(default=(), max_length=7, json_schema_extra=map_by("type"))
    """The conditions of the run."""
