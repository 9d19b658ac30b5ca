"""Carry out a `Plan` in its order, and write the status only where it differs. Decides nothing.

The first step that fails ends the steps of this pass, for later ones may rest on it; but nothing rests on a `Delete`.
Mirrors that have to stop copying are told all the same.
The refusal is said in the status and in an event, and every step is repeated on the next pass. A patch of the candidate
that the API server refuses is an answer, kept for the next observation; it ends the steps of this pass too.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from shadowrun_operator.api.run import API_VERSION, KIND
from shadowrun_operator.api.status import MESSAGE_LENGTH, Status, shortened
from shadowrun_operator.cluster import events
from shadowrun_operator.cluster.client import ApiRefusal, ApiUnreachable, Cluster
from shadowrun_operator.cluster.evidence_store import stored_manifests
from shadowrun_operator.cluster.memory import Memory
from shadowrun_operator.cluster.own_objects import forget_books
from shadowrun_operator.cluster.replicas import Replicas
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.route import edits as route_edits
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.plan import Apply, Create, Delete, EditRoute, Event, Merge, PatchCandidate, Plan, Step
from shadowrun_operator.reconcile.record import Books, RunRecord

COUNTS_S = 10.0
"""Least time between two status writes that differ in nothing but what was counted."""

_COUNTED = {
    "message",
    "pairs",
    "within_slo",
    "funnel",
    "dropped",
    "failures",
    "criteria",
    "classes",
    "comparison",
    "provenance",
}
_BAD_PATCH = (400, 403, 409, 415, 422)

log = logging.getLogger(__name__)


@dataclass
class Written:
    """When this process last wrote the status."""

    at: float = 0.0


async def apply(
    cluster: Cluster, replicas: Replicas, seen: Observation, plan: Plan, memory: Memory, written: Written, instance: str
) -> None:
    """Do all of it. Raises `ApiRefusal` or `ApiUnreachable`; the next pass then begins anew."""
    memory.refusal = ""
    if plan.writes:
        memory.recall.forget()
    try:
        await _store(cluster, seen, plan, memory)
    except ApiRefusal as refusal:
        await _refused(cluster, seen, seen.run.status, refusal, written, instance)
        raise
    try:
        await apply_steps(cluster, seen.run.namespace, plan.steps, memory)
    except (ApiRefusal, ApiUnreachable) as error:
        if _stops_for_good(seen, plan):
            await _push(cluster, replicas, seen, plan)
        if isinstance(error, ApiRefusal):
            await _refused(cluster, seen, plan.status, error, written, instance)
        raise
    await _push(cluster, replicas, seen, plan)
    if not plan.released:
        await write_status(cluster, seen, plan.status, written)
    for event in plan.events:
        await events.record(cluster, seen.ref, event, at=times.written(time.time()), instance=instance)


def _stops_for_good(seen: Observation, plan: Plan) -> bool:
    """Whether the mirrors may be told to stop although a step was refused: no later look takes that back unseen.

    A version that was never stored would be used again for something else, and mirrors take no version twice.
    """
    if plan.push is None or plan.push.config.copying:
        return False
    record, leaving = plan.record or seen.record, seen.run.metadata.deletion_timestamp is not None
    return leaving or (record is not None and record.ended_at > 0) or seen.config == plan.push.config


async def _push(cluster: Cluster, replicas: Replicas, seen: Observation, plan: Plan) -> None:
    """All at once: a mirror that does not answer must not keep the others waiting."""
    if plan.push is None or not cluster.may_write():
        return
    config, addresses = plan.push.config, plan.push.addresses
    for problem in await asyncio.gather(*(replicas.push(address, config, seen.token) for address in addresses)):
        if problem:
            log.warning("Run %s/%s: %s", seen.run.namespace, seen.run.name, problem)


async def apply_steps(cluster: Cluster, namespace: str, steps: Iterable[Step], memory: Memory | None = None) -> None:
    """One after another. Raises the refusal that ended them, or that of a deletion once all the others are done."""
    refused: ApiRefusal | None = None
    for step in steps:
        try:
            await apply_step(cluster, namespace, step, memory)
        except ApiRefusal as refusal:
            if not isinstance(step, Delete):
                raise
            refused = refused or refusal
        if memory is not None and memory.refusal:
            break  # nothing is made beside a candidate that was refused
    if refused is not None:
        raise refused


async def _refused(
    cluster: Cluster, seen: Observation, status: Status, refusal: ApiRefusal, written: Written, instance: str
) -> None:
    """Say what the API server refused; told once, however often it is tried."""
    message = shortened(f"The API server refused what the run needs, which is tried again: {refusal}", MESSAGE_LENGTH)
    news = seen.run.status.message != message
    await write_status(cluster, seen, status.model_copy(update={"message": message}), written, news=news)
    if news:
        event = Event("Warning", "Refused", message)
        await events.record(cluster, seen.ref, event, at=times.written(time.time()), instance=instance)


async def apply_step(cluster: Cluster, namespace: str, step: Step, memory: Memory | None = None) -> None:
    """One step."""
    match step:
        case Create(manifest):
            await cluster.create(manifest)
        case Apply(manifest):
            await cluster.apply(manifest)
        case Merge(manifest):
            await cluster.merge(manifest)
        case Delete(kind, name):
            await cluster.delete(kind, namespace, name)
        case EditRoute(name, service, rule, wanted):
            await cluster.edit("HTTPRoute", namespace, name, lambda found: route_edits(found, rule, service, wanted))
            if wanted is not None and memory is not None:
                memory.given_back_since = None
        case PatchCandidate(name, body):
            try:
                await cluster.patch("Deployment", namespace, name, body)
            except ApiRefusal as refusal:
                if memory is None or refusal.status not in _BAD_PATCH or refusal.reason == "Conflict":
                    raise
                memory.refusal = refusal.message or str(refusal)


async def write_status(
    cluster: Cluster, seen: Observation, status: Status, written: Written, *, news: bool = False
) -> None:
    """Write the status if it says something new; counts alone are news only every `COUNTS_S`, unless said to be."""
    found, counted_lately = seen.run.status, time.monotonic() - written.at < COUNTS_S
    if status == found or (counted_lately and not news and _without_counts(status) == _without_counts(found)):
        return
    wanted = status.to_json()
    if wanted == found.to_json():
        return
    await cluster.apply_status(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": seen.run.name, "namespace": seen.run.namespace, "uid": seen.run.uid},
            "status": wanted,
        }
    )
    written.at = time.monotonic()


def _without_counts(status: Status) -> dict[str, Any]:
    return {field: value for field, value in status if field not in _COUNTED}


async def _store(cluster: Cluster, seen: Observation, plan: Plan, memory: Memory) -> None:
    record = plan.record or (seen.record if plan.checkpoint else None)
    if record is None:
        return
    try:
        made = await asyncio.to_thread(_checkpoint, seen, record, seen.books)
    except ValueError as error:
        # A run must end even when its books are too large: the mirrors still have what they counted.
        log.error("Run %s/%s: %s; only its record is kept", seen.run.namespace, seen.run.name, error)
        made = _checkpoint(seen, record, Books())
    *parts, manifest = made
    for part in parts:
        await cluster.apply(part)
    name = manifest["metadata"]["name"]
    if seen.object("ConfigMap", names.EVIDENCE) is not None:
        stored: Manifest | None = await cluster.apply(manifest)
    else:
        stored = await cluster.create(manifest)
    if stored is None:
        raise ApiRefusal(409, "AlreadyExists", f"ConfigMap {name!r} exists and is not this run's")
    memory.config_maps[name] = stored  # in this version it need not be read
    forget_books(memory, seen.run)


def _checkpoint(seen: Observation, record: RunRecord, books: Books) -> tuple[Manifest, ...]:
    before, at = seen.object("ConfigMap", names.EVIDENCE), round(seen.now, 3)
    return stored_manifests(seen.ref, record, books, dead=seen.dead_mirrors(), at=at, before=before)
