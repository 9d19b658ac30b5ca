"""A ShadowRun that the schema lets through and the models do not: it is told so, and it ends all the same. Pure.

Such a body is read as JSON, and as little of it as possible. Where anything was made for the run, by an operator that
could read it, that is taken down before the run is complete (`orphans.abandoned_steps`).
"""

from collections.abc import Sequence

from pydantic import ValidationError

from shadowrun_operator.api.conditions import ConditionType, EndReason, Reason, set_condition
from shadowrun_operator.api.quantities import Duration
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.api.status import MESSAGE_LENGTH, Condition, ConditionStatus, shortened
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile import times


def end_of(body: Manifest, problem: str, now: float) -> tuple[EndReason, str] | None:
    """Why it must end at `now` (UTC seconds), if it must: it was stopped, or its time is over."""
    spec, expiry = body.get("spec") or {}, (body.get("status") or {}).get("expiryTime")
    stop = spec.get("stop")
    reason = stop.get("reason") if isinstance(stop, dict) else None
    if reason:
        return EndReason.STOPPED, f"Stopped, and the spec cannot be read: {reason}"
    if expiry and now >= times.seconds(expiry):
        return EndReason.EXPIRED, f"The expiry {expiry} came while the spec could not be read: {problem}"
    if not expiry and now >= _deadline(body):
        return EndReason.START_DEADLINE_EXCEEDED, f"Not accepted within startDeadline: {problem}"
    return None


def due(body: Manifest) -> float:
    """UTC seconds at which it ends by itself."""
    expiry = (body.get("status") or {}).get("expiryTime")
    return times.seconds(expiry) if expiry else _deadline(body)


def refused_status(body: Manifest, problem: str, now: float) -> Manifest:
    """The status while it waits for a spec that can be read: not accepted, and why."""
    status = body.get("status") or {}
    said = _conditions(body, now, ((ConditionType.ACCEPTED, "False", Reason.INVALID_SPEC, problem),))
    generation = body["metadata"]["generation"]
    message = shortened(problem, MESSAGE_LENGTH)
    return {**status, "observedGeneration": generation, "message": message, "conditions": said}


def ended_status(body: Manifest, problem: str, end: tuple[EndReason, str], now: float) -> Manifest:
    """The status once nothing of it is left: Complete and Inconclusive."""
    reason, message = end
    status = refused_status(body, problem, now)
    said = _conditions(
        {**body, "status": status},
        now,
        (
            (ConditionType.COMPLETE, "True", reason, message),
            (ConditionType.SUCCEEDED, "False", reason, message),
        ),
    )
    return {
        **status,
        "phase": "Complete",
        "verdict": "Inconclusive",
        "reason": reason.value,
        "endReason": reason.value,
        "completionTime": times.written(now),
        "message": shortened(message, MESSAGE_LENGTH),
        "conditions": said,
    }


def _deadline(body: Manifest) -> float:
    """`startDeadline` after the creation; the usual one where it can't be read either."""
    created = times.seconds(body["metadata"]["creationTimestamp"])
    default: Duration = Spec.model_fields["start_deadline"].default
    try:
        return created + Duration((body.get("spec") or {}).get("startDeadline", default)).seconds
    except (TypeError, ValueError):
        return created + default.seconds


def _conditions(
    body: Manifest, now: float, said: Sequence[tuple[ConditionType, ConditionStatus, str, str]]
) -> list[Manifest]:
    """The conditions with these set; what was known of the others stays, as long as it can be read."""
    conditions = tuple(c for c in map(_readable, (body.get("status") or {}).get("conditions", [])) if c is not None)
    for kind, status, reason, message in said:
        generation = body["metadata"]["generation"]
        conditions = set_condition(
            conditions, kind, status, reason, message, generation=generation, now=times.instant(now)
        )
    return [condition.to_json() for condition in conditions]


def _readable(condition: Manifest) -> Condition | None:
    try:
        return Condition.model_validate(condition)
    except ValidationError:
        return None
