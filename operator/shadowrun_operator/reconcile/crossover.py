"""Arms that change places halfway, as `hardware.crossover` asks: when, whereto, and how far they have come. Pure.

For half of the duration every arm stands where it was put first. Then copying pauses; once every mirror has stopped and
all that was copied is counted, baseline and candidate go, and are made anew on each other's nodes; they get warm again,
uncounted; and then the second half counts. The clock of the run goes on meanwhile, as it does when copying is paused by
hand. The control stays where it is. No arm may be moved, however long it takes, while a mirror may still count for the
first half.
"""

import msgspec
from shadowrun_mirror.evidence import Evidence

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.placement import pinned_to
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.acceptance import refused_patch
from shadowrun_operator.reconcile.arms import arm_identities, arm_steps, candidate_steps, is_patched
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.plan import Delete, Event, Step
from shadowrun_operator.reconcile.progress import Progress, settled
from shadowrun_operator.reconcile.record import RunRecord
from shadowrun_operator.reconcile.schedule import deadline_after

ARMS = (names.BASELINE, names.CANDIDATE)


def first_places(seen: Observation) -> dict[str, tuple[str, ...]]:
    """The nodes that the arms stand on, where they are to change places; to be asked when copying begins."""
    if not seen.run.spec.hardware.changes_places:
        return {}
    return {arm: tuple(sorted({pod.node for pod in seen.pods_of(arm) if pod.node})) for arm in ARMS}


def misplaced(seen: Observation) -> str | None:
    """Why the places of the arms are not what the verdict is to rest on; None where they are, or are being changed."""
    record = seen.record
    if record is None or not seen.run.spec.hardware.changes_places or record.changing_places:
        return None
    if not record.places:
        shared = sorted(set.intersection(*({pod.node for pod in seen.pods_of(arm) if pod.node} for arm in ARMS)))
        return f"Baseline and candidate share node {shared[0]}: they have nothing to change." if shared else None
    for arm in ARMS:
        strayed = sorted({pod.node for pod in seen.pods_of(arm) if pod.node} - set(record.places[arm]))
        if strayed:
            where = ", ".join(record.places[arm])
            return f"A pod of the {arm} is on node {strayed[0]}, and this half belongs to {where}."
    return None


def place_deadline(seen: Observation, done: Progress) -> float | None:
    """Until when a pair of the second half must be counted; None before the change, and once one is."""
    record = seen.record
    if record is None or not record.changed_at or done.second_counted is not None:
        return None
    return deadline_after(seen.run.spec, record.changed_at)


def change_due(seen: Observation, done: Progress) -> float | None:
    """When the arms change places: after half of the duration. None where they don't, and before the first pair."""
    spec = seen.run.spec
    if not spec.hardware.changes_places or done.first_counted is None:
        return None
    return done.first_counted + spec.duration.seconds / 2


def moved_on(seen: Observation, record: RunRecord, done: Progress) -> tuple[RunRecord, Event | None]:
    """The record after this look, and what is to be said where it says something new."""
    due, since = change_due(seen, done), done.rewarming_since
    if due is None:
        return record, None
    if not record.changed_at:
        if seen.now < due:
            return record, None
        rest = {arm: known for arm, known in record.arms.items() if arm not in ARMS}
        said = f"Half of the duration is over after {done.pairs} pairs: baseline and candidate change nodes."
        return _with(record, changed_at=seen.now, arms=rest), Event("Normal", "ChangingPlaces", said)
    if record.changing_places:
        if not _all_in_place(seen, record):
            return record, None
        said = "Baseline and candidate stand on each other's nodes; they get warm again."
        return _with(record, placed_at=seen.now, arms=arm_identities(seen)), Event("Normal", "PlacesChanged", said)
    length = seen.run.spec.arms.warmup.duration
    if record.second_half or since is None or seen.now < since + length.seconds:
        return record, None
    return _with(record, second_half=seen.now), Event("Normal", "CountingStarted", "The second half counts.")


def change_steps(seen: Observation, record: RunRecord, done: Progress) -> list[Step]:
    """What brings the arms to each other's nodes, one stage after another; each may be repeated.

    No new pod is asked for before the last old one has left its node, accelerator and all.
    """
    if not record.changing_places or _unstopped(seen):
        return []
    old = [arm for arm in ARMS if seen.object("Deployment", arm) is not None and not _is_moved(seen, record, arm)]
    if old:
        ready = settled(seen, done, record.changed_at, told=True)
        return [Delete("Deployment", names.object_name(seen.run.name, arm)) for arm in old] if ready else []
    if any(pod.component in ARMS and pod.node and pod.node not in record.places[pod.component] for pod in seen.pods):
        return []
    return arm_steps(seen, record) if is_patched(seen, record) else candidate_steps(seen, record)


def change_message(seen: Observation, record: RunRecord, done: Progress) -> str:
    """How far the arms are, for people; "" while pairs count in their second half."""
    due = change_due(seen, done)
    if due is None or record.second_half:
        return ""
    if not record.changed_at:
        return f"The arms change places at {times.written(due)}."
    if not record.changing_places:
        since = "" if done.rewarming_since is not None else " Nothing has been copied to them yet."
        return f"The arms have changed places and get warm again for {seen.run.spec.arms.warmup.duration}.{since}"
    unstopped = _unstopped(seen)
    if unstopped:
        return f"The arms change places once these are known to have stopped copying: {', '.join(unstopped)}."
    waiting = [arm for arm in ARMS if not _is_moved(seen, record, arm) or not seen.all_ready(arm)]
    refused = refused_patch(seen)
    why = "" if refused is None else f" {refused.message}"
    return f"The arms change places; waiting for {', '.join(waiting)}.{why}"


def pause_message(seen: Observation, record: RunRecord) -> str:
    """That time paused by hand counts, where some of it has passed since the arms were told to change; else ""."""
    since = (c for c in record.changes if c.field == "spec.suspend" and c.at >= record.changed_at)
    paused = seen.run.spec.suspend or any(since)
    return " Time that is paused by spec.suspend counts." if paused else ""


def _unstopped(seen: Observation) -> tuple[str, ...]:
    """The mirrors that may still count for the first half: not known to have stopped, with nothing in flight.

    One that is gone, or is leaving and takes nothing new, is not among them; one that starts is until it was read.
    """
    config = seen.config
    told = None if config is None or config.copying else config.version
    idle = {
        uid
        for uid, mirror in seen.books.newest_mirrors().items()
        if told is not None and mirror.config_version >= told and not _in_flight(mirror)
    }
    return tuple(pod.name for pod in seen.pods_of(names.MIRROR) if pod.address and pod.uid not in idle)


def _in_flight(mirror: Evidence) -> bool:
    return any(c.in_flight.requests for window in mirror.windows.values() for c in window.classes.values())


def _all_in_place(seen: Observation, record: RunRecord) -> bool:
    ready = all(_is_moved(seen, record, arm) and seen.all_ready(arm) for arm in ARMS)
    return ready and is_patched(seen, record) and not _unstopped(seen)


def _is_moved(seen: Observation, record: RunRecord, arm: str) -> bool:
    """Whether the arm's Deployment is the one that sends its pods to the other's nodes."""
    found = seen.object("Deployment", arm)
    return found is not None and pinned_to(found["spec"]["template"]["spec"]) == set(record.places[arm])


def _with(record: RunRecord, **changes: object) -> RunRecord:
    return msgspec.structs.replace(record, **changes)
