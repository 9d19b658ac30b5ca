"""One namespace of the cluster with a primary, its customers and ShadowRuns, and what tests ask about them.

Everything goes through kubectl, as a user would; the operator, the mirror and Envoy are the real ones, and only the
engine is simulated, so that it can misbehave on purpose. This module must not assert.
"""

import copy
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from examples.demo.scenarios import RELEASE_NAMESPACE, TRAFFIC
from tests.cluster.base import Cluster
from tests.cluster.commands import ClusterError

Manifest = dict[str, Any]

H100 = "NVIDIA-H100-80GB-HBM3"
L40S = "NVIDIA-L40S"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "capabilities": {"drop": ["ALL"]},
}


class NeverHappenedError(AssertionError):
    """Something that was waited for did not come; carries the last state seen."""


@dataclass(frozen=True)
class Release:
    """One install of the chart."""

    name: str
    namespace: str

    @property
    def operator(self) -> str:
        return f"deployment/{self.name}-operator"

    @property
    def operator_pods(self) -> str:
        """The label selector of its pod."""
        return f"app.kubernetes.io/name=shadowrun-operator,app.kubernetes.io/instance={self.name}"


PATIENCE = 2.0
"""No wait measures anything. It only has to end, and on two busy cores all takes longer."""
SHARED = Release("shadowrun", RELEASE_NAMESPACE)
"""The operator of all namespaces but those that have one of their own."""


@dataclass(frozen=True)
class Customers:
    """What the customers have seen so far."""

    sent: int
    ok: int
    failed: int
    failures: tuple[str, ...]


class World:
    """A namespace with a simulated engine behind Service `chat`, and ShadowRuns on it."""

    def __init__(self, cluster: Cluster, namespace: str, release: Release = SHARED) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.release = release

    def kubectl(self, *args: str, **more: Any) -> str:
        return self.cluster.kubectl("-n", self.namespace, *args, **more)

    def apply(self, *manifests: Manifest) -> None:
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(manifests))

    def get(self, kind: str, name: str) -> Manifest | None:
        told = self.kubectl("get", kind, name, "--ignore-not-found", "-o", "json")
        return json.loads(told) if told.strip() else None

    def all(self, kind: str, selector: str = "") -> list[Manifest]:
        found: list[Manifest] = json.loads(self.kubectl("get", kind, "-l", selector, "-o", "json"))["items"]
        return found

    def create(self) -> None:
        """The namespace, the primary, and nothing of ShadowRun yet."""
        self.cluster.kubectl("create", "namespace", self.namespace)
        self.add_primaries("chat")

    def add_primaries(self, *names: str) -> None:
        """Engines of their own behind Services of their own, so that several runs can go on at once."""
        self.apply(*(manifest for name in names for manifest in primary(name)))
        for name in names:
            self.kubectl("rollout", "status", f"deployment/{name}", "--timeout=90s", timeout=100)

    def delete(self) -> None:
        """Runs first, then the namespace, which takes its time: it asks again after half of Envoy's grace period."""
        self.delete_runs()
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def delete_runs(self, *names: str) -> None:
        """These, or all, until the operator has let go of the last one."""
        seconds = PATIENCE * 90
        self.kubectl("delete", "shadowruns", *(names or ["--all"]), f"--timeout={seconds:.0f}s", timeout=seconds + 10)

    def status(self, name: str) -> Manifest:
        found = self.get("shadowrun", name)
        return {} if found is None else found.get("status", {})

    def wait(self, name: str, what: str, holds: Callable[[Manifest], bool], seconds: float) -> Manifest:
        """The status of a run once it satisfies `holds`. `seconds` are of a machine with nothing else to do."""
        status: Manifest = {}

        def satisfied() -> bool:
            nonlocal status
            status = self.status(name)
            return holds(status)

        self.until(f"{what} of {name}", satisfied, seconds, lambda: _told(status))
        return status

    def wait_phase(self, name: str, phase: str, seconds: float) -> Manifest:
        return self.wait(name, f"phase {phase}", lambda s: s.get("phase") == phase, seconds)

    def wait_complete(self, name: str, seconds: float) -> Manifest:
        return self.wait(name, "end", lambda s: condition(s, "Complete") == "True", seconds)

    def until(
        self, what: str, holds: Callable[[], bool], seconds: float, last_seen: Callable[[], str] = lambda: ""
    ) -> None:
        """Until it holds. A cluster that could not be asked has not said no: it is asked again."""
        deadline = time.monotonic() + PATIENCE * seconds
        error = ""
        while True:
            try:
                if holds():
                    return
            except ClusterError as not_yet:
                error = f"; the last error: {not_yet}"
            if time.monotonic() > deadline:
                raise NeverHappenedError(f"{what}: not within {PATIENCE * seconds} s; {last_seen()}{error}")
            time.sleep(1)

    def until_no_pods(self, selector: str) -> None:
        """Until the last pod is gone: a drain, and the garbage collector of a busy cluster, may take a while."""
        left: list[Manifest] = []

        def gone() -> bool:
            nonlocal left
            left = self.all("pods", selector)
            return left == []

        def last_seen() -> str:
            metas = [pod["metadata"] for pod in left]
            return ", ".join(f"{m['name']} ({m.get('deletionTimestamp', 'not told to go')})" for m in metas)

        self.until(f"no pod of {selector}", gone, 90, last_seen)

    def serve_customers(self, primary: str = "chat", *, rate: float = 8, connection: str = "keep") -> None:
        """Customers who never stop, from the moment the capture Service has someone behind it."""
        service = shadowed(primary)
        self.until(f"endpoints of {service}", lambda: self.endpoints(service) != [], 60)
        self.apply(customers(customers_name(primary, connection), service, rate, connection))

    def endpoints(self, service: str) -> list[str]:
        """Names of the ready pods behind a Service."""
        slices = self.all("endpointslices", f"kubernetes.io/service-name={service}")
        return sorted(
            e["targetRef"]["name"]
            for one in slices
            for e in one.get("endpoints") or []
            if e.get("conditions", {}).get("ready") and "targetRef" in e
        )

    def customers(self, primary: str = "chat", connection: str = "keep") -> Customers:
        """What they have seen, from their own log, which a pod has only once it has started."""
        lines: list[str] = []

        def read() -> bool:
            log = self.kubectl("logs", f"deployment/{customers_name(primary, connection)}", "--tail=-1")
            lines.extend(log.splitlines())
            return True

        self.until(f"the log of customers of {primary}", read, 60)
        failures = tuple(line for line in lines if line.startswith("{") and '"failure"' in line)
        counts = [line.split() for line in lines if line.startswith("sent ")]
        last = counts[-1] if counts else ["sent", "0", "ok", "0", "failed", "0"]
        return Customers(sent=int(last[1]), ok=int(last[3]), failed=int(last[5]), failures=failures)

    def report(self, name: str) -> Manifest:
        """The full report of a run that has ended."""
        found = self.get("configmap", f"{name}-report")
        if found is None:
            raise NeverHappenedError(f"{name} has no report")
        report: Manifest = json.loads(found["data"]["report.json"])
        return report

    def events(self, name: str) -> list[str]:
        """Reasons of the events about a run."""
        return [e["reason"] for e in self.all("events") if e["involvedObject"]["name"] == name]

    def said(self, name: str, reason: str) -> list[str]:
        """Messages of the events of one reason about a run."""
        about = [e for e in self.all("events") if e["involvedObject"]["name"] == name]
        return [e["message"] for e in about if e["reason"] == reason]

    def running(self, name: str, pairs: int = 15) -> Manifest:
        """The status of a run that counts, and has counted more than so many."""
        return self.wait(
            name, "counted pairs", lambda s: s.get("phase") == "Running" and s.get("pairs", 0) > pairs, 150
        )

    def pod_names(self, name: str, *components: str) -> set[str]:
        """Names of the pods of some components of a run."""
        chosen = f"shadowrun.dev/run={name},shadowrun.dev/component in ({','.join(components)})"
        return {pod["metadata"]["name"] for pod in self.all("pods", chosen)}

    def scale_operator(self, replicas: int) -> None:
        self.of_operator("scale", self.release.operator, f"--replicas={replicas}")
        if replicas:
            self.of_operator("rollout", "status", self.release.operator, "--timeout=90s", timeout=100)
        else:
            gone = ("wait", "--for=delete", "pod", "-l", self.release.operator_pods, "--timeout=60s")
            self.of_operator(*gone, timeout=70)

    def of_operator(self, *args: str, **more: Any) -> str:
        """kubectl, in the namespace of the operator that looks after this one."""
        return self.cluster.kubectl("-n", self.release.namespace, *args, **more)

    def everything_written(self) -> dict[str, str]:
        """All that could hold content: objects of the namespace (Secrets too), logs of our pods, and their metrics.

        Of a pod that goes meanwhile, what could still be read.
        """
        kinds = "shadowruns,configmaps,secrets,events,deployments,services,pods"
        written = {"objects": self.kubectl("get", kinds, "-o", "yaml")}
        for pod in self.all("pods", "app.kubernetes.io/managed-by=shadowrun"):
            name = pod["metadata"]["name"]
            try:
                written[name] = self.kubectl("logs", name, "--all-containers", "--prefix")
                if pod["metadata"]["labels"]["shadowrun.dev/component"] == "mirror":
                    written[f"metrics of {name}"] = self._metrics(self.namespace, name)
            except ClusterError:
                if not self._is_leaving(name):
                    raise
        written["operator"] = self.of_operator("logs", self.release.operator, "--tail=-1")
        operators = self.of_operator("get", "pods", "-l", self.release.operator_pods, "-o", "name").split()
        for name in operators:
            written[f"metrics of {name}"] = self._metrics(self.release.namespace, name.removeprefix("pod/"))
        return written

    def _is_leaving(self, pod: str) -> bool:
        """Whether a pod is gone, or told to go."""
        found = self.get("pod", pod)
        return found is None or "deletionTimestamp" in found["metadata"]

    def _metrics(self, namespace: str, pod: str) -> str:
        return self.cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{namespace}/pods/{pod}:9090/proxy/metrics")


def condition(status: Manifest, kind: str) -> str:
    """Status of a condition; "" where it is not set."""
    return next((str(c["status"]) for c in status.get("conditions", []) if c["type"] == kind), "")


def condition_reason(status: Manifest, kind: str) -> str:
    return next((str(c["reason"]) for c in status.get("conditions", []) if c["type"] == kind), "")


def condition_message(status: Manifest, kind: str) -> str:
    return next((str(c["message"]) for c in status.get("conditions", []) if c["type"] == kind), "")


def _told(status: Manifest) -> str:
    shown = {key: status.get(key) for key in ("phase", "verdict", "reason", "message", "endReason", "funnel")}
    words = [f"{c['type']}={c['status']} {c['reason']}: {c['message']}" for c in status.get("conditions", [])]
    return f"{json.dumps(shown)} {words}"


ENGINE = {"SPEED": "1", "PREFILL_MS": "0.1", "DECODE_MS": "60", "SLOTS": "64"}
"""Busy for a fifth of the time and with room for all who ask: one that is nearly full changes from minute to minute."""


def primary(name: str) -> list[Manifest]:
    """The engine that answers the customers, and its Service."""
    container = {
        "name": "engine",
        "image": TRAFFIC.tag,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-m", "examples.engine.simulator"],
        # Answers of half a second: on a busy machine a mirror is late by milliseconds, and a tenth of it is allowed.
        "env": [{"name": key, "value": value} for key, value in ENGINE.items()],
        "ports": [{"name": "http", "containerPort": 8000}],
        # Patient: an engine that is only slow must not be taken out of its Service, which customers would notice.
        "readinessProbe": {
            "httpGet": {"path": "/health", "port": "http"},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            "failureThreshold": 10,
        },
        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
        "resources": {"requests": {"cpu": "50m"}, "limits": {"nvidia.com/gpu": 1, "memory": "256Mi"}},
        "securityContext": RESTRICTED,
    }
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    service = {"selector": labels, "ports": [{"name": "http", "port": 8000, "targetPort": "http"}]}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": service},
    ]


def without_device() -> Manifest:
    """A primary's pods without an accelerator, of which other runs may have the last."""
    template: Manifest = primary("chat")[0]["spec"]["template"]
    del template["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    return template


def customers_name(primary: str, connection: str) -> str:
    """Name of the Deployment of customers of a primary who keep their connections, or close each."""
    return f"{primary}-customers-{connection}"


def customers(name: str, service: str, rate: float, connection: str) -> Manifest:
    """Customers in conversations, who log every failure with its time.

    Few are open at once, so each is soon over: copying begins in the middle of some, and those are not followed.
    """
    options = {
        "url": f"http://{service}:8000",
        "rate": rate,
        "burstiness": 0,
        "turns": 3,
        "conversations": 4,
        "prompt-scale": 0.02,
        "prompt-min": 20,
        "prompt-max": 300,
        "answer-tokens": 16,
        "answer-min": 2,  # as people's differ: with all alike, a median is a line that a breath moves everyone across
        "connection": connection,
        "failures": "/dev/stdout",
    }
    container = {
        "name": "traffic",
        "image": TRAFFIC.tag,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-m", "examples.traffic"],
        "args": [f"--{key}={value}" for key, value in options.items()],
        "resources": {"requests": {"cpu": "50m"}, "limits": {"memory": "256Mi"}},
        "securityContext": RESTRICTED,
    }
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 20},
    }
    spec = {"selector": {"matchLabels": labels}, "strategy": {"type": "Recreate"}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def shadowed(primary: str) -> str:
    """Name of the capture Service of the runs on a primary."""
    return f"{primary}-shadowed"


def capture_before(primary: str, replicas: int = 1) -> Manifest:
    """One pod takes half a core from what can be scheduled, and goes on draining: two of each run were too many."""
    return {"proxy": {"serviceName": shadowed(primary), "replicas": replicas}}


def env_patch(**values: str) -> Manifest:
    """A candidate's patch that sets environment variables of the engine."""
    env = [{"name": key, "value": value} for key, value in values.items()]
    return {"spec": {"containers": [{"name": "engine", "env": env}]}}


def shadow_run(name: str, *, primary: str = "chat", patch: Manifest | None = None, **spec: Any) -> Manifest:
    """A short run with lenient numbers: the candidate is twice as fast unless `patch` says otherwise.

    Its capture Service is the primary's name with `-shadowed`. `spec` replaces whole top-level fields of the spec.
    """
    base: Manifest = {
        "primary": {"service": {"name": primary, "port": 8000}},
        "capture": capture_before(primary),
        "sampling": {"unit": "Conversation", "rate": "100%", "key": {"header": "x-conversation-id"}},
        "admission": {"maxInFlight": 64, "timeout": "5s"},
        "arms": {
            "template": {"deploymentRef": {"name": primary}},
            "candidate": {"patch": env_patch(SPEED="2") if patch is None else patch},
            "warmup": {"duration": "4s", "requests": 30},
        },
        "hardware": {
            "matchLabelKeys": ["nvidia.com/gpu.product", "nvidia.com/gpu.memory"],
            "nodeSelector": {"nvidia.com/gpu.product": H100},
        },
        "slo": {"ttft": "3s"},
        "criteria": [
            {"name": "answers-faster", "metric": "E2E", "quantile": "p50", "require": "Better", "minPairs": 50},
            {"name": "within-slo", "metric": "WithinSLO", "require": "NotWorse", "margin": "5%", "minPairs": 50},
            {"name": "failures", "metric": "Failures", "require": "NotWorse", "margin": "5%", "minPairs": 50},
        ],
        "coverage": {"minRequests": "75%", "minTokens": "65%"},
        "duration": "30s",
        "endConditions": {"minDuration": "10s"},
        "startDeadline": "4m",
    }
    return {
        "apiVersion": "shadowrun.dev/v1alpha1",
        "kind": "ShadowRun",
        "metadata": {"name": name},
        "spec": {**base, **copy.deepcopy(spec)},
    }
