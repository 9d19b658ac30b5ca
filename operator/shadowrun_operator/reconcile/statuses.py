"""The status that follows from an observation: conditions, arms, funnel, message. Pure; changes no state of the run."""

from shadowrun_operator.api.conditions import ConditionType, EndReason, Reason, set_condition
from shadowrun_operator.api.status import (
    MAX_DIFFERENCES,
    MESSAGE_LENGTH,
    PATH_LENGTH,
    ArmStatus,
    Condition,
    ConditionStatus,
    Phase,
    Provenance,
    Status,
    Versions,
    shortened,
)
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import content_hash
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.difference import difference
from shadowrun_operator.reconcile.hardware import HardwareFinding, accelerator, hardware_found
from shadowrun_operator.reconcile.objects import selected_side, takes_copies
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.record import RunRecord
from shadowrun_operator.reconcile.removal import stuck
from shadowrun_operator.reconcile.room import lacking_room
from shadowrun_operator.reconcile.route import filter_is_there
from shadowrun_operator.reconcile.schedule import pause

Said = tuple[ConditionStatus, str, str]
"""Status, reason and message of a condition."""


def status_of(
    seen: Observation,
    phase: Phase,
    message: str,
    *,
    record: RunRecord | None = None,
    accepted: Said | None = None,
) -> Status:
    """What the status was, with everything renewed that can be seen now.

    Without `accepted` an active run counts as accepted, and a finishing one as whatever it was. What was found of the
    arms is renewed only while they stand: their end says nothing about the run.
    """
    before = seen.run.status
    status = before.model_copy(
        update={
            "observed_generation": seen.run.metadata.generation,
            "phase": phase,
            "message": shortened(message, MESSAGE_LENGTH),
            "attempt": _attempt(record or seen.record) or before.attempt,
            "arms": arm_statuses(seen) if phase in ACTIVE or seen.arms_stand else before.arms,
            "difference": before.difference if (found := difference(seen)) is None else _shown(found),
            "conditions": _conditions(seen, phase, accepted, record or seen.record),
        }
    )
    if record is None:
        return status
    return status.model_copy(
        update={
            "expiry_time": before.expiry_time or times.written(record.expiry),
            "provenance": _provenance(seen, record),
        }
    )


def _shown(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(shortened(path, PATH_LENGTH) for path in paths[:MAX_DIFFERENCES])


def _attempt(record: RunRecord | None) -> int:
    return 0 if record is None else record.attempt


def with_condition(seen: Observation, status: Status, kind: ConditionType, said: Said) -> Status:
    """The status with one condition set."""
    return status.model_copy(update={"conditions": _set(seen, status.conditions, kind, said)})


def arm_statuses(seen: Observation) -> tuple[ArmStatus, ...]:
    """What each arm runs and where, as far as it has come."""
    found = []
    for arm in seen.run.spec.arm_names:
        pods = seen.pods_of(arm)
        if not pods:
            continue
        found.append(
            ArmStatus(
                name=arm,
                ready=seen.all_ready(arm),
                images=tuple(sorted({shortened(image, 200) for pod in pods for image in pod.images}))[:2],
                nodes=tuple(sorted({pod.node for pod in pods if pod.node}))[:4],
                accelerator=shortened(accelerator(seen, arm), 160),
            )
        )
    return tuple(found)


def _conditions(
    seen: Observation, phase: Phase, accepted: Said | None, record: RunRecord | None
) -> tuple[Condition, ...]:
    conditions = seen.run.status.conditions
    if accepted is None and phase in ACTIVE:
        accepted = ("True", Reason.ACCEPTED, Reason.ACCEPTED.sentence)
    said = _before_start(phase) if phase in ("Pending", "Complete") else _found(seen, phase)
    if record is not None and record.end_reason == EndReason.LIVE_PATH_HARMED:
        said[ConditionType.LIVE_PATH_HEALTHY] = ("False", Reason.HARMED, record.end_message)
    if accepted is not None:
        said[ConditionType.ACCEPTED] = accepted
    if phase != "Complete":
        paused = pause(seen.run.spec, seen.now) if phase in ACTIVE else None
        going_on = Reason.CHANGING_PLACES if record is not None and record.changing_places else Reason.ACTIVE
        reason = going_on if paused is None else paused.reason
        said[ConditionType.COMPLETE] = ("False", reason, reason.sentence)
        said[ConditionType.SUCCEEDED] = ("Unknown", Reason.ACTIVE, Reason.ACTIVE.sentence)
    for kind, words in said.items():
        conditions = _set(seen, conditions, kind, words)
    return conditions


def _before_start(phase: Phase) -> dict[ConditionType, Said]:
    """Of a run that has no objects; the end of any other follows from its status while finishing."""
    reason = Reason.NOT_STARTED if phase == "Complete" else Reason.PENDING
    return dict.fromkeys(_OF_OBJECTS, ("Unknown", reason, reason.sentence))


def _found(seen: Observation, phase: Phase) -> dict[ConditionType, Said]:
    """Facts are renewed while there is something to see, and never replaced by its absence."""
    removed: Said = ("False", Reason.REMOVED, Reason.REMOVED.sentence)
    receiver = names.MIRROR if seen.external else names.CAPTURE
    stands = phase in ACTIVE or seen.object("Deployment", receiver) is not None
    said = {
        ConditionType.CAPTURE_READY: _capture_ready(seen) if stands else removed,
        ConditionType.ARMS_READY: removed,
        ConditionType.LIVE_PATH_HEALTHY: _live_path(seen),
    }
    if phase in ACTIVE or seen.arms_stand:
        said[ConditionType.ARMS_READY] = _arms_ready(seen)
    finding = hardware_found(seen)
    if phase in ACTIVE or finding.matched is not None:
        said[ConditionType.HARDWARE_MATCHED] = _hardware_matched(seen, finding)
    return said


ACTIVE: tuple[Phase, ...] = ("Preparing", "WarmingUp", "Running")
"""Phases in which everything of the run should be there, or is being made."""

_OF_OBJECTS = (
    ConditionType.CAPTURE_READY,
    ConditionType.ARMS_READY,
    ConditionType.HARDWARE_MATCHED,
    ConditionType.LIVE_PATH_HEALTHY,
)


def _set(
    seen: Observation, conditions: tuple[Condition, ...], kind: ConditionType, said: Said
) -> tuple[Condition, ...]:
    status, reason, message = said
    generation = seen.run.metadata.generation
    return set_condition(conditions, kind, status, reason, message, generation=generation, now=times.instant(seen.now))


def _capture_ready(seen: Observation) -> Said:
    if seen.external:
        return _copies_taken(seen)
    if seen.all_ready(names.CAPTURE):
        return "True", Reason.READY, Reason.READY.sentence
    return "False", Reason.WAITING, _waiting(seen, names.CAPTURE)


def _copies_taken(seen: Observation) -> Said:
    """Where copies come from a proxy of the user's own: the Service is there, and leads to a mirror that is ready."""
    name = seen.run.spec.capture.service_name
    if seen.capture_service is None or not takes_copies(seen, seen.capture_service):
        return "False", Reason.WAITING, f"Service {name!r} for copies does not lead to the mirror yet."
    ready = sum(1 for pod in seen.pods_of(names.MIRROR) if pod.ready)
    if not ready:
        return "False", Reason.WAITING, _waiting(seen, names.MIRROR)
    route = seen.run.spec.capture.http_route
    if route is not None and _copies_now(seen) and not filter_is_there(seen):
        return "False", Reason.DEGRADED, f"HTTPRoute {route.name!r} does not hold the filter: {_filter_trouble(seen)}"
    wanted = seen.run.spec.mirror.replicas
    return "True", Reason.READY, f"Service {name!r} takes copies on port 8080: {ready} of {wanted} mirrors are ready."


def _copies_now(seen: Observation) -> bool:
    """Whether copies have been taken before this look, and still should be."""
    return seen.config is not None and seen.config.copying and pause(seen.run.spec, seen.now) is None


def _filter_trouble(seen: Observation) -> str:
    route = seen.route
    if route is None or route.refused or route.route is None:
        return "it is gone, or the operator may not read it any more."
    return "it is put in when copying begins, and half a minute after somebody took it out."


def _arms_ready(seen: Observation) -> Said:
    ended = seen.record is not None and seen.record.ended_at > 0
    needed = (*seen.run.spec.made_arms, *(() if ended else (names.MIRROR,)))
    waiting = [c for c in needed if not seen.all_ready(c)]
    if not waiting:
        return "True", Reason.READY, Reason.READY.sentence
    if seen.record is not None and seen.record.changing_places:
        return "False", Reason.CHANGING_PLACES, "; ".join(_waiting(seen, component) for component in waiting)
    room = lacking_room(seen)
    if room is not None:
        return "False", Reason.NO_ROOM, room
    was_ready = any(
        c.type == ConditionType.ARMS_READY and c.reason != Reason.WAITING for c in seen.run.status.conditions
    )
    counting = seen.record is not None and seen.record.copying_since > 0
    reason = Reason.DEGRADED if was_ready and counting else Reason.WAITING
    return "False", reason, "; ".join(_waiting(seen, component) for component in waiting)


def _waiting(seen: Observation, component: str) -> str:
    why = seen.why_waiting(component)
    return f"{component} is not ready: {why}" if why else f"{component} is not ready."


def _hardware_matched(seen: Observation, finding: HardwareFinding) -> Said:
    if not seen.run.spec.made_arms:
        return "Unknown", Reason.NOT_VERIFIED, finding.message
    if not seen.run.spec.hardware.match_label_keys and finding.matched is True:
        return "True", Reason.NOT_REQUIRED, finding.message
    if finding.matched is None:
        return "Unknown", Reason.WAITING, finding.message
    return ("True", Reason.MATCHED, finding.message) if finding.matched else ("False", Reason.MISMATCH, finding.message)


def _live_path(seen: Observation) -> Said:
    if seen.external:
        return "Unknown", Reason.EXTERNAL, Reason.EXTERNAL.sentence
    side = selected_side(seen)
    if side is None:
        return "Unknown", Reason.PENDING, "The capture Service does not exist."
    if stuck(seen):
        return "Unknown", Reason.DEGRADED, _LEFT_IN_PATH
    if side == "primary":
        return "True", Reason.HEALTHY, "The capture Service selects the primary's own pods."
    ready = sum(1 for pod in seen.pods_of(names.CAPTURE) if pod.ready)
    wanted = seen.run.spec.capture.proxy.replicas if seen.run.spec.capture.proxy else 0
    message = f"{ready} of {wanted} capture pods are ready."
    return ("True", Reason.HEALTHY, message) if ready >= wanted else ("False", Reason.DEGRADED, message)


_LEFT_IN_PATH = (
    "Capture is left in the path: nothing says any more whose pods the capture Service stood for. Give that Service the"
    " selector of your pods, then delete capture's Deployment."
)


def _provenance(seen: Observation, record: RunRecord) -> Provenance:
    before = seen.run.status.provenance
    config = seen.config
    return before.model_copy(
        update={
            "spec_hash": record.spec_hash,
            "seed_fingerprint": content_hash(config.capture.sampling.seed)[:8] if config else before.seed_fingerprint,
            "versions": Versions(
                operator=seen.settings.version,
                envoy=_envoy_version(seen) or before.versions.envoy,
                kubernetes=seen.settings.kubernetes or before.versions.kubernetes,
            ),
            "window": record.window,
            "capture": seen.run.spec.capture.mode,
        }
    )


def _envoy_version(seen: Observation) -> str:
    """As the Envoys that count say it; several while a node's image differs from another's."""
    return ", ".join(sorted({evidence.envoy for evidence in seen.books.captures.values() if evidence.envoy}))
