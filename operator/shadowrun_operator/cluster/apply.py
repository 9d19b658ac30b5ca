"""Carry out a `Plan` in its order, and write the status only where it differs. Decides nothing.

The first step that fails ends the steps of this pass: later ones may rest on it, and every step is repeated on the next
pass anyway. A patch of the candidate that the API server refuses is an answer, kept for the next observation.
"""

import logging
import time
from dataclasses import dataclass, field

from shadowrun_operator.api.run import API_VERSION, KIND
from shadowrun_operator.api.status import Status
from shadowrun_operator.cluster import events
from shadowrun_operator.cluster.client import ApiRefusal, Cluster
from shadowrun_operator.cluster.evidence_store import stored_manifest
from shadowrun_operator.cluster.observe import Memory
from shadowrun_operator.cluster.replicas import Replicas
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.plan import Apply, Create, Delete, PatchCandidate, Plan, Step
from shadowrun_operator.reconcile.record import Books

COUNTS_S = 10.0
"""Least time between two status writes that differ in nothing but what was counted."""

_COUNTED = ("message", "pairs", "withinSLO", "funnel", "dropped", "failures", "criteria", "classes", "provenance")
_BAD_PATCH = (400, 403, 409, 415, 422)

log = logging.getLogger(__name__)


@dataclass
class Written:
    """The status as this process last wrote it."""

    status: Manifest = field(default_factory=dict)
    at: float = 0.0


async def apply(
    cluster: Cluster, replicas: Replicas, seen: Observation, plan: Plan, memory: Memory, written: Written, instance: str
) -> None:
    """Do all of it. Raises `ApiRefusal` or `ApiUnreachable`; the next pass then begins anew."""
    await _store(cluster, seen, plan)
    memory.refusal = ""
    for step in plan.steps:
        await apply_step(cluster, seen.run.namespace, step, memory)
    if plan.push is not None:
        for address in plan.push.addresses:
            problem = await replicas.push(address, plan.push.config, seen.token)
            if problem:
                log.warning("Run %s/%s: %s", seen.run.namespace, seen.run.name, problem)
    if not plan.released:
        await write_status(cluster, seen, plan.status, written)
    for event in plan.events:
        await events.record(cluster, seen.ref, event, at=times.written(time.time()), instance=instance)


async def apply_step(cluster: Cluster, namespace: str, step: Step, memory: Memory | None = None) -> None:
    """One step."""
    match step:
        case Create(manifest):
            await cluster.create(manifest)
        case Apply(manifest):
            await cluster.apply(manifest)
        case Delete(kind, name):
            await cluster.delete(kind, namespace, name)
        case PatchCandidate(name, body):
            try:
                await cluster.patch("Deployment", namespace, name, body)
            except ApiRefusal as refusal:
                if memory is None or refusal.status not in _BAD_PATCH or refusal.reason == "Conflict":
                    raise
                memory.refusal = refusal.message


async def write_status(cluster: Cluster, seen: Observation, status: Status, written: Written) -> None:
    """Write the status if it says something new; counts alone are news only every `COUNTS_S`."""
    wanted, found = status.to_json(), seen.run.status.to_json()
    if wanted == found:
        return
    if _without_counts(wanted) == _without_counts(found) and time.monotonic() - written.at < COUNTS_S:
        return
    await cluster.apply_status(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": seen.run.name, "namespace": seen.run.namespace, "uid": seen.run.uid},
            "status": wanted,
        }
    )
    written.status, written.at = wanted, time.monotonic()


def _without_counts(status: Manifest) -> Manifest:
    return {key: value for key, value in status.items() if key not in _COUNTED}


async def _store(cluster: Cluster, seen: Observation, plan: Plan) -> None:
    record = plan.record or (seen.record if plan.checkpoint else None)
    if record is None:
        return
    at = round(seen.now, 3)
    try:
        manifest = stored_manifest(seen.ref, record, seen.books, dead=seen.dead_mirrors(), at=at)
    except ValueError as error:
        # A run must end even when its books are too large: the mirrors still have what they counted.
        log.error("Run %s/%s: %s; only its record is kept", seen.run.namespace, seen.run.name, error)
        manifest = stored_manifest(seen.ref, record, Books(), dead=(), at=at)
    await cluster.apply(manifest)
