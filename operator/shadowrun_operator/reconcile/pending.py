"""Pending: nothing exists yet. Accept the run, and freeze what it goes by; or say why not. Pure."""

import msgspec

from shadowrun_operator.api.conditions import EndReason, Reason
from shadowrun_operator.manifests.groups import taken
from shadowrun_operator.manifests.names import content_hash
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.acceptance import violation
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.plan import Event, Plan
from shadowrun_operator.reconcile.record import RunRecord
from shadowrun_operator.reconcile.schedule import start_deadline, waits_until
from shadowrun_operator.reconcile.spec_hash import frozen_spec
from shadowrun_operator.reconcile.statuses import status_of

RESYNC_S = 30.0
WAITING_S = 120.0
"""Between two looks at a sound run that waits for its time."""
SOON_S = 0.0
POLL_S = 3.0
SETTLE_S = 60.0
"""Between the end of the longest answer and the absolute expiry."""


def pending(seen: Observation) -> Plan:
    """Accept, or refuse and look again: what is missing may appear. What is sound waits for the time it is planned for.

    Such a run reserves nothing: others may use the primary meanwhile.
    """
    problem = violation(seen)
    if problem is None:
        begins = waits_until(seen.run.spec, seen.now)
        return _accept(seen) if begins is None else _waiting(seen, begins)
    deadline = start_deadline(seen)
    status = status_of(seen, "Pending", problem.message, accepted=("False", problem.reason, problem.message))
    news = _is_news(seen, problem.reason)
    return Plan(
        status=status,
        requeue_after=max(SOON_S, min(RESYNC_S, deadline - seen.now)),
        events=(Event("Warning", str(problem.reason), problem.message),) if news else (),
    )


def _waiting(seen: Observation, begins: float) -> Plan:
    message = f"The spec is sound; the run begins at {times.written(begins)}, as spec.schedule says."
    news = _is_news(seen, Reason.SCHEDULED)
    return Plan(
        status=status_of(seen, "Pending", message, accepted=("Unknown", Reason.SCHEDULED, message)),
        requeue_after=max(SOON_S, min(WAITING_S, begins - seen.now)),
        events=(Event("Normal", str(Reason.SCHEDULED), message),) if news else (),
    )


def end_before_start(seen: Observation) -> tuple[EndReason, str] | None:
    """Why a run that has not been accepted must end now, if it must."""
    if seen.run.spec.stop.reason:
        return EndReason.STOPPED, f"Stopped before it began: {seen.run.spec.stop.reason}"
    problem = violation(seen)
    if problem is None or seen.now < start_deadline(seen):
        return None
    said = f"Not accepted within startDeadline {seen.run.spec.start_deadline}: {problem.message}"
    return EndReason.START_DEADLINE_EXCEEDED, said


def new_record(seen: Observation, *, expiry: float) -> RunRecord:
    """The record of a run that is accepted now."""
    frozen = frozen_spec(seen.run.spec)
    source = seen.source or {"spec": {"template": {}}}
    return RunRecord(
        run_uid=seen.run.uid,
        spec_hash=content_hash(frozen),
        spec=frozen,
        template=source["spec"].get("template", {}),
        group=taken(source),
        expiry=expiry,
    )


def expiry_of(seen: Observation) -> float:
    """The absolute safety net: written once, kept for ever."""
    known = seen.run.status.expiry_time
    if known is not None:
        return times.seconds(known)
    spec = seen.run.spec
    return float(int(start_deadline(seen) + spec.duration.seconds + spec.admission.timeout.seconds + SETTLE_S))


def _accept(seen: Observation) -> Plan:
    record = new_record(seen, expiry=expiry_of(seen))
    status = status_of(seen, "Preparing", "Accepted: the arms are being created.", record=record)
    message = f"Accepted; everything ends at {times.written(record.expiry)} at the latest."
    return Plan(status=status, requeue_after=SOON_S, record=record, events=(Event("Normal", "Accepted", message),))


def record_ended(record: RunRecord, now: float, reason: EndReason, message: str) -> RunRecord:
    """The record with the end in it."""
    return msgspec.structs.replace(record, ended_at=now, end_reason=reason.value, end_message=message)


def _is_news(seen: Observation, reason: str) -> bool:
    return not any(c.type == "Accepted" and c.reason == reason for c in seen.run.status.conditions)
