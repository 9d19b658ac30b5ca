"""Blocks of the spec about the arms: what they start as, what differs, where they run.

Bounds and rules only; the spec as a whole is in `spec`. This module must not decide anything.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from shadowrun_operator.api.block import (
    AS_SET,
    QUALIFIED,
    Block,
    Label,
    LabelKey,
    LabelValue,
    ObjectName,
    Opaque,
    Port,
    map_by,
    rules,
)
from shadowrun_operator.api.quantities import Duration

ModelName = Annotated[str, StringConstraints(max_length=253)]

_PORT_NUMBER = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
HttpURL = Annotated[
    str,
    StringConstraints(pattern=f"^http://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:{_PORT_NUMBER})?$", max_length=260),
]
"""A host and perhaps a port, without TLS and without a path: copies keep the path they came with."""


class ObjectRef(Block):
    """An object of the run's namespace."""

    name: ObjectName
    """Name of the object."""


class ExternalArms(Block):
    """Arms that somebody else runs: no pods are made for them, and their hardware cannot be seen."""

    baseline_url: HttpURL = Field(alias="baselineURL")
    """Where the baseline answers, such as http://chat-old.models.svc:8000; plain HTTP, never the primary itself."""
    candidate_url: HttpURL = Field(alias="candidateURL")
    """Where the candidate answers."""
    control_url: HttpURL | None = Field(default=None, alias="controlURL")
    """Where the control answers; needed with control Enabled."""

    @property
    def urls(self) -> dict[str, str]:
        """Every URL by the name of its field."""
        control = {} if self.control_url is None else {"controlURL": self.control_url}
        return {"baselineURL": self.baseline_url, "candidateURL": self.candidate_url, **control}


_SOURCES = ("deploymentRef", "statefulSetRef", "podTemplate", "external", "leaderWorkerSetRef")


class ArmTemplate(Block):
    """What every arm starts as: exactly one of these. Nothing that is named here is ever modified."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                " + ".join(f"(has(self.{source}) ? 1 : 0)" for source in _SOURCES) + " == 1",
                f"exactly one of {', '.join(_SOURCES[:-1])} and {_SOURCES[-1]} must be set",
            )
        )
    )

    deployment_ref: ObjectRef | None = None
    """Deployment whose pod template every arm copies."""
    stateful_set_ref: ObjectRef | None = None
    """StatefulSet whose pod template every arm copies; arms are Deployments and get no claims of their own."""
    pod_template: Opaque | None = None
    """Pod template written out here, {metadata: …, spec: {containers: …}}, that every arm copies."""
    external: ExternalArms | None = None
    """Arms that exist already behind URLs."""
    leader_worker_set_ref: ObjectRef | None = None
    """LeaderWorkerSet whose groups of pods that serve together every arm copies; arms are LeaderWorkerSets too."""

    @property
    def grouped(self) -> bool:
        """Whether replicas of arms are groups of pods."""
        return self.leader_worker_set_ref is not None

    def url_of(self, arm: str) -> str:
        """Where an arm answers that others run; "" for any other."""
        given = self.external
        if given is None:
            return ""
        urls = {"baseline": given.baseline_url, "candidate": given.candidate_url, "control": given.control_url}
        return urls.get(arm) or ""


ImageName = Annotated[str, StringConstraints(min_length=1, max_length=512)]
Argument = Annotated[str, StringConstraints(max_length=4096)]
EnvName = Annotated[str, StringConstraints(pattern="^[-._a-zA-Z][-._a-zA-Z0-9]*$", min_length=1, max_length=253)]


class EnvVar(Block):
    """An environment variable with a plain value."""

    name: EnvName
    """Name of the variable."""
    value: Argument = ""
    """Its value, instead of whatever the template gives it."""


_SHORTCUT = "has(self.candidate.image) || has(self.candidate.args) || size(self.candidate.env) > 0"


class Candidate(Block):
    """What is under test, and nothing else: the only difference between the baseline and the candidate."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                f"!has(self.container) || {_SHORTCUT.replace('candidate.', '')}",
                "candidate.container says whose image, args or env changes: set one of them, or leave it out",
            )
        )
    )

    patch: Opaque = Field(default={})
    """Strategic merge patch of the pod template, such as {spec: {containers: …}}; empty for a test of equal arms.

    Of the pods of a LeaderWorkerSet it changes leaders and workers: containers by their names, all else in both.
    """
    image: ImageName | None = None
    """Image of the container that serves; short for a patch of it."""
    args: tuple[Argument, ...] | None = Field(default=None, max_length=128)
    """Arguments of the container that serves, instead of the template's; short for a patch of them."""
    env: tuple[EnvVar, ...] = Field(default=(), max_length=64, json_schema_extra=map_by("name"))
    """Environment variables of the container that serves, beside or instead of the template's."""
    container: Label | None = None
    """Container that image, args and env are of; the template's first when absent."""
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


_BEHIND_URLS = "has(self.template.external)"


class Arms(Block):
    """The receivers of the copies: baseline, candidate and, if enabled, control."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                f"!{_BEHIND_URLS} || has(self.template.external.controlURL) == (self.control == 'Enabled')",
                "template.external needs a controlURL with control Enabled, and takes none without",
            ),
            (
                f"!{_BEHIND_URLS} || !({_SHORTCUT})",
                "arms behind URLs are changed where they run: candidate takes no image, args and env for them",
            ),
            (
                f"!{_BEHIND_URLS} || (self.replicas == 1 && !has(self.port) && size(self.egress) == 0)",
                "no pods are made for arms behind URLs: leave replicas, port and egress out",
            ),
        )
    )

    template: ArmTemplate
    """What every arm starts as."""
    candidate: Candidate
    """What is under test."""
    control: Literal["Enabled", "Disabled"] = "Disabled"
    """A second baseline that shows how much two equal arms differ; a run whose control differs is inconclusive."""
    replicas: int = Field(default=1, ge=1, le=64)
    """Pods of each arm; groups of pods with template.leaderWorkerSetRef."""
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
    crossover: Literal["Enabled", "Disabled"] = "Disabled"
    """Whether baseline and candidate change nodes after half of the duration, so that no node decides the verdict."""

    @property
    def changes_places(self) -> bool:
        """Whether they do."""
        return self.crossover == "Enabled"
