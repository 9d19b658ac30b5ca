"""`Runs`: one pass over a run, one sweep over all of them, and what the process remembers between passes.

A pass is observe, plan, apply. Passes of one run never overlap, whoever asks for them. Framework-free.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field

from pydantic import ValidationError

from shadowrun_operator.api.run import API_VERSION, KIND
from shadowrun_operator.cluster import metrics
from shadowrun_operator.cluster.apply import Written, apply, apply_steps
from shadowrun_operator.cluster.client import ApiRefusal, ApiUnreachable, Cluster
from shadowrun_operator.cluster.memory import Memory
from shadowrun_operator.cluster.namespaces import ALL, Namespaces
from shadowrun_operator.cluster.neighbours import Neighbours
from shadowrun_operator.cluster.observe import observe
from shadowrun_operator.cluster.own_objects import OWN_KINDS
from shadowrun_operator.cluster.replicas import Replicas
from shadowrun_operator.manifests import groups, names
from shadowrun_operator.manifests.given_back import followed, stands_for
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile.kept import HOPELESS_S, is_over, overdue_s
from shadowrun_operator.reconcile.observation import Settings
from shadowrun_operator.reconcile.orphans import abandoned_steps, orphan_plans
from shadowrun_operator.reconcile.reconcile import reconcile
from shadowrun_operator.reconcile.route import unclaimed_steps
from shadowrun_operator.reconcile.unreadable import due, end_of, ended_status, is_given_up, refused_status

SWEEP_S = 60.0
FOLLOW_S = 15.0
PAUSE_S = 5.0
"""After a pass that failed."""
LATE_S = 60.0
"""A run past its expiry whose loop has been silent for so long is taken over by the sweeper."""
STALE_S = 300.0
"""No sweep or no pass for so long: the process is not doing its work any more."""

_PATH_KINDS = ("Service", "Deployment", "PodDisruptionBudget", "Secret")

Key = tuple[str, str]
"""Namespace and name of a run."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """When to look again, in seconds; `released`: everything of a deleted run is gone, or the run itself is."""

    requeue_after: float
    released: bool = False


@dataclass
class _Line:
    """What belongs to one run in this process."""

    uid: str = ""
    memory: Memory = field(default_factory=Memory)
    written: Written = field(default_factory=Written)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    driven: bool = False
    passed_at: float = field(default_factory=time.monotonic)


class Runs:
    """All runs of this process, in the namespaces it looks after."""

    def __init__(
        self,
        cluster: Cluster,
        replicas: Replicas,
        settings: Settings,
        *,
        instance: str,
        namespaces: Namespaces = ALL,
    ) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._settings = settings
        self._instance = instance
        self._namespaces = namespaces
        self._lines: dict[Key, _Line] = {}
        self._neighbours = Neighbours()
        self._swept_at = time.monotonic()
        self._stamps: dict[Key, tuple[object, ...]] = {}
        self._finished: set[Key] = set()  # complete, as of the last sweep

    async def close(self) -> None:
        """Close every connection."""
        await self._replicas.close()
        await self._cluster.close()

    def looks_after(self, namespace: str | None) -> bool:
        """Whether the runs there are this process's."""
        return namespace in self._namespaces

    def wake(self, namespace: str, name: str) -> None:
        """Something about this run has changed: look now."""
        line = self._lines.get((namespace, name))
        if line is not None:
            line.memory.recall.forget()
            line.wake.set()

    def woken(self, namespace: str, name: str) -> asyncio.Event:
        """The event that `wake` sets."""
        return self._line((namespace, name)).wake

    def driving(self, namespace: str, name: str, *, driven: bool) -> None:
        """Whether a loop answers for this run; only such a run can be late."""
        line = self._line((namespace, name))
        line.driven, line.passed_at = driven, time.monotonic()

    def changed(self, namespace: str, name: str, stamp: tuple[object, ...]) -> bool:
        """Whether this is not what was last seen of the run's identity, generation and finalizer."""
        before = self._stamps.get((namespace, name))
        self._stamps[namespace, name] = stamp
        return before != stamp

    def forget(self, namespace: str, name: str) -> None:
        """The run is gone: nothing of it is remembered."""
        self._lines.pop((namespace, name), None)
        self._stamps.pop((namespace, name), None)

    async def pass_once(self, namespace: str, name: str) -> Outcome:
        """One pass; whatever goes wrong is logged and tried again, since a loop that dies expires nothing."""
        line = self._line((namespace, name))
        async with line.lock:
            line.wake.clear()
            begun = time.monotonic()
            try:
                return await self._pass(namespace, name, line)
            except (ApiRefusal, ApiUnreachable) as error:
                metrics.FAILED_PASSES.labels(kind=type(error).__name__).inc()
                log.warning("Run %s/%s: %s", namespace, name, error)
            except Exception as error:
                metrics.FAILED_PASSES.labels(kind=type(error).__name__).inc()
                log.exception("Run %s/%s: the pass failed and will be repeated", namespace, name)
            finally:
                line.passed_at = time.monotonic()
                metrics.PASS_SECONDS.observe(line.passed_at - begun)
        return Outcome(PAUSE_S)

    async def sweep(self) -> None:
        """Take over runs past their expiry whose loop is silent; give back and remove what runs left behind.

        Objects are listed before runs: what a run makes in between must not look as if it had none.
        """
        selector = f"{names.COMPONENT_LABEL}={names.CAPTURE},{names.MANAGED_BY_LABEL}={names.MANAGED_BY}"
        routed = f"{names.COMPONENT_LABEL}={names.ROUTED},{names.MANAGED_BY_LABEL}={names.MANAGED_BY}"
        found = self._ours(await self._listed(_PATH_KINDS, self._namespaces.listed, selector))
        services = self._ours(await self._listed(("Service",), self._namespaces.listed, routed))
        bodies = self._ours(await self._listed((KIND,), self._namespaces.listed, ""))
        for body in bodies:
            key = (body["metadata"]["namespace"], body["metadata"]["name"])
            if self._is_late(key, body):
                log.warning("Run %s/%s is past its expiry and its loop is silent: taking over", *key)
                await self.pass_once(*key)
            if overdue_s(body, time.time()) >= HOPELESS_S:
                log.error("Run %s/%s is long past its expiry and does not end: taking it down", *key)
                await self._tried(f"Run {key[0]}/{key[1]} cannot be taken down", self._abandon(*key))
            if is_over(body, time.time()):
                await self._delete_finished(key, body["metadata"]["uid"])
        living = {_key(body) for body in bodies if body.get("status", {}).get("phase") != "Complete"}
        self._finished = {_key(body) for body in bodies} - living
        for plan in orphan_plans(found, living, time.time()):
            said = f"What an ended run left in {plan.namespace} cannot be removed"
            await self._tried(said, apply_steps(self._cluster, plan.namespace, plan.steps))
        await self._take_filters_out(services, living)
        phases = [body.get("status", {}).get("phase", "Pending") for body in bodies]
        metrics.count_phases(phases)
        self._swept_at = time.monotonic()

    async def follow(self) -> None:
        """Services that ended runs left to customers lead where the primary's Services lead now."""
        selector = f"{names.COMPONENT_LABEL}={names.CAPTURE},{names.MANAGED_BY_LABEL}={names.MANAGED_BY}"
        for service in self._ours(await self._listed(("Service",), self._namespaces.listed, selector)):
            meta, known = service["metadata"], stands_for(service)
            key = (meta["namespace"], meta["labels"].get(names.RUN_LABEL, ""))
            if known is None or (key in self._lines and self._lines[key].driven and key not in self._finished):
                continue  # its run's own passes keep it up to date
            manifest = followed(service, await self._cluster.get("Service", meta["namespace"], known[0]))
            if manifest is None:
                continue
            log.info("Service %s/%s follows the Service %s", meta["namespace"], meta["name"], known[0])
            try:
                await self._cluster.apply(manifest)
            except ApiRefusal as refusal:
                log.warning("Service %s/%s: %s", meta["namespace"], meta["name"], refusal)

    def stale(self) -> str:
        """What has not happened for too long, or "" when all is well."""
        now = time.monotonic()
        if now - self._swept_at > STALE_S:
            return f"no sweep for {now - self._swept_at:.0f} s"
        for (namespace, name), line in self._lines.items():
            if line.driven and now - line.passed_at > STALE_S:
                return f"no pass over {namespace}/{name} for {now - line.passed_at:.0f} s"
        return ""

    def _memory(self) -> Memory:
        return Memory(neighbours=self._neighbours)

    def _line(self, key: Key) -> _Line:
        return self._lines.setdefault(key, _Line())

    async def _delete_finished(self, key: Key, uid: str) -> None:
        """Its time after the end is over."""
        log.info("Run %s/%s is deleted: its ttlAfterFinished has passed", *key)
        await self._tried(f"Run {key[0]}/{key[1]} cannot be deleted", self._cluster.delete(KIND, *key, uid=uid))

    async def _tried(self, said: str, work: Awaitable[object]) -> bool:
        """Whether it was done. What is refused of one run keeps no other one waiting: the next sweep is soon."""
        try:
            await work
        except (ApiRefusal, ApiUnreachable) as error:
            log.warning("%s: %s", said, error)
            return False
        return True

    def _is_late(self, key: Key, body: Manifest) -> bool:
        if overdue_s(body, time.time()) < 0:
            return False
        line = self._lines.get(key)
        return line is None or time.monotonic() - line.passed_at > LATE_S

    async def _pass(self, namespace: str, name: str, line: _Line) -> Outcome:
        body = await self._cluster.get(KIND, namespace, name)
        if body is None:
            return Outcome(PAUSE_S, released=True)
        if line.uid != body["metadata"]["uid"]:
            line.uid, line.memory, line.written = body["metadata"]["uid"], self._memory(), Written()
        try:
            seen = await observe(self._cluster, self._replicas, self._settings, body, line.memory)
            plan = await asyncio.to_thread(reconcile, seen)
        except ValidationError as error:
            first = error.errors()[0]
            return await self._unreadable(body, f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}")
        except (ApiRefusal, ApiUnreachable):
            raise
        except Exception as error:
            if not is_given_up(body, time.time()):
                raise
            # No pass over it would get any further: it must end all the same.
            log.exception("Run %s/%s cannot be worked with", namespace, name)
            metrics.FAILED_PASSES.labels(kind=type(error).__name__).inc()
            problem = f"The operator cannot work with this spec ({type(error).__name__}); its log says where."
            return Outcome(PAUSE_S, (await self._unreadable(body, problem)).released)
        await apply(self._cluster, self._replicas, seen, plan, line.memory, line.written, self._instance)
        return Outcome(plan.requeue_after, plan.released)

    async def _take_filters_out(self, services: Iterable[Manifest], living: set[Key]) -> None:
        """Of runs that live no more; a Service that another run has taken over since it was listed is left to that."""
        for service in services:
            meta = service["metadata"]
            if (meta["namespace"], meta["labels"].get(names.RUN_LABEL, "")) in living:
                continue
            said = f"Service {meta['namespace']}/{meta['name']}: its filter stays in its route"
            await self._tried(said, self._take_filter_out(service))

    async def _take_filter_out(self, listed: Manifest) -> None:
        meta = listed["metadata"]
        steps = unclaimed_steps([listed], time.time())
        if not steps:
            return
        now = await self._cluster.get("Service", meta["namespace"], meta["name"])
        if now is None or now["metadata"].get("resourceVersion") != meta.get("resourceVersion"):
            return
        await apply_steps(self._cluster, meta["namespace"], steps)

    async def _unreadable(self, body: Manifest, problem: str) -> Outcome:
        """A body that nothing can be made of: said in the status, and it ends all the same."""
        meta, status, now = body["metadata"], body.get("status", {}), time.time()
        if "deletionTimestamp" in meta:
            return Outcome(PAUSE_S, released=True)
        if status.get("phase") == "Complete":
            return Outcome(SWEEP_S)
        end, said = end_of(body, problem, now), refused_status(body, problem, now)
        if end is not None and not await self._abandon(meta["namespace"], meta["name"]):
            said = ended_status(body, problem, end, now)
        if said != status:
            log.warning("Run %s/%s cannot be read: %s", meta["namespace"], meta["name"], problem)
            identity = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
            await self._cluster.apply_status(
                {"apiVersion": API_VERSION, "kind": KIND, "metadata": identity, "status": said}
            )
        ahead = due(body) - now
        return Outcome(min(SWEEP_S, ahead) if ahead > 0 else PAUSE_S)

    async def _abandon(self, namespace: str, name: str) -> bool:
        """Take a run down by names and labels, since nothing else can be relied on. Whether there was anything.

        A filter that cannot be taken out of its route holds up nothing: the sweep looks after it when the run is over.
        """
        selector = f"{names.RUN_LABEL}={name},{names.MANAGED_BY_LABEL}={names.MANAGED_BY}"
        found = await self._listed(OWN_KINDS, (namespace,), selector)
        found += await self._sets(namespace, selector)
        steps = abandoned_steps(found, time.time())
        await apply_steps(self._cluster, namespace, steps)
        await self._take_filters_out([item for item in found if item["kind"] == "Service"], set())
        return bool(steps)

    async def _sets(self, namespace: str, selector: str) -> list[Manifest]:
        """LeaderWorkerSets; none where the operator's role does not name them, for then it has made none."""
        try:
            return await self._cluster.list_if_served(groups.KIND, namespace, selector=selector) or []
        except ApiRefusal as refusal:
            if refusal.status != 403:
                raise
            log.warning("Whether runs left LeaderWorkerSets in %s is not known: %s", namespace, refusal)
            return []

    def _ours(self, found: list[Manifest]) -> list[Manifest]:
        return [body for body in found if self.looks_after(body["metadata"]["namespace"])]

    async def _listed(self, kinds: Iterable[str], namespaces: Iterable[str], selector: str) -> list[Manifest]:
        return [
            item
            for ns in namespaces
            for kind in kinds
            for item in await self._cluster.list(kind, ns, selector=selector)
        ]


def _key(body: Manifest) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]
