"""The status that follows from an observation: conditions, arms, funnel, message. Pure; changes no state of the run."""

from shadowrun_operator.api.conditions import ConditionType, Reason, set_condition
from shadowrun_operator.api.status import (
    MESSAGE_LENGTH,
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
from shadowrun_operator.reconcile.hardware import accelerator, hardware_matches
from shadowrun_operator.reconcile.objects import selected_side
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.record import RunRecord

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

    Without `accepted` an active run counts as accepted, and a finishing one as whatever it was.
    """
    before = seen.run.status
    status = before.model_copy(
        update={
            "observed_generation": seen.run.metadata.generation,
            "phase": phase,
            "message": shortened(message, MESSAGE_LENGTH),
            "attempt": before.attempt or 1,
            "arms": arm_statuses(seen) if phase not in ("Pending", "Finishing", "Complete") else before.arms,
            "conditions": _conditions(seen, phase, accepted),
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


def _conditions(seen: Observation, phase: Phase, accepted: Said | None) -> tuple[Condition, ...]:
    conditions = seen.run.status.conditions
    said: dict[ConditionType, Said] = {}
    if accepted is None and phase in ("Preparing", "WarmingUp", "Running"):
        accepted = ("True", Reason.ACCEPTED, Reason.ACCEPTED.sentence)
    if accepted is not None:
        said[ConditionType.ACCEPTED] = accepted
    if phase == "Pending":
        said |= dict.fromkeys(_LATER, ("Unknown", Reason.PENDING, Reason.PENDING.sentence))
    elif phase in ("Preparing", "WarmingUp", "Running"):
        said[ConditionType.CAPTURE_READY] = _capture_ready(seen)
        said[ConditionType.ARMS_READY] = _arms_ready(seen)
        said[ConditionType.HARDWARE_MATCHED] = _hardware_matched(seen)
        said[ConditionType.LIVE_PATH_HEALTHY] = _live_path(seen)
    else:
        removed: Said = ("False", Reason.REMOVED, Reason.REMOVED.sentence)
        said |= {ConditionType.CAPTURE_READY: removed, ConditionType.ARMS_READY: removed}
        said[ConditionType.LIVE_PATH_HEALTHY] = _live_path(seen)
    if phase != "Complete":
        said[ConditionType.COMPLETE] = ("False", Reason.ACTIVE, Reason.ACTIVE.sentence)
        said[ConditionType.SUCCEEDED] = ("Unknown", Reason.ACTIVE, Reason.ACTIVE.sentence)
    for kind, words in said.items():
        conditions = _set(seen, conditions, kind, words)
    return conditions


_LATER = (
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
    if seen.all_ready(names.CAPTURE):
        return "True", Reason.READY, Reason.READY.sentence
    return "False", Reason.WAITING, _waiting(seen, names.CAPTURE)


def _arms_ready(seen: Observation) -> Said:
    waiting = [c for c in (*seen.run.spec.arm_names, names.MIRROR) if not seen.all_ready(c)]
    if not waiting:
        return "True", Reason.READY, Reason.READY.sentence
    was_ready = any(
        c.type == ConditionType.ARMS_READY and c.reason != Reason.WAITING for c in seen.run.status.conditions
    )
    counting = seen.record is not None and seen.record.copying_since > 0
    reason = Reason.DEGRADED if was_ready and counting else Reason.WAITING
    return "False", reason, "; ".join(_waiting(seen, component) for component in waiting)


def _waiting(seen: Observation, component: str) -> str:
    why = next((pod.waiting for pod in seen.pods_of(component) if pod.waiting), "")
    return f"{component} is not ready: {why}" if why else f"{component} is not ready."


def _hardware_matched(seen: Observation) -> Said:
    finding = hardware_matches(seen)
    if not seen.run.spec.hardware.match_label_keys:
        return "True", Reason.NOT_REQUIRED, finding.message
    if finding.matched is None:
        return "Unknown", Reason.WAITING, finding.message
    return ("True", Reason.MATCHED, finding.message) if finding.matched else ("False", Reason.MISMATCH, finding.message)


def _live_path(seen: Observation) -> Said:
    side = selected_side(seen)
    if side is None:
        return "Unknown", Reason.PENDING, "The capture Service does not exist."
    if side == "primary":
        return "True", Reason.HEALTHY, "The capture Service selects the primary's own pods."
    ready = sum(1 for pod in seen.pods_of(names.CAPTURE) if pod.ready)
    wanted = seen.run.spec.capture.proxy.replicas if seen.run.spec.capture.proxy else 0
    message = f"{ready} of {wanted} capture pods are ready."
    return ("True", Reason.HEALTHY, message) if ready >= wanted else ("False", Reason.DEGRADED, message)


def _provenance(seen: Observation, record: RunRecord) -> Provenance:
    before = seen.run.status.provenance
    config = seen.config
    hours = sorted({times.instant(e).hour for e in _pair_times(seen)} | set(before.hours_seen))
    return before.model_copy(
        update={
            "spec_hash": record.spec_hash,
            "seed_fingerprint": content_hash(config.capture.sampling.seed)[:8] if config else before.seed_fingerprint,
            "versions": Versions(operator=seen.settings.version),
            "window": 1 if record.indicators else 0,
            "hours_seen": tuple(hours),
        }
    )


def _pair_times(seen: Observation) -> list[float]:
    return [
        at
        for evidence in seen.books.mirrors.values()
        for number, window in evidence.windows.items()
        if number > 0
        for at in (window.first_pair, window.last_pair)
        if at is not None
    ]
