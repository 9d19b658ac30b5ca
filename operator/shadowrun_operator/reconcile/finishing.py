"""Finishing, Complete and deletion: stop copying, read the last evidence, judge, then take everything down. Pure."""

import msgspec
from shadowrun_mirror.config import MirrorConfig

from shadowrun_operator.api.conditions import ConditionType, EndReason
from shadowrun_operator.api.status import Status
from shadowrun_operator.judge.report import Report
from shadowrun_operator.manifests import names
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.judging import report_of, report_step, stored_report, with_progress, with_report
from shadowrun_operator.reconcile.kept import keeps_arms, kept_until
from shadowrun_operator.reconcile.objects import config_steps
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.pending import POLL_S, SOON_S, record_ended
from shadowrun_operator.reconcile.plan import EditRoute, Event, Plan, Push, Step
from shadowrun_operator.reconcile.progress import GRACE_S, progress, settled
from shadowrun_operator.reconcile.push import push_of
from shadowrun_operator.reconcile.record import RunRecord
from shadowrun_operator.reconcile.removal import remaining, removal
from shadowrun_operator.reconcile.route import filter_steps, left_filter_event
from shadowrun_operator.reconcile.statuses import Said, status_of, with_condition

REPORT_S = 120.0
"""After the end: how long a report that the API server refuses is tried again before all is taken down without it."""


def begin_finishing(
    seen: Observation, record: RunRecord, reason: EndReason, message: str, *, news: tuple[Event, ...] = ()
) -> Plan:
    """Decide that the run is over: from here on nothing is copied."""
    ended = record_ended(record, seen.now, reason, message)
    steps, push = _copying_off(seen)
    done = progress(seen)
    status = with_progress(status_of(seen, "Finishing", message, record=ended), done)
    kind = "Normal" if reason.judged else "Warning"
    return Plan(
        status=status.model_copy(update={"end_reason": reason.value}),
        requeue_after=POLL_S,
        record=ended,
        checkpoint=True,
        steps=tuple(steps),
        push=push,
        events=(*news, Event(kind, reason.value, message)),  # type: ignore[arg-type]
    )


def finishing(seen: Observation, record: RunRecord) -> Plan:
    """One stage after another; each is done when the cluster shows it, so any of them may be repeated.

    Once there is a verdict, teardown waits for nothing but its report, and for that only so long.
    """
    report, before = stored_report(seen), seen.run.status
    if report is None and (before.verdict is None or seen.now < record.ended_at + REPORT_S):
        return _last_evidence(seen, record)
    status = status_of(seen, "Finishing", before.message, record=record)
    status = status.model_copy(update={"end_reason": record.end_reason, "report_ref": None})
    status = status if report is None else with_report(seen, status, report)
    kept = keeps_arms(seen)
    steps = removal(seen, keep_arms=kept)
    if steps or remaining(seen, keep_arms=kept):
        return Plan(status=status, requeue_after=POLL_S, steps=steps)
    return complete(seen, status, record)


def complete(seen: Observation, status: Status, record: RunRecord) -> Plan:
    """The end, from a status that has its verdict."""
    status = status.model_copy(
        update={
            "phase": "Complete",
            "end_reason": record.end_reason,
            "completion_time": times.written(seen.now),
            "arms_kept_until": times.written(kept_until(seen, seen.now)) if keeps_arms(seen) else None,
        }
    )
    ended: Said = ("True", record.end_reason, record.end_message)
    passed: Said = ("True" if status.verdict == "Pass" else "False", status.reason or "", status.message)
    status = with_condition(seen, status, ConditionType.COMPLETE, ended)
    status = with_condition(seen, status, ConditionType.SUCCEEDED, passed)
    message = f"{status.verdict}: {status.message}"
    events = (Event("Normal", "Complete", message), *left_filter_event(seen))
    return Plan(status=status, requeue_after=SOON_S, events=events)


def teardown(seen: Observation) -> Plan:
    """The ShadowRun is being deleted: the same order, without a verdict.

    As at any other end the mirrors are told before the filter goes; one that does not answer is not waited for long.
    """
    stop, push = _copying_off(seen)
    told = push is None or seen.now >= _deleted_at(seen) + GRACE_S
    steps = tuple(step for step in removal(seen) if told or not isinstance(step, EditRoute))
    finished = told and not steps and not remaining(seen)
    return Plan(
        status=seen.run.status,
        requeue_after=POLL_S,
        steps=(*stop, *steps),
        push=push,
        events=left_filter_event(seen) if finished else (),
        released=finished,
    )


def _deleted_at(seen: Observation) -> float:
    deleted = seen.run.metadata.deletion_timestamp
    return seen.now if deleted is None else times.seconds(deleted)


def _last_evidence(seen: Observation, record: RunRecord) -> Plan:
    steps, push = _copying_off(seen)
    done = progress(seen)
    if record.copying_since and seen.config is not None and not settled(seen, done, record.ended_at, told=push is None):
        status = with_progress(status_of(seen, "Finishing", record.end_message, record=record), done)
        status = status.model_copy(update={"end_reason": record.end_reason})
        # The mirrors are told first: a gateway's refusal to have its route edited must not keep them copying.
        out = filter_steps(seen, copying=False) if push is None else []
        return Plan(status=status, requeue_after=POLL_S, steps=(*steps, *out), push=push)
    report, again = report_of(seen, record), seen.run.status.verdict is not None
    status = with_report(seen, status_of(seen, "Finishing", "", record=record), report)
    return Plan(
        status=status.model_copy(update={"end_reason": record.end_reason}),
        requeue_after=POLL_S if again else SOON_S,
        checkpoint=True,
        steps=(*steps, report_step(seen, report)),
        events=() if again else (_verdict_event(report),),
    )


def _copying_off(seen: Observation) -> tuple[list[Step], Push | None]:
    """The same configuration without copying: stored for mirrors that start, pushed until every mirror has it."""
    config = seen.config
    if config is None or seen.object("Secret", names.MIRROR) is None:
        return [], None
    if config.copying:
        config = _stopped(config)
    return config_steps(seen, config), push_of(seen, config)


def _stopped(config: MirrorConfig) -> MirrorConfig:
    return msgspec.structs.replace(config, version=config.version + 1, copying=False)


def _verdict_event(report: Report) -> Event:
    return Event("Normal" if report.verdict == "Pass" else "Warning", f"Verdict{report.verdict}", report.message)
