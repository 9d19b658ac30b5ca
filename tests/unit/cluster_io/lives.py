"""Whole lives of one run: the real loop and client on an API server in memory, with kubelets, mirrors and a clock.

What kopf does for a run, and nothing more, is done here: the finalizer, the loop, the sweep, the news of Deployments
and pods. What mirrors count comes from `World`. No time is waited for.
"""

import contextlib
import copy
import time as real_time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from shadowrun_mirror.config import WARM_UP, decode_config, encode
from shadowrun_operator.cluster import apply, memory, neighbours, observe, runs
from shadowrun_operator.cluster.client import ApiRefusal, ApiUnreachable
from shadowrun_operator.cluster.replicas import Answer
from shadowrun_operator.cluster.runs import SWEEP_S, Runs
from shadowrun_operator.handlers import has_loop
from shadowrun_operator.judge.merge import SECOND_WARM_UP
from shadowrun_operator.manifests import groups, names
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.route import filters_of
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.gateway import MIRROR, PERCENTAGE
from shadowrun_operator.reconcile.observation import Pod, Settings

from tests.unit.cluster_io.api_server import ApiServer, Fault, InMemory, Key, Killed, merged
from tests.unit.cluster_io.test_routes import gateway, gateway_class
from tests.unit.cluster_io.wire import Request, answering, nobody
from tests.unit.reconcile.routes import ROUTED, route
from tests.unit.reconcile.world import START, World, leader_worker_set

EXTERNAL = {"mode": "External", "proxy": None, "external": {"serviceName": "chat-copies"}}
URLS = {"baselineURL": "http://old.models.svc:8001", "candidateURL": "http://new.models.svc"}
MODES: dict[str, dict[str, Any]] = {
    "proxy": {},
    "several mirrors": {"mirror": {"replicas": 3}},
    "another proxy": {"capture": EXTERNAL},
    "route": {"capture": ROUTED},
    "kept arms": {"keepArms": {"for": "10m"}},
    "kept arms on a route": {"capture": ROUTED, "keepArms": {"for": "5m"}},
    "daily window": {"schedule": {"dailyWindow": {"from": "08:03", "to": "12:00", "timeZone": "Etc/UTC"}}},
    "arms behind URLs": {
        "arms": {"template": {"deploymentRef": None, "external": URLS}, "candidate": {"patch": None}},
        "hardware": {"policy": "Report", "matchLabelKeys": None, "nodeSelector": None},
    },
    "gone after a while": {"ttlAfterFinished": "5m"},
    "crossover": {"hardware": {"crossover": "Enabled"}, "duration": "6m"},
    "groups": {"arms": {"template": {"deploymentRef": None, "leaderWorkerSetRef": {"name": "big"}}}},
}
RUN = (names.KIND, "inference", "x")
OWN = Settings(mirror_image="m:1", capture_image="c:1", namespace="ops", version="0.1.0")
STEP_S = 8.0


class Life:
    """One run from its creation on. `disturb` may spoil any request; a process that it kills is followed by another."""

    def __init__(self, mode: str, disturb: Callable[[str, str], Fault | None] = lambda *_: None) -> None:
        self.world = World.with_spec(**MODES[mode])
        self.server, self.disturb = ApiServer(), disturb
        self.phases: list[str] = []  # every phase that was ever written, without repetitions
        self.copied: list[float] = []  # instants at which a mirror was copying
        self.deaths = 0
        self._swept_at = 0.0
        self._heard: dict[Key, Manifest] = {}
        self.runs = self._process()
        self._put_users_objects()
        self.world.body["spec"] = merged({}, self.world.body["spec"])
        del self.world.body["metadata"]["finalizers"]  # as a user creates it
        self.server.put({"apiVersion": names.API_VERSION, "kind": names.KIND, **copy.deepcopy(self.world.body)})

    @property
    def body(self) -> Manifest | None:
        """The ShadowRun as it is stored."""
        return self.server.objects.get(RUN)

    @property
    def status(self) -> Manifest:
        """Its status; that of its last moment once it is gone."""
        found: Manifest = self.world.body["status"]
        return found

    @property
    def left(self) -> set[tuple[str, str]]:
        """Kind and name of everything of ours but the ShadowRun, and the route where it holds a filter of ours."""
        ours = {
            (kind, name)
            for (kind, _, name), item in self.server.objects.items()
            if item["metadata"].get("labels", {}).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY and kind != "Pod"
        }
        front = self.server.objects["HTTPRoute", "inference", "front"]
        return ours | ({("HTTPRoute", "front")} if filters_of(front, "chat-copies") else set())

    @property
    def is_over(self) -> bool:
        """Whether nothing will happen any more."""
        return self.body is None or not has_loop(self.body["status"])

    def edit(self, **spec: Any) -> None:
        """A user changes fields of the spec; None takes one out."""
        if self.body is not None:
            changed = merged(self.body, {"spec": spec})
            changed["metadata"]["generation"] += 1
            self.server.put(changed)

    def delete(self) -> None:
        """A user deletes the run."""
        if self.body is not None:
            self.server.now = times.written(self.world.now)
            self.server.answer("DELETE", _PATH, None, "", {}, counted=False)

    def kill(self) -> None:
        """The operator's process dies, and another one starts."""
        self.deaths += 1
        self.runs = self._process()

    async def turn(self, seconds: float = STEP_S) -> None:
        """What the operator's process does in a while, and then that while."""
        try:
            self._hears()
            await self._loop()
            if self.world.now - self._swept_at >= SWEEP_S:
                await self._sweeps()
        except Killed:
            self.kill()
        self._pass_time(seconds)

    async def look(self) -> None:
        """One pass alone, and then the time until the next one."""
        self._hears()
        self._pass_time((await self.runs.pass_once("inference", "x")).requeue_after)

    async def until_phase(self, phase: str) -> None:
        """Until it is in a phase."""
        for _ in range(100):
            if self.phases[-1:] == [phase]:
                return
            await self.turn()
        raise AssertionError(f"{self.phases} without {phase}")

    async def until_over(self, turns: int = 400) -> None:
        """Until nothing will happen any more, and two sweeps have passed after that."""
        for _ in range(turns):
            if self.is_over and ("ttlAfterFinished" not in self.world.body["spec"] or self.body is None):
                break
            await self.turn()
        else:
            raise AssertionError(f"{self.status.get('phase')} after {turns} turns: {self.status.get('message')}")
        for _ in range(round(2.5 * SWEEP_S / STEP_S)):
            await self.turn()

    def _hears(self) -> None:
        """Whether anything is news of its Deployments and pods: then the process is told."""
        children = [(key, item) for key, item in self.server.objects.items() if key[0] in ("Deployment", "Pod")]
        now = {key: {**item, "metadata": _without_version(item)} for key, item in children if _is_labelled(item)}
        if now != self._heard:
            self._heard = now
            self.runs.wake("inference", "x")

    async def _loop(self) -> None:
        """As kopf's daemon: the finalizer is there as long as there is a loop."""
        body = self.body
        if body is None:
            return
        meta, status = body["metadata"], body["status"]
        if has_loop(status):
            if "deletionTimestamp" not in meta and names.FINALIZER not in meta.get("finalizers", ()):
                self.server.put({**body, "metadata": {**meta, "finalizers": [names.FINALIZER]}})
            if (await self.runs.pass_once("inference", "x")).released:
                self._release()
        elif "deletionTimestamp" not in meta and status.get("observedGeneration") != meta["generation"]:
            await self.runs.pass_once("inference", "x")
        if self.body is not None and not has_loop(self.body["status"]):
            self._release()

    def _release(self) -> None:
        if self.body is not None:
            self.body["metadata"]["finalizers"] = []
            if "deletionTimestamp" in self.body["metadata"]:
                self.server.remove(RUN)
        if self.body is None:
            self.runs.forget("inference", "x")

    async def _sweeps(self) -> None:
        """Both for ever: an error that is not a refusal would end the test."""
        self._swept_at = self.world.now
        for work in (self.runs.follow, self.runs.sweep):
            with contextlib.suppress(ApiRefusal, ApiUnreachable):
                await work()

    def _process(self) -> Runs:
        replicas = answering(self._replica, lambda: self.world.now)
        return Runs(InMemory(self.server, self._spoiled), replicas, OWN, instance="test")

    def _spoiled(self, method: str, path: str) -> Fault | None:
        return self.disturb(method, path)

    def _replica(self, request: Request) -> Answer:
        """A mirror or a capture answers."""
        world = self.world
        pod = next((pod for pod in world.pods.values() if pod.address == request.host), None)
        if pod is None:
            return nobody(request)
        if request.method == "PUT":
            config, known = decode_config(request.body), world.configs.get(pod.uid)
            if known is None or config.version > known.version:
                world.configs[pod.uid] = config
            return 200, b""
        if pod.component == names.CAPTURE:
            return 200, encode(world._capture_evidence(pod))
        if pod.uid not in world.evidence:
            return nobody(request)
        return 200, encode(world.evidence[pod.uid])

    def _pass_time(self, seconds: float) -> None:
        """Kubelets and mirrors do their part."""
        world = self.world
        if self.body is not None:
            world.body = copy.deepcopy(self.body)
            phase = world.phase
            if phase and self.phases[-1:] != [phase]:
                self.phases.append(phase)
        labelled = names.MANAGED_BY_LABEL
        world.objects = {
            (kind, name): item
            for (kind, _, name), item in self.server.objects.items()
            if item["metadata"].get("labels", {}).get(labelled) and kind != "Pod"
        }
        world.longest_copying = 0.0
        world.pass_time(seconds)
        self.copied += [world.longest_copying] if world.longest_copying else []
        for key in [key for key in self.server.objects if key[0] == "Pod"]:
            del self.server.objects[key]
        for pod in world.pods.values():
            self.server.put(_pod(pod))

    def _put_users_objects(self) -> None:
        for item in (*self.world.users.values(), leader_worker_set()):
            self.server.put(item)
        for item in (route(), gateway(), gateway_class(MIRROR, PERCENTAGE)):
            self.server.put(item)
        for name, gpu in self.world.nodes.items():
            self.server.put({"kind": "Node", "metadata": {"name": name, "labels": {"gpu": gpu, "pool": "a"}}})


@contextlib.contextmanager
def begun(mode: str, disturb: Callable[[str, str], Fault | None] = lambda *_: None) -> Iterator[Life]:
    """A life whose clock is the one that the operator's code reads meanwhile."""
    life = Life(mode, disturb)
    offset = real_time.monotonic() - START

    class Clock:
        """Stands in for the module `time`."""

        @staticmethod
        def time() -> float:
            return life.world.now

        @staticmethod
        def monotonic() -> float:
            return life.world.now + offset

    with pytest.MonkeyPatch.context() as patch:
        for module in (apply, memory, neighbours, observe, runs):
            patch.setattr(module, "time", Clock)
        yield life


def candidate_is_wrong(method: str, path: str) -> Fault | None:
    """The API server finds something wrong with the candidate's pods."""
    of_it = method == "PATCH" and path.endswith("/deployments/x-candidate")
    return Fault(ApiRefusal(422, "Invalid", "spec.template: no")) if of_it else None


def counted(life: Life) -> int:
    """How many requests the mirrors received in windows that count."""
    warming = (WARM_UP, SECOND_WARM_UP)
    windows = [w for e in life.world.evidence.values() for number, w in e.windows.items() if number not in warming]
    return sum(c.received.requests for window in windows for c in window.classes.values())


_PATH = f"/apis/{names.API_VERSION}/namespaces/inference/shadowruns/x"


def _is_labelled(item: Manifest) -> bool:
    return bool(item["metadata"].get("labels", {}).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY)


def _without_version(item: Manifest) -> Manifest:
    return {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}


def _pod(pod: Pod) -> Manifest:
    labels = {names.RUN_LABEL: "x", names.COMPONENT_LABEL: pod.component, names.MANAGED_BY_LABEL: names.MANAGED_BY}
    place = {groups.INDEX_LABEL: "1"} if pod.follows else {}
    conditions = [{"type": "Ready", "status": str(pod.ready)}]
    return {
        "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": "inference", "uid": pod.uid, "labels": labels | place},
        "spec": {"nodeName": pod.node},
        "status": {"podIP": pod.address, "conditions": conditions},
    }
