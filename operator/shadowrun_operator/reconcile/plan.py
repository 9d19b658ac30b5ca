"""`Plan`: all that should be done after one observation, as data. Types only; `cluster.apply` carries it out.

Order: the record and the books are stored, then the steps run one after another (the first that fails ends them,
unless it is a `Delete`; a `PatchCandidate` that is refused ends them too, and is no failure), then the configuration is
pushed, then the status is written, then events are recorded. Every step may be repeated.
"""

from dataclasses import dataclass
from typing import Literal

from shadowrun_mirror.config import MirrorConfig

from shadowrun_operator.api.status import Status
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile.record import RunRecord


@dataclass(frozen=True)
class Create:
    """Make the object; one that is there already stays as it is."""

    manifest: Manifest


@dataclass(frozen=True)
class Apply:
    """Server-side apply."""

    manifest: Manifest


@dataclass(frozen=True)
class Merge:
    """JSON merge patch, which leaves alone what the manifest does not name; made where it is not there."""

    manifest: Manifest


@dataclass(frozen=True)
class PatchCandidate:
    """Strategic-merge patch of the candidate, an object of ours, with the user's change in it."""

    name: str
    body: Manifest


@dataclass(frozen=True)
class Delete:
    """Delete; nothing happens where it is gone."""

    kind: str
    name: str


@dataclass(frozen=True)
class EditRoute:
    """Edit a user's HTTPRoute as it is at that moment: have this filter for the Service in the rule, or none at all.

    Nothing else of the route changes, and nothing happens where the route is gone or needs no change.
    """

    name: str
    service: str
    rule: str = ""
    wanted: Manifest | None = None


Step = Create | Apply | Merge | PatchCandidate | Delete | EditRoute


@dataclass(frozen=True)
class Push:
    """Give this configuration to the mirrors at these addresses."""

    config: MirrorConfig
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Event:
    """Something a person should notice."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do now, and when (seconds from now) to look again at the latest."""

    status: Status
    requeue_after: float
    record: RunRecord | None = None  # None: nothing to store
    checkpoint: bool = False  # store the books although the record is unchanged
    steps: tuple[Step, ...] = ()
    push: Push | None = None
    events: tuple[Event, ...] = ()
    released: bool = False  # everything of a deleted run is gone

    @property
    def writes(self) -> bool:
        """Whether any object but the ShadowRun itself is to be made, changed or removed."""
        return bool(self.steps) or self.record is not None or self.checkpoint
