"""A small cluster in memory: it carries out plans, starts pods, lets mirrors count, and can be looked at.

It knows nothing of why a plan says what it says. Every write to an object that a user made is an error.
"""

import base64
import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.config import MODULO, MirrorConfig, decode_config, wants_copies
from shadowrun_mirror.evidence import (
    Amount,
    ArmEvidence,
    CaptureEvidence,
    CaptureWindow,
    ClassEvidence,
    Evidence,
    Matches,
    Source,
    Usage,
    Window,
)
from shadowrun_mirror.histogram import Histogram
from shadowrun_mirror.reasons import Likeness
from shadowrun_operator.api.run import ShadowRun
from shadowrun_operator.manifests import groups, names
from shadowrun_operator.manifests.attempts import LEDGER, earlier_attempts
from shadowrun_operator.manifests.given_back import given_back_at, is_given_back
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.placement import pinned_to
from shadowrun_operator.manifests.route import edits, filters_of
from shadowrun_operator.manifests.template import inline_source, wanted_source
from shadowrun_operator.manifests.workload import pods_each, serving_template
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.gateway import GatewaySeen, RouteSeen
from shadowrun_operator.reconcile.observation import FreshSecrets, Observation, OtherRun, Pod, Restart, Settings
from shadowrun_operator.reconcile.plan import Apply, Create, Delete, EditRoute, Merge, PatchCandidate, Plan, Step
from shadowrun_operator.reconcile.reconcile import reconcile
from shadowrun_operator.reconcile.record import Books, RunRecord

from tests.unit.reconcile.routes import ATTACHED, patched

START = 1_800_000_000.0
UID = "11111111-2222-3333-4444-555555555555"
BODY_BYTES = 400
ARMS = ("baseline", "candidate", "control")


def spec(**changes: Any) -> dict[str, Any]:
    """A short, complete spec."""
    built: dict[str, Any] = {
        "primary": {"service": {"name": "chat", "port": 8000}},
        "capture": {"proxy": {"serviceName": "chat-shadowed", "replicas": 2}},
        "sampling": {"unit": "Request", "rate": "50%"},
        "admission": {"maxInFlight": 8, "timeout": "10s"},
        "arms": {
            "template": {"deploymentRef": {"name": "chat"}},
            "candidate": {"patch": {"spec": {"containers": [{"name": "engine", "args": ["-x"]}]}}},
            "warmup": {"duration": "20s", "requests": 40},
        },
        "hardware": {"matchLabelKeys": ["gpu"], "nodeSelector": {"pool": "a"}},
        "slo": {"ttft": "2s"},
        "criteria": [
            {"name": "ttft", "metric": "TTFT", "quantile": "p50", "require": "NotWorse", "margin": "10%"},
            {"name": "errors", "metric": "Failures", "require": "NotWorse", "margin": "5%"},
        ],
        "duration": "2m",
        "endConditions": {"minDuration": "1m"},
        "startDeadline": "5m",
    }
    changed: dict[str, Any] = merged(built, changes)
    return changed


def merged(left: Any, right: Any) -> Any:
    """`right` laid over `left`, mapping by mapping."""
    if not isinstance(left, dict) or not isinstance(right, dict):
        return right
    return {**left, **{key: merged(left.get(key), value) for key, value in right.items()}}


def service() -> Manifest:
    """The primary's Service."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat", "namespace": "inference"},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "10.96.1.1",
            "selector": {"app": "chat"},
            "ports": [{"name": "http", "port": 8000, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def deployment() -> Manifest:
    """The primary's Deployment."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "inference", "labels": {"app": "chat"}},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": {"app": "chat"}},
            "template": {
                "metadata": {"labels": {"app": "chat"}, "annotations": {"team": "x"}},
                "spec": {
                    "serviceAccountName": "chat",
                    "containers": [
                        {
                            "name": "engine",
                            "image": "registry.example/engine:1",
                            "args": ["--port=8080"],
                            "ports": [{"name": "http", "containerPort": 8080}],
                        }
                    ],
                },
            },
        },
    }


def leader_worker_set(*, size: int = 2, leader: bool = False) -> Manifest:
    """A user's LeaderWorkerSet; its leaders have a template of their own where asked."""
    worker = deployment()["spec"]["template"]
    group: Manifest = {"size": size, "restartPolicy": "RecreateGroupOnPodRestart", "workerTemplate": worker}
    if leader:
        group["leaderTemplate"] = copy.deepcopy(worker)
        group["workerTemplate"]["spec"]["containers"][0] |= {"name": "worker", "ports": []}
    return {
        "apiVersion": groups.API_VERSION,
        "kind": groups.KIND,
        "metadata": {
            "name": "big",
            "namespace": "inference",
            "annotations": {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack", "team": "x"},
        },
        "spec": {
            "replicas": 3,
            "leaderWorkerTemplate": group,
            "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": {"partition": 2}},
            "startupPolicy": "LeaderCreated",
            "networkConfig": {"subdomainPolicy": "Shared"},
        },
    }


@dataclass
class World:
    """The cluster. `rate` is pairs a second while copying; `label` says what a node's gpu label is."""

    body: dict[str, Any]
    now: float = START
    rate: float = 4.0
    objects: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    users: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    nodes: dict[str, str | None] = field(default_factory=lambda: {"node1": "H200", "node2": "H200"})
    placement: dict[str, str] = field(default_factory=dict)
    record: RunRecord | None = None
    stored_books: Books = field(default_factory=Books)
    stored_at: float = 0.0
    books: Books = field(default_factory=Books)
    configs: dict[str, MirrorConfig] = field(default_factory=dict)  # what each mirror process goes by, by pod uid
    deaths: dict[str, int] = field(default_factory=dict)  # how often a pod was replaced, by its name
    evidence: dict[str, Evidence] = field(default_factory=dict)
    refuse: str = ""
    refusal: str = ""
    given_back_since: float | None = None
    starting: bool = True  # whether pods become ready
    silent: set[str] = field(default_factory=set)  # names of pods that don't answer the operator
    ahead: dict[str, float] = field(default_factory=dict)  # seconds that a pod's clock is ahead, by its name
    lost: dict[str, str] = field(default_factory=dict)  # nodes that the cluster has lost, and what it says of them
    restarts: dict[str, int] = field(default_factory=dict)  # how often a pod's container was started anew
    others: tuple[OtherRun, ...] = ()
    ledger: Manifest | None = None  # how many runs of a spec there have been
    route: Manifest | None = None  # the user's HTTPRoute
    route_refused: str = ""  # why it cannot be read
    gateways: tuple[GatewaySeen, ...] = (ATTACHED,)
    made: int = 0  # objects made so far: each has a uid of its own
    events: list[str] = field(default_factory=list)
    differs_in: int = 0  # one of so many answers of a challenger isn't the baseline's; 0: every one is
    longest_copying: float = 0.0  # the last instant at which a mirror was copying

    @classmethod
    def with_spec(cls, **changes: Any) -> "World":
        """A cluster with the user's objects and a new run."""
        world = cls(
            body={
                "metadata": {
                    "name": "x",
                    "namespace": "inference",
                    "uid": UID,
                    "generation": 1,
                    "creationTimestamp": times.written(START),
                    "finalizers": [names.FINALIZER],
                },
                "spec": spec(**changes),
                "status": {},
            }
        )
        world.users = {("Service", "chat"): service(), ("Deployment", "chat"): deployment()}
        return world

    @property
    def run(self) -> ShadowRun:
        """The run as it is stored."""
        return ShadowRun.parse(self.body)

    @property
    def phase(self) -> str:
        """The phase in the status."""
        return str(self.body["status"].get("phase", ""))

    @property
    def mirror(self) -> MirrorConfig | None:
        """What the first mirror goes by."""
        return next((self.configs[pod.uid] for pod in self._of(names.MIRROR) if pod.uid in self.configs), None)

    def capture_service(self) -> Manifest | None:
        """The Service that customers call, or that a proxy sends copies to."""
        key = ("Service", self.run.spec.capture.service_name)
        return self.objects.get(key) or self.users.get(key)

    def kill(self, name: str) -> None:
        """A pod dies, and another takes its place under another identity."""
        self.deaths[name] = self.deaths.get(name, 0) + 1
        self._start_pods()

    def observe(self) -> Observation:
        """What there is to see now."""
        read: frozenset[str] = frozenset()
        if self.record is not None and self.record.copying_since and ("Secret", "x-mirror") in self.objects:
            counting = self._of(names.MIRROR) + self._of(names.CAPTURE)
            read = frozenset(pod.uid for pod in counting if pod.name not in self.silent)
            captures = [self._capture_evidence(pod) for pod in self._of(names.CAPTURE) if pod.uid in read]
            mirrors = [evidence for uid, evidence in self.evidence.items() if uid in read]
            self.books = self.books.with_readings(UID, mirrors, captures)
        service_now = self.capture_service()
        filtered = self.route is not None and bool(filters_of(self.route, self.run.spec.capture.service_name))
        if filtered or (service_now is not None and not is_given_back(service_now)):
            self.given_back_since = None
        elif service_now is not None and given_back_at(service_now) is not None:
            self.given_back_since = given_back_at(service_now)
        elif self.given_back_since is None:
            self.given_back_since = self.now
        secret = self.objects.get(("Secret", "x-mirror"))
        data = secret["data"] if secret else {}
        return Observation(
            now=self.now,
            run=self.run,
            settings=Settings(
                mirror_image="mirror:1",
                capture_image="capture:1",
                namespace="shadowrun",
                version="0.1.0",
                kubernetes="v1.35.1",
            ),
            fresh=FreshSecrets(token=f"token-{self.now}", seed=int(self.now)),
            primary=copy.deepcopy(self.users.get(("Service", "chat"))),
            source=self._source(),
            capture_service=copy.deepcopy(service_now),
            objects=copy.deepcopy(self.objects),
            pods=tuple(self.pods.values()),
            read=read,
            others=self.others,
            node_labels={name: {} if gpu is None else {"gpu": gpu} for name, gpu in self.nodes.items()},
            lost_nodes=self.lost,
            clocks={pod.uid: self.ahead[pod.name] for pod in self.pods.values() if pod.name in self.ahead},
            record=self.record,
            books=self.books,
            checkpoint_at=self.stored_at,
            config=decode_config(base64.b64decode(data["config.json"])) if data else None,
            token=base64.b64decode(data["token"]).decode() if data else "",
            given_back_since=self.given_back_since,
            route=self._route_seen(),
            refusal=self.refusal,
            attempts=earlier_attempts(self.ledger, ()),
            ledger=self.ledger,
        )

    def _source(self) -> Manifest | None:
        template = self.run.spec.arms.template
        wanted = wanted_source(template)
        return inline_source(template) if wanted is None else copy.deepcopy(self.users.get(wanted))

    def _route_seen(self) -> RouteSeen | None:
        if self.run.spec.capture.http_route is None:
            return None
        if self.route_refused:
            return RouteSeen(refused=self.route_refused)
        return RouteSeen(route=copy.deepcopy(self.route), gateways=() if self.record else self.gateways)

    def restart_operator(self) -> None:
        """Everything a process remembers is lost."""
        self.books, self.given_back_since, self.refusal = self.stored_books, None, ""

    def carry_out(self, seen: Observation, plan: Plan, *, limit: int | None = None) -> bool:
        """Do the plan, or only its first `limit` actions (the operator dies then); True when all of it was done."""
        self.refusal = ""
        actions: list[Any] = []
        record = plan.record or (seen.record if plan.checkpoint else None)
        if record is not None:
            actions.append(lambda: self._store(record, seen.books))
        actions += [lambda step=step: self.step(step) for step in plan.steps]
        if plan.push is not None:
            actions.append(lambda: self._push(plan))
        actions.append(lambda: self._write_status(plan))
        for done, action in enumerate(actions):
            if limit is not None and done >= limit:
                return False
            action()
        self.events += [event.reason for event in plan.events]
        return True

    def turn(self, *, limit: int | None = None, seconds: float = 3.0) -> Plan:
        """One pass of the operator, and then some time."""
        seen = self.observe()
        plan = reconcile(seen)
        if not self.carry_out(seen, plan, limit=limit):
            self.restart_operator()
        self.pass_time(seconds)
        return plan

    def until(self, phase: str, *, turns: int = 400) -> None:
        """Turn until the status says so."""
        for _ in range(turns):
            if self.phase == phase:
                return
            self.turn()
        raise AssertionError(f"still {self.phase} after {turns} turns: {self.body['status'].get('message')}")

    def pass_time(self, seconds: float) -> None:
        """Pods start, mirrors count."""
        self._start_pods()
        copying = [
            uid
            for uid, config in self.configs.items()
            if wants_copies(config, self._clock(uid)) and self._clock(uid) < config.expiry
        ]
        taking = [uid for uid in copying if not _pausing(self.configs[uid])]
        if copying:
            self.longest_copying = self.now
        self.now += seconds
        for place, uid in enumerate(self.configs):
            whole = round(self.rate * seconds)
            share = [whole // len(taking) + (1 if i < whole % len(taking) else 0) for i in range(len(taking))]
            self._count(uid, share[taking.index(uid)] if uid in taking else 0, place)

    def step(self, step: Step) -> None:
        """Carry out one step as the API server would; none after a patch of the candidate that was refused."""
        if self.refusal:
            return
        match step:
            case Create(manifest):
                self._refuse_users(manifest["kind"], manifest["metadata"]["name"])
                self.objects.setdefault(_key(manifest), self._served(manifest))
            case Merge(manifest):
                assert manifest["metadata"]["name"] == LEDGER
                before = self.ledger or {}
                data = {k: v for k, v in (before.get("data", {}) | manifest["data"]).items() if v is not None}
                self.ledger = {**copy.deepcopy(manifest), "data": data}
            case Apply(manifest):
                self._refuse_users(manifest["kind"], manifest["metadata"]["name"])
                before = self.objects.get(_key(manifest), {})
                self.objects[_key(manifest)] = {**self._served(manifest), "status": before.get("status", {})}
            case Delete(kind, name):
                self._refuse_users(kind, name)
                self.objects.pop((kind, name), None)
                if (kind, name) == ("ConfigMap", "x-evidence"):
                    self.record = None
            case EditRoute(name, service, rule, wanted):
                if self.route is not None:
                    assert name == self.route["metadata"]["name"]
                    self.route = patched(self.route, edits(self.route, rule, service, wanted))
                if wanted is not None:
                    self.given_back_since = None
            case PatchCandidate(name, body):
                if self.refuse:
                    self.refusal = self.refuse
                    return
                found = self.objects[("Deployment", name)]
                found["metadata"]["generation"] += 1
                found["metadata"].setdefault("annotations", {}).update(body["metadata"]["annotations"])
                found["spec"]["replicas"] = body["spec"]["replicas"]
                _patch_containers(found["spec"]["template"], body["spec"]["template"])

    def _served(self, manifest: Manifest) -> Manifest:
        """As the API server gives it."""
        served = {**copy.deepcopy(manifest), "status": {}}
        before = self.objects.get(_key(manifest))
        self.made += 1
        served["metadata"] |= {
            "uid": before["metadata"]["uid"] if before else f"made-{self.made}",
            "generation": before["metadata"]["generation"] + 1 if before else 1,
        }
        return served

    def _refuse_users(self, kind: str, name: str) -> None:
        assert (kind, name) not in self.users, f"a plan writes {kind} {name}, which a user made"

    def _store(self, record: RunRecord, books: Books) -> None:
        self.record, self.stored_books, self.stored_at = record, books, self.now
        manifest = {"kind": "ConfigMap", "metadata": {"name": "x-evidence", "namespace": "inference"}}
        self.objects["ConfigMap", "x-evidence"] = manifest

    def _push(self, plan: Plan) -> None:
        assert plan.push is not None
        for pod in self._of(names.MIRROR):
            known = self.configs.get(pod.uid)
            told = pod.address in plan.push.addresses and pod.name not in self.silent
            if told and (known is None or plan.push.config.version > known.version):
                self.configs[pod.uid] = plan.push.config

    def _write_status(self, plan: Plan) -> None:
        self.body["status"] = plan.status.to_json()

    def _of(self, component: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.component == component]

    def _start_pods(self) -> None:
        wanted: dict[str, Pod] = {}
        for (kind, _), item in self.objects.items():
            if kind not in ("Deployment", groups.KIND):
                continue
            component = item["metadata"]["labels"][names.COMPONENT_LABEL]
            replicas, each = item["spec"]["replicas"], pods_each(item)
            seen = item["metadata"]["generation"]
            item["status"] = {"updatedReplicas": replicas, "observedGeneration": seen, "readyReplicas": 0}
            for number in range(replicas * each):
                name = f"{component}-{number // each}-{number % each}" if each > 1 else f"{component}-{number}"
                node = self._node_for(name, component, serving_template(item)["spec"], wanted.values())
                if node is None:
                    continue
                deaths = self.deaths.get(name, 0)
                wanted[name] = Pod(
                    name=name,
                    uid=f"uid-{name}-{deaths}" if deaths else f"uid-{name}",
                    component=component,
                    address=f"{name}-{deaths}",
                    node=node,
                    ready=self.starting,
                    restarts=self._restarts(component, name),
                    follows=number % each > 0,
                )
                item["status"]["readyReplicas"] += self.starting and number % each == 0
        self.pods = wanted
        living = {pod.uid for pod in self._of(names.MIRROR)}
        self.configs = {uid: config for uid, config in self.configs.items() if uid in living}
        for uid in sorted(living - self.configs.keys()):
            boot = self.objects["Secret", "x-mirror"]["data"]["config.json"]
            self.configs[uid] = decode_config(base64.b64decode(boot))

    def _clock(self, uid: str) -> float:
        """What a pod takes for the time."""
        return self.now + next((self.ahead.get(pod.name, 0.0) for pod in self.pods.values() if pod.uid == uid), 0.0)

    def _restarts(self, component: str, name: str) -> tuple[Restart, ...]:
        count = self.restarts.get(name, 0)
        return (Restart(container=component, count=count, why="OOMKilled (exit code 137)"),) if count else ()

    def _node_for(self, name: str, component: str, pod_spec: Manifest, others: Iterable[Pod]) -> str | None:
        """As a scheduler does for affinity by node names, and away from pods; None where nothing fits.

        A pod that is there stays.
        """
        away = pod_spec.get("affinity", {}).get("podAntiAffinity", {})
        if not away:
            return self.placement.get(component, "node1")
        taken = {pod.node for pod in others if pod.component in ARMS}
        free = [node for node in self.nodes if node not in taken]
        allowed = pinned_to(pod_spec) or ({self.placement[component]} if component in self.placement else set(free))
        known = self.pods[name].node if name in self.pods else ""
        return next((node for node in (known, *free) if node in free and node in allowed), None)

    def _count(self, uid: str, pairs: int, place: int) -> None:
        """One mirror counts. All but the first have one copy in flight that never ends, so that a death loses it."""
        (pod,) = (pod for pod in self._of(names.MIRROR) if pod.uid == uid)
        config, before = self.configs[uid], self.evidence.get(uid)
        windows = copy.deepcopy(before.windows) if before else {}
        if pairs:
            number = config.window
            arms = tuple(arm.name for arm in config.arms)
            added = _pairs(number, pairs, arms, config, self._clock(uid))
            if number and config.comparison is not None:
                _compare(added, pairs, arms, int(self._clock(uid)), self.differs_in)
            if place and number not in windows:
                stuck = Amount(requests=1, bytes=BODY_BYTES)
                added.classes["default"].received += stuck
                added.classes["default"].admitted += stuck
                added.classes["default"].in_flight += stuck
            windows[number] = windows[number].merged(added) if number in windows else added
        sequence = before.source.sequence + 1 if before else 1
        self.evidence[pod.uid] = Evidence(
            run_uid=UID,
            source=Source(pod=pod.name, pod_uid=pod.uid, epoch="e", sequence=sequence, time=self._clock(uid)),
            config_version=config.version,
            copying=config.copying,
            expired=self._clock(uid) >= config.expiry,
            windows=windows,
        )

    def _capture_evidence(self, pod: Pod) -> CaptureEvidence:
        first = pod.name.endswith("-0")
        received: dict[int, Amount] = {}
        for evidence in self.evidence.values():
            for n, w in evidence.windows.items():
                received[n] = sum((c.received for c in w.classes.values()), received.get(n, Amount()))
        windows = {n: CaptureWindow(sampled=r, plain=r) for n, r in received.items()} if first else {}
        copying = self.mirror is not None and self.mirror.copying
        return CaptureEvidence(
            run_uid=UID,
            source=Source(pod=pod.name, pod_uid=pod.uid, epoch="e", sequence=int(self.now * 10), time=self.now),
            directive_version=self.mirror.version if self.mirror else 0,
            copying=copying,
            active_requests=0,
            windows=windows,
            envoy="1.40.0",
        )


def _pausing(config: MirrorConfig) -> bool:
    """Whether capture copies nothing although copying is on. Single pauses are left out: the rate is what is left."""
    return config.capture.pauses is not None and config.capture.pauses.share == MODULO


def _pairs(number: int, count: int, arms: tuple[str, ...], config: MirrorConfig, now: float) -> Window:
    amount = Amount(requests=count, bytes=count * BODY_BYTES)
    results = {}
    for arm in arms:
        ttft = Histogram()
        for i in range(count):
            ttft.add(0.1 + 0.01 * (i % 7))
        usage = Usage(answers=count, body_bytes=amount.bytes, prompt_tokens=count * 100, output_tokens=count * 5)
        results[arm] = ArmEvidence(completed=amount, within_slo=amount, ttft=ttft, usage=usage)
    pairs: dict[str, dict[str, BlockSeries]] = {}
    if number > 0:
        for arm in arms[1:]:
            series = {}
            for indicator in config.indicators:
                blocks = BlockSeries()
                for i in range(count):
                    blocks.add(int(now) - i % 3, (1, 0, 0)[i % 3])
                series[indicator.criterion] = blocks
            pairs[arm] = series
    classes = {"default": ClassEvidence(received=amount, admitted=amount, arms=results)}
    return Window(id=number, first_pair=now, last_pair=now, classes=classes, pairs=pairs)


def _compare(window: Window, count: int, arms: tuple[str, ...], block: int, differs_in: int) -> None:
    """Compare the answers of so many pairs, one at a time."""
    for arm in arms[1:]:
        found, series = Matches(), BlockSeries()
        for i in range(count):
            differs = differs_in and not (block + i) % differs_in
            found.add(Likeness.VALUE if differs else Likeness.MATCH)
            series.add(block - i % 3, -1 if differs else 0)
        window.classes["default"].matches[arm] = found
        window.differing[arm] = series


def _patch_containers(template: Manifest, patch: Manifest) -> None:
    """What tests patch: fields of containers, and variables by their names."""
    for container in patch.get("spec", {}).get("containers", []):
        for own in template["spec"]["containers"]:
            if own["name"] == container["name"]:
                env = {e["name"]: e for e in own.get("env", [])}
                env |= {e["name"]: {k: v for k, v in e.items() if v is not None} for e in container.get("env", [])}
                own.update(merged(own, container) | ({"env": list(env.values())} if env else {}))


def _key(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def decoded(record: RunRecord) -> RunRecord:
    """The record after a trip through JSON."""
    return msgspec.json.decode(msgspec.json.encode(record), type=RunRecord)
