"""Blocks of the spec about the arms: what they start as, what differs, where they run.

Bounds and rules only; the spec as a whole is in `spec`. This module must not decide anything.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from shadowrun_operator.api.block import AS_SET, QUALIFIED, Block, LabelKey, LabelValue, ObjectName, Opaque, Port, rules
from shadowrun_operator.api.quantities import Duration

ModelName = Annotated[str, StringConstraints(max_length=253)]


class ObjectRef(Block):
    """An object of the run's namespace."""

    name: ObjectName
    """Name of the object."""


class ArmTemplate(Block):
    """What every arm starts as."""

    deployment_ref: ObjectRef
    """Deployment whose pod template every arm copies; the Deployment itself is never modified."""


class Candidate(Block):
    """What is under test, and nothing else: the only difference between the baseline and the candidate."""

    patch: Opaque = Field(default={})
    """Strategic merge patch of the pod template, such as {spec: {containers: …}}; empty for a test of equal arms."""
    model: ModelName = ""
    """Model name written into the candidate's copies; empty takes arms.model."""


class SecretKeyRef(Block):
    """A key of a Secret in the run's namespace."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[str, StringConstraints(pattern="^[-._a-zA-Z0-9]+$", min_length=1, max_length=253)] = "token"
    """Key inside the Secret."""


class Warmup(Block):
    """The time before anything counts: first the arms get warm, then the baseline's limits are taken."""

    duration: Duration = Duration("2m")
    """How long copies only warm the arms; these answers are used for nothing."""
    requests: int = Field(default=200, ge=0, le=100_000)
    """Pairs after that, in every class named by a criterion, from which the limits of latency criteria are taken."""


class Arms(Block):
    """The receivers of the copies: baseline, candidate and, if enabled, control."""

    template: ArmTemplate
    """What every arm starts as."""
    candidate: Candidate
    """What is under test."""
    control: Literal["Enabled", "Disabled"] = "Disabled"
    """A second baseline that shows how much two equal arms differ; a run whose control differs is inconclusive."""
    replicas: int = Field(default=1, ge=1, le=64)
    """Pods of each arm."""
    port: Port | None = None
    """Container port the arms serve on; the target port of the primary's Service when absent."""
    model: ModelName = ""
    """Model name written into every copy; empty keeps the client's."""
    credentials_secret_ref: SecretKeyRef | None = None
    """Credential that the copies carry instead of the caller's, sent as a bearer token."""
    warmup: Warmup = Warmup()
    """What happens before anything counts."""
    egress: tuple[Opaque, ...] = Field(default=(), max_length=16)
    """NetworkPolicy egress rules of the arms' pods, for instance to fetch weights; without any, port 53 only."""


class Hardware(Block):
    """Where the arms run, and what must be equal between their nodes."""

    match_label_keys: tuple[LabelKey, ...] = Field(default=(), max_length=16, json_schema_extra=AS_SET)
    """Node labels that must be present and equal on the nodes of all arms; a missing label is a mismatch."""
    node_selector: dict[str, LabelValue] = Field(
        default={},
        max_length=16,
        json_schema_extra=rules(
            (
                f"self.all(key, size(key) <= 317 && key.matches(r'{QUALIFIED}'))",
                "nodeSelector has a key that no label can have",
            )
        ),
    )
    """Labels of the node pool that all arms go to, added to the pod template's own."""
    policy: Literal["Require", "Report"] = "Require"
    """Whether unequal nodes end the run as inconclusive or are only reported."""
