"""`RunRecord` and `Books`: what must outlive the operator, as kept in the ConfigMap `<run>-evidence`.

The record holds what was decided and can't be decided twice; how far it is filled is how far the run is. The books hold
the latest snapshot of every replica that ever counted for the run. Types only: nothing is decided here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

import msgspec
from shadowrun_mirror.config import WARM_UP, Indicator
from shadowrun_mirror.evidence import CaptureEvidence, Evidence, Window

from shadowrun_operator.judge.facts import SpecChange
from shadowrun_operator.judge.live_path import Watch
from shadowrun_operator.judge.merge import COUNTED, SECOND_HALF, SECOND_WARM_UP, latest
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile.rate import Pace
from shadowrun_operator.reconcile.standing import Standing


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Times are UTC seconds; 0 means not yet. Empty `indicators` mean that nothing is counted yet."""

    run_uid: str
    spec_hash: str
    spec: dict[str, Any]  # the frozen part of the spec
    template: dict[str, Any]  # the primary's pod template as it was at acceptance: every arm starts from it
    expiry: float
    group: dict[str, Any] = {}  # what arms take of a LeaderWorkerSet, in place of the template (`manifests.groups`)
    copying_since: float = 0.0
    warming_since: float = 0.0  # when the first pair of the warm-up was complete (`reconcile.clocks.began`)
    told_to_count: float = 0.0  # when the mirrors were first told to count
    counting_since: float = 0.0  # when the first counted pair was complete
    arms: dict[str, str] = {}  # which Deployments the copies went to, by arm (`objects.arm_identities`)
    attempt: int = 0  # how many runs of this spec have copied traffic, this one included
    warmed: Window | None = (
        None  # what the warm-up had counted when the arms were warm (`judge.merge.calibration_mark`)
    )
    indicators: tuple[Indicator, ...] = ()  # with the thresholds that were frozen when the warm-up ended
    nodes: dict[str, tuple[str, ...]] = {}  # of arms that change places: where they stood when copying began
    changed_at: float = 0.0  # when they were told to
    placed_at: float = 0.0  # when both stood on each other's nodes; until then they are not in `arms`
    rewarming_since: float = 0.0  # when the first pair after that was complete (`reconcile.clocks.began`)
    second_half: float = 0.0  # since when pairs count again
    pace: Pace = Pace()  # how far the sampling rates have been lowered
    changes: tuple[SpecChange, ...] = ()  # of the spec, since copying began (`reconcile.history`)
    watch: Watch | None = None  # what was seen of customers with and without copying
    clocks: dict[str, float] = {}  # by pod: how far its clock was found off (`reconcile.clocks`)
    apart: dict[str, float] = {}  # the same of the two mirrors that were furthest apart in one look
    restarts: dict[str, int] = {}  # how often containers were started anew (`reconcile.restarts`)
    standings: dict[str, Standing] = {}  # since when each criterion, and the verdict (""), has been decided as it is
    ended_at: float = 0.0
    end_reason: str = ""
    end_message: str = ""

    @property
    def source(self) -> Manifest:
        """What the arms start from, in the shape of the workload that it came from."""
        if not self.group:
            return {"metadata": {"name": "template"}, "spec": {"template": self.template}}
        meta = {"name": "template", "annotations": self.group["annotations"]}
        return {"metadata": meta, "spec": self.group["spec"]}

    @property
    def rate_share(self) -> int:
        """Millionths of the spec's rates that are copied now."""
        return self.pace.share

    @property
    def window(self) -> int:
        """The window that copies belong to now."""
        if self.changed_at:
            return SECOND_HALF if self.second_half else SECOND_WARM_UP
        return COUNTED if self.indicators else WARM_UP

    @property
    def changing_places(self) -> bool:
        """Whether the arms are between their places: no copy is made meanwhile."""
        return self.changed_at > 0 and not self.placed_at

    @property
    def places(self) -> dict[str, tuple[str, ...]]:
        """The nodes that arms which change places have to be on now; none before they are known."""
        first, second = names.BASELINE, names.CANDIDATE
        if not self.nodes or not self.changed_at:
            return self.nodes
        return {first: self.nodes[second], second: self.nodes[first]}


Snapshot = TypeVar("Snapshot", Evidence, CaptureEvidence)


@dataclass(frozen=True)
class Books:
    """Latest snapshot per identity (`judge.merge.identity`)."""

    mirrors: dict[str, Evidence] = field(default_factory=dict)
    captures: dict[str, CaptureEvidence] = field(default_factory=dict)

    def with_readings(self, run_uid: str, mirrors: Iterable[Evidence], captures: Iterable[CaptureEvidence]) -> "Books":
        """The books with newer snapshots entered; a lower sequence never replaces a higher one.

        What another run's replica says is left out.
        """
        return Books(
            mirrors=_entered(self.mirrors, (e for e in mirrors if e.run_uid == run_uid)),
            captures=_entered(self.captures, (e for e in captures if e.run_uid == run_uid)),
        )

    def newest_mirrors(self) -> dict[str, Evidence]:
        """By pod uid: what the process now running there counted."""
        return {e.source.pod_uid: e for e in sorted(self.mirrors.values(), key=lambda e: e.source.time)}

    def newest_captures(self) -> dict[str, CaptureEvidence]:
        """By pod uid: what the Envoy now running there counted."""
        return {e.source.pod_uid: e for e in sorted(self.captures.values(), key=lambda e: e.source.time)}


def _entered(known: dict[str, Snapshot], readings: Iterable[Snapshot]) -> dict[str, Snapshot]:
    return latest(chain(known.values(), readings))
