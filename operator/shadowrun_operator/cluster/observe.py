"""Gather an `Observation`: the API server, the replicas, random values, the clock. Decides nothing."""

import asyncio
import base64
import logging
import secrets
import time
import zlib
from collections.abc import Awaitable, Callable, Container, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import msgspec
from shadowrun_mirror.config import MirrorConfig, decode_config

from shadowrun_operator.api.conditions import ConditionType, Reason, condition
from shadowrun_operator.api.run import ShadowRun
from shadowrun_operator.cluster.client import Cluster
from shadowrun_operator.cluster.evidence_store import Stored, parts_of, read_back
from shadowrun_operator.cluster.memory import Memory
from shadowrun_operator.cluster.neighbours import Neighbour, Neighbours
from shadowrun_operator.cluster.own_objects import config_maps, foreign, forget_books, labelled, sets_of, sorted_out
from shadowrun_operator.cluster.pods import lost, nodes_named, pods_of
from shadowrun_operator.cluster.replicas import Replicas
from shadowrun_operator.cluster.room import free_room
from shadowrun_operator.cluster.routes import route_seen
from shadowrun_operator.manifests import groups, names
from shadowrun_operator.manifests.arms import service_in
from shadowrun_operator.manifests.attempts import LEDGER, earlier_attempts
from shadowrun_operator.manifests.bootstrap import capture_ports
from shadowrun_operator.manifests.given_back import given_back_at, is_given_back
from shadowrun_operator.manifests.mirror import CONFIG_KEY, TOKEN_KEY
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.route import filters_of
from shadowrun_operator.manifests.template import inline_source, wanted_source
from shadowrun_operator.manifests.workload import pods_each
from shadowrun_operator.reconcile.gateway import RouteSeen
from shadowrun_operator.reconcile.observation import FreshSecrets, NodeRoom, Observation, OtherRun, Pod, Settings
from shadowrun_operator.reconcile.primary import primary_port
from shadowrun_operator.reconcile.record import RunRecord
from shadowrun_operator.reconcile.room import common_pool
from shadowrun_operator.reconcile.schedule import waits_until
from shadowrun_operator.reconcile.unreadable import other_run

log = logging.getLogger(__name__)

T = TypeVar("T")

_COUNTING = (names.MIRROR, names.CAPTURE)
COPYING_S = 30.0
"""How long an answer is recalled while a run copies. Changes of Deployments and pods are heard of at once."""
WAITING_S = 600.0
"""The same while a sound run waits for its time: nothing of it is there yet."""
AHEAD_S = 60.0
"""A run that may begin by then waits no more: no look takes as long."""
ROOM_S = 30.0
"""Between two looks at the room on nodes: each takes a list of pods for every node."""
NO_ROOM_S = 300.0
"""After a look that told nothing, because the pool is too large, say: most likely the next one would not either."""
_SEED_BITS = 53
"""Seeds stay exact in every JSON reader."""


async def observe(
    cluster: Cluster, replicas: Replicas, settings: Settings, body: Manifest, memory: Memory
) -> Observation:
    """One look at everything that matters to this run. Raises `pydantic.ValidationError` for a body it cannot read.

    The run, the customers' path and the evidence are looked at every time; all else may be recalled (`_recalled_s`).
    """
    run = memory.run = _read(body, memory.run)
    now = time.time()
    spec, kept_s = run.spec, _recalled_s(run, now, memory)
    # Customers wait for nobody to speak of an Envoy that is not ready.
    pods_s = 0.0 if spec.capture.proxy is not None and _copies(run) else kept_s

    async def recalled(what: Hashable, ask: Callable[[], Awaitable[T]], seconds: float = kept_s) -> T:
        return await memory.recall.told((run.metadata.generation, what), ask, seconds=seconds)

    primary, source, capture_service, (maps, others_found), own_pods, (neighbours, ledger) = await asyncio.gather(
        cluster.get("Service", run.namespace, spec.primary.service.name),
        recalled("source", lambda: _source(cluster, run)),
        _maybe(cluster, "Service", run.namespace, spec.capture.service_name),
        asyncio.gather(
            config_maps(cluster, run, memory, evidence_only=kept_s > 0),
            recalled("objects", lambda: labelled(cluster, run)),
        ),
        recalled("pods", lambda: pods_of(cluster, run), pods_s),
        asyncio.gather(
            _neighbours(cluster, run, memory.neighbours, seconds=kept_s),
            recalled("ledger", lambda: _ledger(cluster, run)),
        ),
    )
    objects, _ = sorted_out([*maps, *others_found], run)
    kept = objects.get(("ConfigMap", names.object_name(run.name, names.EVIDENCE)))
    stored = await _stored(cluster, kept, run, with_books=memory.books is None)
    if kept_s and stored.record is not None and stored.record.ended_at:
        # The status may never say so: its write may be refused for ever, and a run must end all the same.
        memory.ended = True
        return await observe(cluster, replicas, settings, body, memory)
    sets = await recalled("sets", lambda: sets_of(cluster, run, stored.record))
    objects, leftovers = sorted_out([*maps, *others_found, *(sets or ())], run)
    config, token = _secret_of(objects, run)
    # What is stored may be coarser than what is remembered, never newer: it is read once.
    books = stored.books if memory.books is None else memory.books
    read: frozenset[str] = frozenset()
    clocks: Mapping[str, float] = {}
    record = stored.record
    if token and record is not None and record.copying_since:
        port = primary_port(primary, source, spec.primary.service.port) if primary and source else None
        reading = await replicas.read(
            _addresses(own_pods, names.MIRROR),
            _addresses(own_pods, names.CAPTURE),
            token,
            companion_port=capture_ports(port.number if port else 0).companion,
        )
        books = books.with_readings(run.uid, reading.mirrors, reading.captures)
        read, clocks = reading.pods_of(run.uid), reading.clocks
        if any(pod.uid not in read for pod in own_pods if pod.address and pod.component in _COUNTING):
            memory.recall.forget()  # a pod that does not answer may be gone, and nobody has heard of it
    memory.books = books
    forget_books(memory, run)
    arm_nodes = tuple(sorted({pod.node for pod in own_pods if pod.node and pod.component in spec.arm_names}))
    siblings, others = _others(run, neighbours)
    surroundings, route, nodes, room = await asyncio.gather(
        recalled("surroundings", lambda: _surroundings(cluster, run, record, objects)),
        route_seen(cluster, run, with_gateways=record is None),
        recalled(arm_nodes, lambda: nodes_named(cluster, arm_nodes)),
        _room(cluster, run, record, own_pods, memory, stands=_arm_stands(run, objects)),
    )
    _remember_giving_back(memory, capture_service, now, filtered=_is_filtered(route, run))
    return Observation(
        now=time.time(),
        run=run,
        settings=settings,
        fresh=FreshSecrets(token=secrets.token_urlsafe(32), seed=secrets.randbits(_SEED_BITS)),
        primary=primary,
        source=source,
        groups_served=sets is not None,
        capture_service=capture_service,
        arm_services=surroundings.arm_services,
        credential_found=surroundings.credential_found,
        objects=objects,
        foreign=surroundings.foreign,
        leftovers=leftovers,
        pods=own_pods,
        node_labels={node: item.get("metadata", {}).get("labels", {}) for node, item in nodes.items()},
        lost_nodes={node: why for node, item in nodes.items() if (why := lost(item))},
        room=room,
        others=others,
        record=record,
        books=books,
        checkpoint_at=stored.at,
        config=config,
        token=token,
        given_back_since=memory.given_back_since,
        route=route,
        read=read,
        clocks=clocks,
        refusal=memory.refusal,
        attempts=earlier_attempts(ledger, siblings),
        ledger=ledger,
    )


def _read(body: Manifest, known: ShadowRun | None) -> ShadowRun:
    """Each version once."""
    version = body["metadata"].get("resourceVersion")
    return known if known is not None and known.metadata.resource_version == version else ShadowRun.parse(body)


def _copies(run: ShadowRun) -> bool:
    return run.status.phase in ("WarmingUp", "Running")


def _recalled_s(run: ShadowRun, now: float, memory: Memory) -> float:
    """How old an answer may be: while the run copies, and while a sound one waits for its time; else it is asked anew.

    Whoever is about to make, to change or to remove something has to know how things are.
    """
    if memory.ended or run.metadata.deletion_timestamp is not None:
        return 0.0
    if _copies(run):
        return COPYING_S
    accepted = condition(run.status.conditions, ConditionType.ACCEPTED)
    scheduled = accepted is not None and accepted.reason == Reason.SCHEDULED
    begins = waits_until(run.spec, now)
    return WAITING_S if scheduled and begins is not None and begins > now + AHEAD_S else 0.0


def _is_filtered(route: RouteSeen | None, run: ShadowRun) -> bool:
    found = None if route is None else route.route
    return found is not None and bool(filters_of(found, run.spec.capture.service_name))


def _remember_giving_back(memory: Memory, service: Manifest | None, now: float, *, filtered: bool) -> None:
    """Since when customers' requests go their way without us: as the Service says itself, or as this process has seen.

    `filtered`: a filter of ours has their gateway copy them.
    """
    if filtered or (service is not None and not is_given_back(service)):
        memory.given_back_since = None
    elif service is not None and given_back_at(service) is not None:
        memory.given_back_since = given_back_at(service)
    elif memory.given_back_since is None:
        memory.given_back_since = now


@dataclass(frozen=True)
class _Surroundings:
    """What matters to a run that is not accepted yet, beside what it asks for by name."""

    arm_services: dict[str, Manifest] = field(default_factory=dict)
    credential_found: bool = True
    foreign: tuple[str, ...] = ()


async def _surroundings(
    cluster: Cluster, run: ShadowRun, record: RunRecord | None, ours: dict[tuple[str, str], Manifest]
) -> _Surroundings:
    if record is not None:
        return _Surroundings()
    arm_services, credential_found, strangers = await asyncio.gather(
        _arm_services(cluster, run), _credential_found(cluster, run), foreign(cluster, run, ours)
    )
    return _Surroundings(arm_services, credential_found, strangers)


async def _ledger(cluster: Cluster, run: ShadowRun) -> Manifest | None:
    """Until pairs count. The record may be further than the status says: then it is asked for once in vain."""
    uncounted = run.status.phase in ("Pending", "Preparing", "WarmingUp")
    return await cluster.get("ConfigMap", run.namespace, LEDGER) if uncounted else None


async def _neighbours(
    cluster: Cluster, run: ShadowRun, neighbours: Neighbours, *, seconds: float
) -> tuple[Neighbour, ...]:
    """All runs of the namespace, until this one copies: it has had its turn then, and looking at all of them costs.

    Of two that were accepted at once the newer has to yield. So an accepted one goes by a list begun in this very pass,
    after its status has said so: no older run that was accepted before that is missed when the first arm is made.
    """
    waits = run.status.phase in ("Pending", "Preparing")
    return await neighbours.of(cluster, run.namespace, seconds=seconds) if waits else ()


def _others(run: ShadowRun, neighbours: Iterable[Neighbour]) -> tuple[tuple[str, ...], tuple[OtherRun, ...]]:
    """Of the other runs of the namespace: the hash of the spec of each that has copied traffic; and the active ones.

    Active are those accepted, and those older than this one that are still to be looked at, unless they are planned for
    a later time.
    """
    found, hashes = [], []
    own_age = _age(run)
    for other in neighbours:
        if not isinstance(other, ShadowRun):
            # Its own loop says so in its status. What an operator that could read it made may still stand.
            meta = other["metadata"]
            unreadable = other_run(other, older=(meta.get("creationTimestamp", ""), meta["uid"]) < own_age)
            found += [] if unreadable is None or meta["uid"] == run.uid else [unreadable]
            continue
        if other.uid == run.uid:
            continue
        status = other.status
        if status.attempt and status.provenance.spec_hash:
            hashes.append(status.provenance.spec_hash)
        if status.phase == "Complete":
            continue
        accepted = condition(status.conditions, ConditionType.ACCEPTED)
        older = _age(other) < own_age
        may_begin = accepted is None and older and waits_until(other.spec, time.time()) is None
        if may_begin or (accepted is not None and accepted.status == "True"):
            capture = other.spec.capture
            found.append(
                OtherRun(
                    name=other.name,
                    primary="" if capture.made_elsewhere else other.spec.primary.service.name,
                    service_name=capture.service_name,
                    rule=capture.rule_name,
                    older=older,
                )
            )
    return tuple(hashes), tuple(found)


def _age(run: ShadowRun) -> tuple[str, str]:
    """The smaller one is the older."""
    return run.metadata.creation_timestamp or "", run.uid


async def _credential_found(cluster: Cluster, run: ShadowRun) -> bool:
    ref = run.spec.arms.credentials_secret_ref
    if ref is None:
        return True
    secret = await cluster.get("Secret", run.namespace, ref.name)
    return secret is not None and ref.key in secret.get("data", {})


async def _arm_services(cluster: Cluster, run: ShadowRun) -> dict[str, Manifest]:
    """Services of the namespace that the URLs of external arms name, as far as they are there."""
    external = run.spec.arms.template.external
    urls = () if external is None else external.urls.values()
    wanted = sorted({name for url in urls if (name := service_in(url, run.namespace))})
    found = await asyncio.gather(*(cluster.get("Service", run.namespace, name) for name in wanted))
    return {name: item for name, item in zip(wanted, found, strict=True) if item is not None}


def _arm_stands(run: ShadowRun, objects: Mapping[tuple[str, str], Manifest]) -> bool:
    wanted = [part for arm in run.spec.made_arms for part in (("Deployment", arm), (groups.KIND, groups.set_of(arm)))]
    return any((kind, names.object_name(run.name, part)) in objects for kind, part in wanted)


async def _room(
    cluster: Cluster, run: ShadowRun, record: RunRecord | None, pods: Iterable[Pod], memory: Memory, *, stands: bool
) -> tuple[NodeRoom, ...] | None:
    """What is left of the arms' pool, as long as some of their pods have no node; looked at only every so often.

    And only once an arm stands: no arm has to wait for the look.
    """
    arms, now = run.spec.made_arms, time.monotonic()
    landed = {pod.uid for pod in pods if pod.component in arms and pod.node}
    leaving = run.metadata.deletion_timestamp is not None or bool(run.spec.stop.reason)
    if leaving or not stands or record is None or record.copying_since or record.ended_at:
        return None
    if len(landed) >= len(arms) * run.spec.arms.replicas * pods_each(record.source):
        return None
    if not memory.room_at or now >= memory.room_at + (NO_ROOM_S if memory.room is None else ROOM_S):
        pool = common_pool(run.spec.hardware.node_selector, record.source)
        memory.room, memory.room_at = await free_room(cluster, pool, partial(_waits, run, landed)), now
    return memory.room


def _waits(run: ShadowRun, landed: Container[str], pod: Manifest) -> bool:
    """Whether it is an arm's pod that had no node when this pass looked, or was not there yet."""
    meta = pod["metadata"]
    labels, arms = meta.get("labels", {}), run.spec.made_arms
    ours = meta["namespace"] == run.namespace and labels.get(names.RUN_LABEL) == run.name
    return ours and labels.get(names.COMPONENT_LABEL) in arms and meta["uid"] not in landed


async def _source(cluster: Cluster, run: ShadowRun) -> Manifest | None:
    template = run.spec.arms.template
    wanted = wanted_source(template)
    return inline_source(template) if wanted is None else await cluster.get(wanted[0], run.namespace, wanted[1])


async def _maybe(cluster: Cluster, kind: str, namespace: str, name: str) -> Manifest | None:
    return await cluster.get(kind, namespace, name) if name else None


async def _stored(cluster: Cluster, manifest: Manifest | None, run: ShadowRun, *, with_books: bool) -> Stored:
    """Record and books; what somebody made unreadable counts as gone, since a run must end all the same."""
    if manifest is None:
        return read_back(None, run.uid)
    wanted = parts_of(manifest, run.name) if with_books else []
    parts = await asyncio.gather(*(cluster.get("ConfigMap", run.namespace, name) for name in wanted))
    if not with_books:
        manifest = {**manifest, "binaryData": {}}
    read = partial(read_back, manifest, run.uid, parts)
    try:
        return await asyncio.to_thread(read) if with_books else read()  # books may be large, a record is not
    except (msgspec.MsgspecError, zlib.error, ValueError) as error:
        log.error("Run %s/%s: its evidence cannot be read back: %s", run.namespace, run.name, error)
        return read_back(None, run.uid)


def _secret_of(objects: dict[tuple[str, str], Manifest], run: ShadowRun) -> tuple[MirrorConfig | None, str]:
    """Configuration and token; where somebody made them unreadable they are made anew."""
    secret = objects.get(("Secret", names.object_name(run.name, names.MIRROR)))
    if secret is None:
        return None, ""
    try:
        data = secret["data"]
        return decode_config(base64.b64decode(data[CONFIG_KEY])), base64.b64decode(data[TOKEN_KEY]).decode()
    except (msgspec.MsgspecError, KeyError, ValueError) as error:
        log.error("Run %s/%s: Secret %s is unreadable: %r", run.namespace, run.name, secret["metadata"]["name"], error)
        return None, ""


def _addresses(pods: Iterable[Pod], component: str) -> list[str]:
    return [pod.address for pod in pods if pod.component == component and pod.address]
