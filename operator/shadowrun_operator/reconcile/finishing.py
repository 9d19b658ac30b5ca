"""Finishing, Complete and deletion: stop copying, read the last evidence, judge, give the customers' path back, remove.

Pure. The order never changes: arms go before the path is touched, the capture Service goes back to the primary's pods
before Envoy goes, and Envoy is asked to go only when new customers can't reach it any more.
"""

from shadowrun_operator.api.conditions import ConditionType, EndReason
from shadowrun_operator.judge.report import Report
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.given_back import given_back, is_given_back
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.judging import report_manifest, report_of, stored_report, with_progress, with_report
from shadowrun_operator.reconcile.objects import arm_removal, config_steps, next_config, path_removal
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.pending import POLL_S, SOON_S, record_ended
from shadowrun_operator.reconcile.plan import Apply, Create, Event, Plan, Push, Step
from shadowrun_operator.reconcile.progress import Progress, progress
from shadowrun_operator.reconcile.push import push_of
from shadowrun_operator.reconcile.record import RunRecord
from shadowrun_operator.reconcile.statuses import Said, status_of, with_condition

GRACE_S = 15.0
"""Beyond the request timeout: how long the last evidence is waited for."""
SETTLE_S = 10.0
"""After the Service was given back: until no client is sent to Envoy any more."""
DRAIN_S = 30.0
"""Longest wait for Envoy to be idle by itself. A client that keeps its connection leaves only when Envoy asks it to,
which is what Envoy does when its pod ends: it is given the time of the longest answer there."""


def begin_finishing(seen: Observation, record: RunRecord, reason: EndReason, message: str) -> Plan:
    """Decide that the run is over: from here on nothing is copied."""
    ended = record_ended(record, seen.now, reason, message)
    steps, push = _copying_off(seen, ended)
    done = progress(seen)
    status = with_progress(seen, status_of(seen, "Finishing", message, record=ended), ended, done)
    kind = "Normal" if reason.judged else "Warning"
    return Plan(
        status=status.model_copy(update={"end_reason": reason.value}),
        requeue_after=POLL_S,
        record=ended,
        checkpoint=True,
        steps=tuple(steps),
        push=push,
        events=(Event(kind, reason.value, message),),  # type: ignore[arg-type]
    )


def finishing(seen: Observation, record: RunRecord) -> Plan:
    """One stage after another; each is done when the cluster shows it, so any of them may be repeated."""
    report = stored_report(seen)
    if report is None:
        return _last_evidence(seen, record)
    status = with_report(seen, status_of(seen, "Finishing", "", record=record), report)
    status = status.model_copy(update={"end_reason": record.end_reason})
    steps = removal(seen)
    if steps or not removed(seen):
        return Plan(status=status, requeue_after=POLL_S, steps=steps)
    return _complete(seen, record, report)


def removal(seen: Observation) -> tuple[Step, ...]:
    """What may be removed now: arms, then the Service is given back, then (drained) capture and mirror."""
    steps = arm_removal(seen)
    service = seen.capture_service
    if service is not None and _ours(seen) and not is_given_back(service):
        manifest = given_back(service, seen.now)
        return (*steps, *([Apply(manifest)] if manifest else []))
    if drained(seen):
        steps += path_removal(seen)
    return tuple(steps)


def removed(seen: Observation) -> bool:
    """Whether nothing is left but what stays: the capture Service, the evidence, the report."""
    stays = {("ConfigMap", names.object_name(seen.run.name, part)) for part in (names.EVIDENCE, names.REPORT)}
    return not [key for key in seen.objects if key not in stays and not _is_capture_service(seen, key)]


def drained(seen: Observation) -> bool:
    """Whether Envoy may be asked to go: new customers are elsewhere, and it is idle or has had its time."""
    if seen.object("Deployment", names.CAPTURE) is None:
        return True
    if seen.given_back_since is None or seen.now < seen.given_back_since + SETTLE_S:
        return False
    if seen.now >= seen.given_back_since + DRAIN_S:
        return True
    settled = seen.given_back_since + SETTLE_S
    latest = seen.books.newest_captures()
    standing = [pod for pod in seen.pods_of(names.CAPTURE) if pod.ready]
    return all(
        pod.uid in latest and latest[pod.uid].source.time >= settled - POLL_S and not latest[pod.uid].active_requests
        for pod in standing
    )


def teardown(seen: Observation) -> Plan:
    """The ShadowRun is being deleted: the same order, without a verdict."""
    steps: list[Step] = []
    push: Push | None = None
    if seen.record is not None and seen.config is not None and seen.config.copying:
        steps, push = _copying_off(seen, seen.record)
    gone = removal(seen)
    status = seen.run.status
    finished = not gone and removed(seen)
    return Plan(status=status, requeue_after=POLL_S, steps=(*steps, *gone), push=push, released=finished)


def _last_evidence(seen: Observation, record: RunRecord) -> Plan:
    steps, push = _copying_off(seen, record)
    done = progress(seen)
    if not _settled(seen, record, done, pushed=push is None):
        status = with_progress(seen, status_of(seen, "Finishing", record.end_message, record=record), record, done)
        status = status.model_copy(update={"end_reason": record.end_reason})
        return Plan(status=status, requeue_after=POLL_S, steps=tuple(steps), push=push)
    report = report_of(seen, record, progress(seen, final=True))
    status = with_report(seen, status_of(seen, "Finishing", "", record=record), report)
    return Plan(
        status=status.model_copy(update={"end_reason": record.end_reason}),
        requeue_after=SOON_S,
        checkpoint=True,
        steps=(*steps, Create(report_manifest(seen, report))),
        events=(_verdict_event(report),),
    )


def _settled(seen: Observation, record: RunRecord, done: Progress, *, pushed: bool) -> bool:
    """Whether nothing more will be counted: all were told, every capture pod has stopped, and no pair is in flight."""
    if not record.copying_since or seen.now >= record.ended_at + seen.run.spec.admission.timeout.seconds + GRACE_S:
        return True
    newest = seen.books.newest_captures()
    stopped = all(not newest[pod.uid].copying for pod in seen.pods_of(names.CAPTURE) if pod.uid in newest)
    read = [e.source.time for e in seen.books.mirrors.values()] + [e.source.time for e in newest.values()]
    fresh = bool(read) and max(read) > record.ended_at + POLL_S
    return pushed and stopped and fresh and done.in_flight == 0


def _copying_off(seen: Observation, record: RunRecord) -> tuple[list[Step], Push | None]:
    if seen.config is None:
        return [], None
    config = next_config(seen, record, copying=False, indicators=record.indicators)
    if seen.object("Secret", names.MIRROR) is None:
        return [], None
    return config_steps(seen, config), push_of(seen, config)


def _complete(seen: Observation, record: RunRecord, report: Report) -> Plan:
    status = with_report(seen, status_of(seen, "Complete", "", record=record), report)
    ended: Said = ("True", record.end_reason, record.end_message)
    passed: Said = ("True" if report.verdict == "Pass" else "False", report.reason, report.message)
    status = with_condition(seen, status, ConditionType.COMPLETE, ended)
    status = with_condition(seen, status, ConditionType.SUCCEEDED, passed)
    status = status.model_copy(update={"end_reason": record.end_reason, "completion_time": times.written(seen.now)})
    message = f"{report.verdict}: {report.message}"
    return Plan(status=status, requeue_after=SOON_S, events=(Event("Normal", "Complete", message),))


def _verdict_event(report: Report) -> Event:
    return Event("Normal" if report.verdict == "Pass" else "Warning", f"Verdict{report.verdict}", report.message)


def _ours(seen: Observation) -> bool:
    """Whether the capture Service belongs to this run and not to a later one."""
    service = seen.capture_service
    return service is not None and service["metadata"].get("labels", {}).get(names.RUN_LABEL) == seen.run.name


def _is_capture_service(seen: Observation, key: tuple[str, str]) -> bool:
    proxy = seen.run.spec.capture.proxy
    return proxy is not None and key == ("Service", proxy.service_name)
