"""Preparing, WarmingUp and Running: make everything and keep it there, copy, count, and notice when to end. Pure."""

import dataclasses

import msgspec
from shadowrun_mirror.config import MirrorConfig

from shadowrun_operator.api.status import Phase, Provenance, Status
from shadowrun_operator.judge.forecast import forecast, forecast_sentence
from shadowrun_operator.judge.merge import calibration_mark
from shadowrun_operator.judge.thresholds import indicators
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.attempts import entered, is_ours, ledger_entry
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.acceptance import Violation, must_yield, refused_before, refused_patch, without_effect
from shadowrun_operator.reconcile.arms import (
    arm_access_steps,
    arm_identities,
    arm_steps,
    candidate_steps,
    is_patched,
)
from shadowrun_operator.reconcile.clocks import clock_events, furthest_apart, worst
from shadowrun_operator.reconcile.crossover import (
    change_message,
    change_steps,
    first_places,
    moved_on,
    place_deadline,
)
from shadowrun_operator.reconcile.endings import deadlines, ending
from shadowrun_operator.reconcile.finishing import begin_finishing
from shadowrun_operator.reconcile.hardware import hardware_matches
from shadowrun_operator.reconcile.history import noted
from shadowrun_operator.reconcile.judging import with_progress
from shadowrun_operator.reconcile.objects import (
    Side,
    before_until,
    capture_steps,
    config_steps,
    mirror_steps,
    next_config,
)
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.pending import POLL_S, RESYNC_S, SOON_S
from shadowrun_operator.reconcile.plan import Delete, Event, Merge, Plan, Step
from shadowrun_operator.reconcile.progress import Progress, progress, renewed
from shadowrun_operator.reconcile.push import push_of
from shadowrun_operator.reconcile.rate import asked
from shadowrun_operator.reconcile.record import RunRecord
from shadowrun_operator.reconcile.removal import remaining, removal
from shadowrun_operator.reconcile.restarts import counted, restart_events
from shadowrun_operator.reconcile.room import lacking_room
from shadowrun_operator.reconcile.route import filter_steps, no_copies_message
from shadowrun_operator.reconcile.schedule import changes, pause
from shadowrun_operator.reconcile.statuses import status_of

CHECKPOINT_S = 30.0
_UNDONE = {"expiry_time": None, "arms": (), "difference": (), "provenance": Provenance()}
"""Of the status of a run that goes back to Pending."""


def preparing(seen: Observation, record: RunRecord) -> Plan:
    """The candidate first; the other arms once it has taken its patch; then the rest; copying once all is ready."""
    done = progress(seen)
    end = ending(seen, done)
    if end is not None:
        return begin_finishing(seen, record, *end)
    problem = refused_patch(seen) or must_yield(seen) or without_effect(seen) or refused_before(seen)
    if problem is not None:
        return _back_to_pending(seen, problem)
    if seen.leftovers:
        message = f"Waiting for what an earlier run of this name left: {', '.join(seen.leftovers[:3])}."
        return Plan(status=status_of(seen, "Preparing", message, record=record), requeue_after=POLL_S)
    if not seen.held:
        message = "Waiting for the run's finalizer: without it the run could go, and what is made for it stay."
        return Plan(status=status_of(seen, "Preparing", message, record=record), requeue_after=POLL_S)
    if _everything_ready(seen, record):
        return _start_copying(seen, record)
    steps = _everything(seen, record) if is_patched(seen, record) else candidate_steps(seen, record)
    status = status_of(seen, "Preparing", _preparing_message(seen), record=record)
    return Plan(status=status, requeue_after=_wait(seen, done, POLL_S), steps=tuple(steps))


def warming_up(seen: Observation, record: RunRecord) -> Plan:
    """Window 0: copies first only warm the arms, then give the limits; none of them is counted."""
    done = progress(seen)
    record, end = _renewed(seen, record, done), ending(seen, done)
    if end is not None:
        return begin_finishing(seen, record, *end, news=_news(seen, record))
    if record.warmed is None:
        return _warming(seen, record, done)
    if not done.lacking:
        return _start_counting(seen, record, done)
    return _steady(seen, record, done, "WarmingUp", f"The arms are warm; taking the limits. {done.warm_up_state}")


def running(seen: Observation, record: RunRecord) -> Plan:
    """Pairs count against frozen thresholds until an ending is met; where arms change places, in two windows."""
    done = progress(seen)
    record, end = _renewed(seen, record, done), ending(seen, done)
    if end is not None:
        return begin_finishing(seen, record, *end, news=_news(seen, record))
    record, moved = moved_on(seen, record, done)
    plan = _steady(seen, record, done, "Running", _running_message(seen, record, done))
    return plan if moved is None else dataclasses.replace(plan, checkpoint=True, events=(*plan.events, moved))


def _renewed(seen: Observation, record: RunRecord, done: Progress) -> RunRecord:
    changes = noted(record.changes, seen.run.spec, seen.now)
    return msgspec.structs.replace(
        renewed(record, done),
        changes=changes,
        clocks=worst(record, seen),
        apart=furthest_apart(record, seen),
        restarts=counted(record, seen),
    )


def _news(seen: Observation, record: RunRecord) -> tuple[Event, ...]:
    """What has befallen our processes since the last look; `record` is the renewed one."""
    if seen.record is None:
        return ()
    return (*restart_events(seen.record, seen), *clock_events(seen.record.clocks, record.clocks))


def _warming(seen: Observation, record: RunRecord, done: Progress) -> Plan:
    length, since = seen.run.spec.arms.warmup.duration, done.warm_up_since
    plan = _steady(seen, record, done, "WarmingUp", _warming_message(seen, record, since))
    if since is None or seen.now < since + length.seconds:
        return plan
    warm = msgspec.structs.replace(record, warmed=calibration_mark(done.evidence.warm_up))
    return dataclasses.replace(plan, record=warm, checkpoint=True)


def _warming_message(seen: Observation, record: RunRecord, since: float | None) -> str:
    spec, service = seen.run.spec, seen.run.spec.capture.service_name
    paused = pause(spec, seen.now)
    if paused is not None:
        return f"{paused.message}; the warm-up goes on after that."
    if since is None and seen.now < before_until(seen, record):
        return "Customers are watched without copies first, so that their path can be compared."
    if since is None and spec.capture.http_route is not None:
        return no_copies_message(seen)
    if since is None and seen.external:
        return f"No copy has been answered yet: does your proxy send them to Service {service!r}, port 8080?"
    if since is None:
        return (
            f"No copy has been answered yet: do clients call Service {service!r}, with POST to spec.capture.paths? "
            "Connections they opened before stay with the primary until they are closed."
        )
    return f"Warming the arms for {spec.arms.warmup.duration} of traffic."


def _steady(seen: Observation, record: RunRecord, done: Progress, phase: Phase, message: str) -> Plan:
    side: Side = "capture" if any(pod.ready for pod in seen.pods_of(names.CAPTURE)) else "primary"
    paused = pause(seen.run.spec, seen.now) is not None or record.changing_places
    copying = (seen.external or side == "capture") and not paused
    config = next_config(seen, record, copying=copying, indicators=record.indicators)
    push = push_of(seen, config)
    # What stops copying is stored before anything that may be refused, and told before a filter goes.
    stopping = [] if config.copying else config_steps(seen, config)
    told = config.copying or push is None or not _mirrors_answer(seen)
    steps = [
        *stopping,
        *capture_steps(seen, record, config, side),
        *(step for step in mirror_steps(seen, config) if step not in stopping),
        *arm_access_steps(seen, record),
        *(_ledger_steps(seen, record) if phase == "WarmingUp" else []),
        *(filter_steps(seen, copying=config.copying) if told else []),
        *change_steps(seen, record, done),
    ]
    status = with_progress(status_of(seen, phase, message, record=record), done)
    return Plan(
        status=_begun(status, config) if seen.config and config.window > seen.config.window else status,
        requeue_after=_wait(seen, done, POLL_S),
        record=None if record == seen.record else record,
        checkpoint=seen.now - seen.checkpoint_at >= CHECKPOINT_S,
        steps=tuple(steps),
        push=push,
        events=_news(seen, record),
    )


def _mirrors_answer(seen: Observation) -> bool:
    """Whether all did in this look: one that does not may never be told, and is not waited for."""
    return {pod.uid for pod in seen.pods_of(names.MIRROR)} <= seen.read


def _everything(seen: Observation, record: RunRecord) -> list[Step]:
    config = next_config(seen, record, copying=False)
    made = [*arm_steps(seen, record), *mirror_steps(seen, config)]
    return [*made, *capture_steps(seen, record, config, "primary")]


def _everything_ready(seen: Observation, record: RunRecord) -> bool:
    finding = hardware_matches(seen)
    reported = seen.run.spec.hardware.policy == "Report" and (finding.matched is False or not seen.run.spec.made_arms)
    matched = finding.matched is True or reported
    return matched and is_patched(seen, record) and all(seen.all_ready(part) for part in seen.components)


def _start_copying(seen: Observation, record: RunRecord) -> Plan:
    attempt = seen.attempts.get(record.spec_hash, 0) + 1
    started = msgspec.structs.replace(
        record,
        copying_since=seen.now,
        arms=arm_identities(seen),
        nodes=first_places(seen),
        attempt=attempt,
        changes=noted((), seen.run.spec, seen.now),
        pace=asked(record.pace, seen.run.spec.sampling.rate.millionths, seen.now),
    )
    config = next_config(seen, record, copying=pause(seen.run.spec, seen.now) is None)
    steps = [
        *_ledger_steps(seen, started),
        *capture_steps(seen, record, config, "capture"),
        *mirror_steps(seen, config),
        *filter_steps(seen, copying=config.copying, at_once=True),
    ]
    status = status_of(seen, "WarmingUp", "Everything is ready: copying begins with the warm-up.", record=started)
    event = Event("Normal", "CopyingStarted", "Everything of the run is ready; the warm-up begins.")
    return Plan(
        status=status,
        requeue_after=POLL_S,
        record=started,
        steps=tuple(steps),
        push=push_of(seen, config),
        events=(event,),
    )


def _ledger_steps(seen: Observation, record: RunRecord) -> list[Step]:
    """Enter this run where it isn't yet: the operator may have died, or been refused, when copying began."""
    if seen.ledger is not None and not is_ours(seen.ledger):
        return []
    if entered(seen.ledger, record.spec_hash) >= record.attempt:
        return []
    return [Merge(ledger_entry(seen.run.namespace, seen.ledger, record.spec_hash, record.attempt, seen.now))]


def _start_counting(seen: Observation, record: RunRecord, done: Progress) -> Plan:
    frozen = indicators(done.rules, done.evidence.calibration)
    counting = msgspec.structs.replace(record, indicators=frozen, told_to_count=seen.now)
    paused = pause(seen.run.spec, seen.now) is not None
    config = next_config(seen, counting, copying=not paused, indicators=frozen)
    limits = ", ".join(f"{i.criterion} {i.baseline_limit_s:.3f}s" for i in frozen if i.baseline_limit_s is not None)
    message = f"The warm-up is over; baseline limits are frozen: {limits or 'none needed'}."
    status = status_of(seen, "Running", message, record=counting)
    return Plan(
        status=_begun(status, config),
        requeue_after=POLL_S,
        record=counting,
        checkpoint=True,
        steps=tuple(mirror_steps(seen, config)),
        push=push_of(seen, config),
        events=(*_news(seen, record), Event("Normal", "CountingStarted", message)),
    )


def _begun(status: Status, config: MirrorConfig) -> Status:
    """The status with the version of the configuration that a window begins with."""
    began = status.provenance.model_copy(update={"window_version": config.version})
    return status.model_copy(update={"provenance": began})


def _back_to_pending(seen: Observation, problem: Violation) -> Plan:
    """Remove what was made, the record at last, and wait for another spec or another world."""
    steps = removal(seen)
    if not remaining(seen, steps):
        steps = (*steps, Delete("ConfigMap", names.object_name(seen.run.name, names.EVIDENCE)))
    status = status_of(seen, "Pending", problem.message, accepted=("False", problem.reason, problem.message))
    news = seen.run.status.message != status.message
    return Plan(
        status=status.model_copy(update=_UNDONE),
        requeue_after=POLL_S,
        steps=steps,
        events=(Event("Warning", str(problem.reason), problem.message),) if news else (),
    )


def _wait(seen: Observation, done: Progress, poll: float) -> float:
    """The shortest of the poll and the time to the next deadline."""
    due = [*deadlines(seen, done), *changes(seen.run.spec, seen.now)]
    ahead = [at - seen.now for at in due if at > seen.now]
    return max(SOON_S, min([poll, RESYNC_S, *ahead]))


def _preparing_message(seen: Observation) -> str:
    waiting = [part for part in seen.components if not seen.all_ready(part)]
    if waiting:
        return lacking_room(seen) or f"Waiting for {', '.join(waiting)} to be ready."
    return hardware_matches(seen).message


def _running_message(seen: Observation, record: RunRecord, done: Progress) -> str:
    paused = pause(seen.run.spec, seen.now)
    if paused is not None:
        latest = place_deadline(seen, done)
        until = "" if latest is None else f" The second half has to begin before {times.written(latest)}."
        return f"{paused.message}; {done.pairs} pairs counted.{until}"
    if done.first_counted is None:
        return "Counting has begun; no pair is complete yet."
    end, change = done.first_counted + seen.run.spec.duration.seconds, change_message(seen, record, done)
    expected = done.judge_error or forecast_sentence(
        forecast(done.results, seen.now - done.first_counted), end - seen.now, done.against
    )
    again = f"Attempt {seen.record.attempt} of this spec. " if seen.record and seen.record.attempt > 1 else ""
    moving = f"{change} " if change else ""
    return f"{again}{done.pairs} pairs counted; ends at {times.written(end)} at the latest. {moving}{expected}"
