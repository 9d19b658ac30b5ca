"""`reconcile`: from one observation to one plan. The record says how far a run is; each phase is one function. Pure."""

from collections.abc import Callable

import msgspec

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.api.status import Phase
from shadowrun_operator.reconcile.acceptance import violation
from shadowrun_operator.reconcile.active import preparing, running, warming_up
from shadowrun_operator.reconcile.finishing import complete, finishing, teardown
from shadowrun_operator.reconcile.kept import afterwards
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.pending import (
    SOON_S,
    end_before_start,
    expiry_of,
    new_record,
    pending,
    record_ended,
)
from shadowrun_operator.reconcile.plan import Event, Plan
from shadowrun_operator.reconcile.record import RunRecord
from shadowrun_operator.reconcile.removal import remaining
from shadowrun_operator.reconcile.statuses import Said, status_of

Transition = Callable[[Observation, RunRecord], Plan]

PHASES: dict[Phase, Transition] = {
    "Preparing": preparing,
    "WarmingUp": warming_up,
    "Running": running,
    "Finishing": finishing,
}
"""What is done in each phase that has a record."""


def reconcile(seen: Observation) -> Plan:
    """All that should be done now. The same observation always gives the same plan."""
    if seen.run.metadata.deletion_timestamp is not None:
        return teardown(seen)
    if seen.run.status.phase == "Complete":
        return afterwards(seen)
    if seen.record is None:
        return _without_record(seen)
    return PHASES[phase_of(seen.record)](seen, seen.record)


def phase_of(record: RunRecord) -> Phase:
    """How far a run is. The status may lag behind the record, never the other way round."""
    if record.ended_at:
        return "Finishing"
    if record.indicators:
        return "Running"
    return "WarmingUp" if record.copying_since else "Preparing"


def _without_record(seen: Observation) -> Plan:
    """A run that has not begun; or one whose record was deleted: evidence may have gone with it, so it ends."""
    if seen.run.status.phase in ("Pending", "Preparing"):
        end = end_before_start(seen)
        if end is None:
            return pending(seen)
        if not remaining(seen):
            return _ended_before_start(seen, *end)
        return _ending_anew(seen, *end, copying_since=0.0)
    message = f"ConfigMap '{seen.run.name}-evidence' disappeared while the run was active: its evidence is incomplete."
    return _ending_anew(seen, EndReason.EVIDENCE_LOST, message, copying_since=seen.now)


def _ended_before_start(seen: Observation, reason: EndReason, message: str) -> Plan:
    """Nothing was made: there is nothing to take down, to read or to keep."""
    record = record_ended(new_record(seen, expiry=expiry_of(seen)), seen.now, reason, message)
    problem = violation(seen)
    said: Said | None = None if problem is None else ("False", problem.reason, problem.message)
    status = status_of(seen, "Complete", message, accepted=said)
    return complete(seen, status.model_copy(update={"verdict": "Inconclusive", "reason": reason.value}), record)


def _ending_anew(seen: Observation, reason: EndReason, message: str, *, copying_since: float) -> Plan:
    """The end of a run that has objects and no record: a new record says no more than that it is over."""
    record = msgspec.structs.replace(new_record(seen, expiry=expiry_of(seen)), copying_since=copying_since)
    ended = record_ended(record, seen.now, reason, message)
    return Plan(
        status=status_of(seen, "Finishing", message, record=ended),
        requeue_after=SOON_S,
        record=ended,
        events=(Event("Warning", reason.value, message),),
    )
