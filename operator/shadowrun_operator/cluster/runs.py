"""`Runs`: one pass over a run, one sweep over all of them, and what the process remembers between passes.

A pass is observe, plan, apply. Passes of one run never overlap, whoever asks for them. Framework-free.
"""

import asyncio
import logging
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import ValidationError

from shadowrun_operator.api.conditions import ConditionType, Reason, set_condition
from shadowrun_operator.api.run import API_VERSION, KIND
from shadowrun_operator.cluster import metrics
from shadowrun_operator.cluster.apply import Written, apply, apply_steps
from shadowrun_operator.cluster.client import ApiRefusal, ApiUnreachable, Cluster
from shadowrun_operator.cluster.observe import OWN_KINDS, Memory, observe
from shadowrun_operator.cluster.replicas import Replicas
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.observation import Settings
from shadowrun_operator.reconcile.orphans import abandoned_steps, orphan_plans
from shadowrun_operator.reconcile.reconcile import reconcile

SWEEP_S = 60.0
PAUSE_S = 5.0
"""After a pass that failed."""
LATE_S = 60.0
"""A run past its expiry whose loop has been silent for so long is taken over by the sweeper."""
HOPELESS_S = 7200.0
"""A run that is past its expiry for so long (longest answer, drain and all) has passes that never get anywhere."""
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
    """All runs of this process. `namespaces` empty means the whole cluster."""

    def __init__(
        self, cluster: Cluster, replicas: Replicas, settings: Settings, *, instance: str, namespaces: Iterable[str] = ()
    ) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._settings = settings
        self._instance = instance
        self._namespaces = tuple(namespaces) or ("",)
        self._lines: dict[Key, _Line] = {}
        self._swept_at = time.monotonic()
        self._stamps: dict[Key, tuple[object, ...]] = {}

    async def close(self) -> None:
        """Close every connection."""
        await self._replicas.close()
        await self._cluster.close()

    def wake(self, namespace: str, name: str) -> None:
        """Something about this run has changed: look now."""
        line = self._lines.get((namespace, name))
        if line is not None:
            line.wake.set()

    def woken(self, namespace: str, name: str) -> asyncio.Event:
        """The event that `wake` sets."""
        return self._line((namespace, name)).wake

    def driving(self, namespace: str, name: str, *, driven: bool) -> None:
        """Whether a loop answers for this run; only such a run can be late."""
        line = self._line((namespace, name))
        line.driven, line.passed_at = driven, time.monotonic()

    def changed(self, namespace: str, name: str, stamp: tuple[object, ...]) -> bool:
        """Whether this is not what was last seen of the run's identity and generation."""
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
        found = await self._listed(_PATH_KINDS, self._namespaces, selector)
        bodies = [body for ns in self._namespaces for body in await self._cluster.list(KIND, ns)]
        for body in bodies:
            key = (body["metadata"]["namespace"], body["metadata"]["name"])
            if self._is_late(key, body):
                log.warning("Run %s/%s is past its expiry and its loop is silent: taking over", *key)
                await self.pass_once(*key)
            if _overdue_s(body) >= HOPELESS_S:
                log.error("Run %s/%s is long past its expiry and does not end: taking it down", *key)
                await self._abandon(*key)
        living = {_key(body) for body in bodies if body.get("status", {}).get("phase") != "Complete"}
        for plan in orphan_plans(found, living, time.time()):
            await apply_steps(self._cluster, plan.namespace, plan.steps)
        phases = [body.get("status", {}).get("phase", "Pending") for body in bodies]
        metrics.count_phases(phases)
        self._swept_at = time.monotonic()

    def stale(self) -> str:
        """What has not happened for too long, or "" when all is well."""
        now = time.monotonic()
        if now - self._swept_at > STALE_S:
            return f"no sweep for {now - self._swept_at:.0f} s"
        for (namespace, name), line in self._lines.items():
            if line.driven and now - line.passed_at > STALE_S:
                return f"no pass over {namespace}/{name} for {now - line.passed_at:.0f} s"
        return ""

    def _line(self, key: Key) -> _Line:
        return self._lines.setdefault(key, _Line())

    def _is_late(self, key: Key, body: Manifest) -> bool:
        if _overdue_s(body) < 0:
            return False
        line = self._lines.get(key)
        return line is None or time.monotonic() - line.passed_at > LATE_S

    async def _pass(self, namespace: str, name: str, line: _Line) -> Outcome:
        body = await self._cluster.get(KIND, namespace, name)
        if body is None:
            return Outcome(PAUSE_S, released=True)
        if line.uid != body["metadata"]["uid"]:
            line.uid, line.memory, line.written = body["metadata"]["uid"], Memory(), Written()
        try:
            seen = await observe(self._cluster, self._replicas, self._settings, body, line.memory)
        except ValidationError as error:
            return await self._unreadable(body, error)
        plan = await asyncio.to_thread(reconcile, seen)
        await apply(self._cluster, self._replicas, seen, plan, line.memory, line.written, self._instance)
        return Outcome(plan.requeue_after, plan.released)

    async def _unreadable(self, body: Manifest, error: ValidationError) -> Outcome:
        """A body that the schema lets through and the models do not: said in the status, and it still expires."""
        meta, status = body["metadata"], body.get("status", {})
        if "deletionTimestamp" in meta:
            return Outcome(PAUSE_S, released=True)
        if status.get("phase") == "Complete":
            return Outcome(SWEEP_S)
        namespace = meta["namespace"]
        if _overdue_s(body) >= 0:
            await self._abandon(namespace, meta["name"])
        first = error.errors()[0]
        message = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
        (accepted,) = set_condition(
            (),
            ConditionType.ACCEPTED,
            "False",
            Reason.INVALID_SPEC,
            message,
            generation=meta["generation"],
            now=datetime.now(UTC),
        )
        known = status.get("conditions", [])
        if any(c.get("reason") == accepted.reason and c.get("message") == accepted.message for c in known):
            return Outcome(SWEEP_S)
        log.warning("Run %s/%s cannot be read: %s", namespace, meta["name"], message)
        said = {
            "observedGeneration": meta["generation"],
            "message": accepted.message,
            "conditions": [accepted.to_json(), *(c for c in known if c.get("type") != accepted.type)],
        }
        identity = {"name": meta["name"], "namespace": namespace, "uid": meta["uid"]}
        await self._cluster.apply_status(
            {"apiVersion": API_VERSION, "kind": KIND, "metadata": identity, "status": {**status, **said}}
        )
        return Outcome(SWEEP_S)

    async def _abandon(self, namespace: str, name: str) -> None:
        """Take a run down by names and labels, since nothing else of it can be relied on."""
        selector = f"{names.RUN_LABEL}={name},{names.MANAGED_BY_LABEL}={names.MANAGED_BY}"
        found = await self._listed(OWN_KINDS, (namespace,), selector)
        await apply_steps(self._cluster, namespace, abandoned_steps(found, time.time()))

    async def _listed(self, kinds: Iterable[str], namespaces: Iterable[str], selector: str) -> list[Manifest]:
        return [
            item
            for ns in namespaces
            for kind in kinds
            for item in await self._cluster.list(kind, ns, selector=selector)
        ]


def _overdue_s(body: Manifest) -> float:
    """How long a run should have been over, in seconds; negative while it need not be, or when it is."""
    status = body.get("status", {})
    expiry = status.get("expiryTime")
    return time.time() - times.seconds(expiry) if expiry and status.get("phase") != "Complete" else -math.inf


def _key(body: Manifest) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]
