"""What stays after the end, and for how long: arms for debugging, then the ShadowRun with evidence and report. Pure."""

import math

from shadowrun_operator.api.conditions import ConditionType, Reason
from shadowrun_operator.api.quantities import Duration
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.pending import POLL_S, RESYNC_S, SOON_S
from shadowrun_operator.reconcile.plan import Event, Plan
from shadowrun_operator.reconcile.removal import arm_removal, arms_left
from shadowrun_operator.reconcile.statuses import with_condition

HOPELESS_S = 7200.0
"""A run that is past its expiry for so long (longest answer, drain and all) has passes that never get anywhere."""


def keeps_arms(seen: Observation) -> bool:
    """Whether arms that stand at the end stay for a while: without a mirror nothing is sent to them any more."""
    return seen.run.spec.keep_arms is not None and seen.arms_stand


def kept_until(seen: Observation, completed: float) -> float:
    """UTC seconds until which they stay after `completed`, when the run was complete; no longer where nobody asks."""
    kept = seen.run.spec.keep_arms
    return completed if kept is None else completed + kept.length.seconds


def afterwards(seen: Observation) -> Plan:
    """A complete run: its new generations are seen, kept arms go when their time is over, and nothing else changes."""
    before = seen.run.status
    status = before.model_copy(update={"observed_generation": seen.run.metadata.generation})
    if before.arms_kept_until is None or before.completion_time is None:
        return Plan(status=status, requeue_after=RESYNC_S)
    until = kept_until(seen, times.seconds(before.completion_time))
    status = status.model_copy(update={"arms_kept_until": times.written(until)})
    if seen.now < until:
        return Plan(status=status, requeue_after=max(SOON_S, min(RESYNC_S, until - seen.now)))
    if arms_left(seen):
        return Plan(status=status, requeue_after=POLL_S, steps=arm_removal(seen))
    status = status.model_copy(update={"arms_kept_until": None})
    status = with_condition(seen, status, ConditionType.ARMS_READY, ("False", Reason.REMOVED, Reason.REMOVED.sentence))
    event = Event("Normal", "ArmsRemoved", "The arms that spec.keepArms kept are removed.")
    return Plan(status=status, requeue_after=SOON_S, events=(event,))


def is_over(body: Manifest, now: float) -> bool:
    """Whether a ShadowRun, as JSON, has been complete for its `ttlAfterFinished`, and no arm is kept any more.

    What can't be read has no such time: it stays until somebody deletes it.
    """
    status, spec = body.get("status") or {}, body.get("spec") or {}
    if status.get("phase") != "Complete" or status.get("armsKeptUntil"):
        return False
    try:
        completed, ttl = times.seconds(status.get("completionTime", "")), Duration(spec.get("ttlAfterFinished", ""))
    except (TypeError, ValueError):
        return False
    return now >= completed + ttl.seconds


def overdue_s(body: Manifest, now: float) -> float:
    """How long a ShadowRun, as JSON, should have been over, in seconds; negative while it need not be, or when it is.

    A complete one is overdue while it has arms whose time is over.
    """
    status = body.get("status") or {}
    due = status.get("armsKeptUntil" if status.get("phase") == "Complete" else "expiryTime")
    return now - times.seconds(due) if due else -math.inf
