"""A ShadowRun that the schema lets through and the models do not: it is told so, and it ends all the same. Pure.

Such a body is read as JSON, and as little of it as possible. Where anything was made for the run, by an operator that
could read it, that is taken down before the run is complete (`orphans.abandoned_steps`).
"""

import contextlib
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from shadowrun_operator.api.conditions import ConditionType, EndReason, Reason, set_condition
from shadowrun_operator.api.quantities import Duration
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.api.status import MESSAGE_LENGTH, Condition, ConditionStatus, shortened
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.kept import HOPELESS_S, overdue_s
from shadowrun_operator.reconcile.observation import OtherRun
from shadowrun_operator.reconcile.statuses import ACTIVE

LEAVING_S = 120.0
"""After its deletion a run over which passes fail for no known reason is let go; the sweep takes care of the path."""


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


def is_given_up(body: Manifest, now: float) -> bool:
    """Whether a run over which passes fail for no known reason is ended like one that cannot be read.

    It is where nothing was accepted yet, where it is being deleted and does not go, and long after its expiry.
    """
    leaving = body["metadata"].get("deletionTimestamp")
    if leaving:
        return now >= times.seconds(leaving) + LEAVING_S
    status = body.get("status") or {}
    return status.get("phase") in (None, "", "Pending") or overdue_s(body, now) >= HOPELESS_S


def other_run(body: Manifest, *, older: bool) -> OtherRun | None:
    """What others must know of a run that cannot be read any more, while something of it may stand; None: nothing."""
    if (body.get("status") or {}).get("phase") not in (*ACTIVE, "Finishing"):
        return None
    spec = body.get("spec")
    capture = _mapping(spec, "capture")
    mode = capture.get("mode", "Proxy")
    block = _mapping(capture, {"External": "external", "HTTPRoute": "httpRoute"}.get(mode, "proxy"))
    rule = f"{block.get('name', '')}/{block.get('rule', '')}" if mode == "HTTPRoute" else ""
    primary = _mapping(_mapping(spec, "primary"), "service").get("name", "")
    return OtherRun(
        name=body["metadata"]["name"],
        primary=str(primary) if mode == "Proxy" else "",
        service_name=str(block.get("serviceName", "")),
        rule=rule,
        older=older,
    )


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
    """`startDeadline` after the creation, or after a later `startTime`; the usual one where it can't be read either."""
    spec, since = body.get("spec"), times.seconds(body["metadata"]["creationTimestamp"])
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        since = max(since, times.seconds(_mapping(spec, "schedule").get("startTime", "")))
    default: Duration = Spec.model_fields["start_deadline"].default
    try:
        return since + Duration((spec or {}).get("startDeadline", default)).seconds
    except (TypeError, ValueError):
        return since + default.seconds


def _mapping(block: Any, field: str) -> Manifest:
    """What a block has there, if it is a mapping; else an empty one."""
    found = block.get(field) if isinstance(block, dict) else None
    return found if isinstance(found, dict) else {}


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
