"""`ShadowRun`: the whole object as it is read from the API server. Types only: no decisions, no I/O."""

from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints

from shadowrun_operator.api.block import Block
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.api.status import Status, Time

GROUP = "shadowrun.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "ShadowRun"
PLURAL = "shadowruns"
SINGULAR = "shadowrun"
SHORT_NAME = "sr"

NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
NAME_LENGTH = 40
"""Names made from a run's name must fit a Service and a label, so a longer name is refused, never cut."""
GROUPED_NAME_LENGTH = 35
"""With arms that are LeaderWorkerSets: a label of each pod holds the name of its set, its group's number and a hash."""


class Metadata(Block):
    """The part of an object's metadata that matters here."""

    name: Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=NAME_LENGTH)]
    """Name of the object."""
    namespace: str = ""
    """Namespace of the object."""
    uid: str = ""
    """Identity of the object; a new object of the same name has another."""
    generation: int = 0
    """Version of the spec, counted by the API server."""
    resource_version: str = ""
    """Version of the whole object, opaque."""
    creation_timestamp: Time | None = None
    """When the object was created."""
    deletion_timestamp: Time | None = None
    """When deletion was asked for."""
    labels: dict[str, str] = Field(default={})
    """Labels of the object."""
    annotations: dict[str, str] = Field(default={})
    """Annotations of the object."""
    finalizers: tuple[str, ...] = ()
    """What deletion waits for."""


class ShadowRun(Block):
    """A time-boxed shadow experiment: is a change safe and faster, on copies of live traffic?"""

    metadata: Metadata
    """Name and identity."""
    spec: Spec
    """What is tested against what, and by which criteria."""
    status: Status = Status()
    """What has been seen and concluded."""

    @classmethod
    def parse(cls, body: Any) -> Self:
        """Read an object from its JSON form; raises `pydantic.ValidationError` naming the fields that are wrong."""
        return cls.model_validate(body)

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Namespace of the run."""
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        """Identity of the run."""
        return self.metadata.uid
