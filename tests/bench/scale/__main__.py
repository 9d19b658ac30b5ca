"""`python -m tests.bench.scale [--runs N] [--running N] [--quick]`: one operator and many ShadowRuns.

On a cluster's real API server, scheduler and controllers; the nodes, and the pods on them, are objects that nothing
runs behind. Writes its table into docs/benchmarks-scale.md; with --quick a few runs for seconds, and writes nothing.

While it runs the cluster is its own: an operator that is installed is scaled down, the real nodes are cordoned. Exit
status 1 says that a goal was missed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

from kubernetes.aio import config as kubeconfig
from kubernetes.aio.client import ApiClient, Configuration
from shadowrun_operator.cluster.client import Cluster as Client

from tests.bench.machine import cpu_seconds, description, resident_mib
from tests.bench.scale.nodes import POOL, Nodes
from tests.bench.scale.replicas import PAIRS_A_SECOND, Replicas
from tests.bench.tables import Line, Table, write
from tests.cluster.base import Cluster
from tests.cluster.paths import REPOSITORY
from tests.cluster.providers import cluster

DOCUMENT = REPOSITORY / "docs" / "benchmarks-scale.md"
DEFINITION = "shadowruns.shadowrun.dev"
CRD = REPOSITORY / "crds" / f"{DEFINITION}.yaml"
NAME = "scale"
ARMS = ("baseline", "candidate")
PATIENCE_S = 240.0
WRITES = ("shadowruns", "configmaps", "secrets", "services", "networkpolicies", "poddisruptionbudgets")
"""What nobody but the operator writes to while nothing else goes on."""
OPERATORS = "app.kubernetes.io/name=shadowrun-operator"


class Scene:
    """A namespace, its runs, and the operator's process."""

    def __init__(self, on: Cluster, client: Client, namespace: str) -> None:
        self._on, self._client, self._namespace = on, client, namespace

    async def create_run(self, name: str, **spec: Any) -> tuple[str, float]:
        """A run and the Service of its primary: its uid, and when it was taken, by the monotonic clock."""
        meta = {"name": f"{name}-chat", "namespace": self._namespace}
        ports = [{"name": "http", "port": 8000, "targetPort": 8000, "protocol": "TCP"}]
        service = {"selector": {"app": name}, "ports": ports}
        await self._client.create({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service})
        made = await self._client.create(shadow_run(name, self._namespace, **spec))
        assert made is not None, "the namespace is new"
        return made["metadata"]["uid"], time.monotonic()

    async def runs(self) -> list[dict[str, Any]]:
        """All of them as they are stored."""
        return await self._client.list("ShadowRun", self._namespace)

    async def arms(self, name: str) -> list[dict[str, Any]]:
        """The Deployments of a run's arms, as far as they are there."""
        asked = (self._client.get("Deployment", self._namespace, f"{name}-{arm}", bare=True) for arm in ARMS)
        return [found for found in await asyncio.gather(*asked) if found is not None]

    async def until(self, what: str, phase: str, number: int) -> None:
        """Until so many runs are in a phase."""
        deadline, phases = time.monotonic() + PATIENCE_S, [""]
        while phases.count(phase) < number:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: {phases.count(phase)} of {number} after {PATIENCE_S:.0f} s")
            await asyncio.sleep(0.5)
            phases = [run.get("status", {}).get("phase", "") for run in await self.runs()]

    async def until_arms_stand(self, name: str, since: float) -> float:
        """Milliseconds since then until both arms of a run are there."""
        while len(await self.arms(name)) < len(ARMS):
            if time.monotonic() > since + PATIENCE_S:
                raise TimeoutError(f"{name} has no arms after {PATIENCE_S:.0f} s")
            await asyncio.sleep(0.05)
        return (time.monotonic() - since) * 1000

    async def writes(self) -> int:
        """How many writes to objects of the operator's kinds the API server has answered so far."""
        total = 0.0
        said = await asyncio.to_thread(self._on.kubectl, "get", "--raw", "/metrics", timeout=60)
        for line in said.splitlines():
            if line.startswith("apiserver_request_total{"):
                labels = dict(
                    part.split("=", 1) for part in line[len("apiserver_request_total{") :].split("}")[0].split(",")
                )
                asked = {key: value.strip('"') for key, value in labels.items()}
                if asked["resource"] in WRITES and asked["verb"] not in ("GET", "LIST", "WATCH"):
                    total += float(line.rsplit(" ", 1)[1])
        return round(total)


def shadow_run(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """A run on a primary of its own, with arms written into it."""
    engine = {"name": "engine", "image": "engine:1", "ports": [{"name": "http", "containerPort": 8000}]}
    wanted = {
        "primary": {"service": {"name": f"{name}-chat", "port": 8000}},
        "capture": {"proxy": {"serviceName": f"{name}-shadowed", "replicas": 1}},
        "sampling": {"unit": "Request", "rate": "100%"},
        "admission": {"maxInFlight": 8, "timeout": "10s"},
        "arms": {
            "template": {"podTemplate": {"spec": {"containers": [engine]}}},
            "candidate": {"patch": {"spec": {"containers": [{"name": "engine", "args": ["--cache"]}]}}},
            "warmup": {"duration": "5s", "requests": 10},
        },
        "hardware": {"matchLabelKeys": ["gpu"], "nodeSelector": POOL},
        "slo": {"ttft": "2s"},
        "criteria": [{"name": "ttft", "metric": "TTFT", "quantile": "p50", "require": "NotWorse", "margin": "10%"}],
        "duration": "2h",
        "endConditions": {"minDuration": "1h"},
        "startDeadline": "10m",
    }
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "shadowrun.dev/v1alpha1", "kind": "ShadowRun", "metadata": meta, "spec": wanted | spec}


async def measure(on: Cluster, *, runs: int, running: int, seconds: float) -> Table:
    """One round: the idle runs first, then those that copy, each created when the one before it has its arms."""
    namespace, idle = f"scale-{uuid.uuid4().hex[:6]}", runs - running
    async with connected(on) as api, alone(on, namespace), simulated(api, namespace) as nodes:
        scene = Scene(on, Client(api), namespace)
        with operator(on, namespace) as process:
            for number in range(idle):
                await scene.create_run(f"idle-{number}", schedule={"startTime": "2099-01-01T00:00:00Z"})
            await scene.until("idle runs", "Pending", idle)
            idle_cpu, idle_writes = await _over(scene, process, seconds)
            lags = []
            for number in range(running):
                name = f"run-{number}"
                uid, since = await scene.create_run(name)
                nodes.replicas.runs[uid] = name
                lags.append(await scene.until_arms_stand(name, since))
            await scene.until("running runs", "Running", running)
            cpu, writes = await _over(scene, process, seconds)
            memory = resident_mib(process.pid)
            nodes.removing = True
            await _remove(scene, on, namespace)
    minutes = seconds / 60
    per_idle = idle_writes / idle / minutes
    return Table(
        NAME,
        f"{runs} ShadowRuns, {running} of them copying {PAIRS_A_SECOND:.0f} pairs a second each, the others waiting "
        f"for their time; measured over {seconds:.0f} s. A lag is one run's. A pod is ready once it has a node.",
        [
            Line("apply → both arms made", tuple(lags), "ms", at_most=2000),
            Line("the slowest of them", (max(lags),), "ms"),
            Line("writes of an idle run a minute", (per_idle,), "requests", at_most=2),
            Line("writes of a copying run a minute", ((writes - idle_writes) / running / minutes,), "requests"),
            Line("the operator's memory", (memory,), "MiB", at_most=256),
            Line("the operator's share of a core, idle runs only", (idle_cpu,), "%"),
            Line("the operator's share of a core, all runs", (cpu,), "%", at_most=20),
        ],
        rounds=1,
    )


async def _over(scene: Scene, process: "subprocess.Popen[bytes]", seconds: float) -> tuple[float, int]:
    """Share of a core in per cent, and writes, over some time after things have calmed down."""
    await asyncio.sleep(min(20.0, seconds))
    written, begun, used = await scene.writes(), time.monotonic(), cpu_seconds(process.pid)
    await asyncio.sleep(seconds)
    share = (cpu_seconds(process.pid) - used) / (time.monotonic() - begun)
    return share * 100, await scene.writes() - written


async def _remove(scene: Scene, on: Cluster, namespace: str) -> None:
    everything = ("delete", "shadowruns", "--all", "--wait=false")
    await asyncio.to_thread(on.kubectl, "-n", namespace, *everything, timeout=120)
    deadline = time.monotonic() + PATIENCE_S
    while left := len(await scene.runs()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{left} runs are still there {PATIENCE_S:.0f} s after their deletion")
        await asyncio.sleep(1)


@contextlib.contextmanager
def operator(on: Cluster, namespace: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Its process on this machine, for that namespace."""
    own = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    own |= {
        "KUBECONFIG": str(on.kubeconfig_path),
        "WATCH_NAMESPACES": namespace,
        "MIRROR_IMAGE": "mirror:1",
        "CAPTURE_IMAGE": "capture:1",
        "LIVENESS": "http://127.0.0.1:18080/healthz",
        "METRICS_PORT": "18090",
        "LOG_LEVEL": "WARNING",
    }
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([sys.executable, "-m", "shadowrun_operator"], env=own, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)
            log.seek(0)
            said = log.read().decode(errors="replace").splitlines()
            print("\n".join(said[-20:]), file=sys.stderr)


@contextlib.asynccontextmanager
async def connected(on: Cluster) -> AsyncIterator[ApiClient]:
    """The bench's own connections."""
    settings = Configuration()
    await kubeconfig.load_kube_config(  # type: ignore[no-untyped-call]
        config_file=str(on.kubeconfig_path), client_configuration=settings
    )
    settings.proxy = None
    api = ApiClient(configuration=settings)
    try:
        yield api
    finally:
        await api.close()  # type: ignore[no-untyped-call]


@contextlib.asynccontextmanager
async def alone(on: Cluster, namespace: str) -> AsyncIterator[None]:
    """No other operator acts, no real node takes a pod, and the namespace goes at the end."""
    found = json.loads(on.kubectl("get", "deployments", "-A", "-l", OPERATORS, "-o", "json"))["items"]
    nodes = on.kubectl("get", "nodes", "-o", "name").split()
    standing = [(d["metadata"]["namespace"], d["metadata"]["name"], d["spec"]["replicas"]) for d in found]
    defined = on.kubectl("get", "crd", DEFINITION, "--ignore-not-found", "-o", "name")
    if not defined:
        on.kubectl("apply", "--server-side", "-f", str(CRD))
        on.kubectl("wait", "--for=condition=Established", f"crd/{DEFINITION}", "--timeout=60s", timeout=70)
    on.kubectl("create", "namespace", namespace)
    try:
        for where, name, _ in standing:
            on.kubectl("-n", where, "scale", f"deployment/{name}", "--replicas=0")
        on.kubectl("cordon", *nodes)
        yield
    finally:
        on.kubectl("uncordon", *nodes)
        for where, name, replicas in standing:
            on.kubectl("-n", where, "scale", f"deployment/{name}", f"--replicas={replicas}")
        for left in on.kubectl("-n", namespace, "get", "shadowruns", "-o", "name").split():
            on.kubectl("-n", namespace, "patch", left, "--type=merge", "--patch", '{"metadata":{"finalizers":null}}')
        on.kubectl("delete", "namespace", namespace, "--wait=false")
        if not defined:  # Helm would not take over one that it has not made
            on.kubectl("delete", "crd", DEFINITION, "--timeout=120s", timeout=130)


@contextlib.asynccontextmanager
async def simulated(api: ApiClient, namespace: str) -> AsyncIterator[Nodes]:
    """Nodes, pods, mirrors and captures, for as long as it lasts. All pods say that they are at this machine."""
    address = urlsplit(api.configuration.host).hostname or ""
    replicas = Replicas()
    nodes = Nodes(api, namespace, address, replicas)
    async with replicas.serving(address):
        await nodes.delete()
        await nodes.create()
        work = [asyncio.create_task(nodes.beat()), asyncio.create_task(nodes.run_pods())]
        try:
            yield nodes
        finally:
            for task in work:
                task.cancel()
            for error in await asyncio.gather(*work, return_exceptions=True):
                if not isinstance(error, asyncio.CancelledError):
                    print(f"the simulated nodes failed: {error!r}", file=sys.stderr)
            await nodes.delete()


def main(arguments: list[str]) -> int:
    """Measure; 1 when a goal was missed, so that a script can tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale", description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--running", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="8 runs, 2 of them copying, for 10 s; nothing is written")
    given = parser.parse_args(arguments)
    runs, running, seconds = (8, 2, 10.0) if given.quick else (given.runs, given.running, 60.0)
    on = cluster()
    on.create()
    table = asyncio.run(measure(on, runs=runs, running=running, seconds=seconds))
    print(f"\n{table.markdown(description())}")
    if not given.quick:
        write(DOCUMENT, table, description())
    return int(not given.quick and any(line.met is False for line in table.lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
