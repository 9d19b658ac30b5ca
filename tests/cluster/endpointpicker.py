"""The endpoint picker of the Gateway API Inference Extension, a plain process beside the tests; built when one asks.

It learns from the API server which pods are in its pool; no pod has to run. This module must not know who asks it.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import gotools
from .base import Cluster
from .commands import environment, wait_until
from .progress import carry_out

PROGRAM = "epp"
EXTENSION = "sigs.k8s.io/gateway-api-inference-extension"
_TIMEOUT_S = 60
_END_S = 20


@dataclass(frozen=True)
class Ports:
    """Where it listens: for gateways, for health checks, for metrics."""

    picks: int
    health: int
    metrics: int


def install_definitions(cluster: Cluster) -> None:
    """InferencePool, and what the picker reads beside it, as of the picker's version."""
    folder = gotools.source(PROGRAM, EXTENSION) / "config" / "crd" / "bases"
    cluster.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={folder}", timeout=_TIMEOUT_S)

    def are_served() -> bool:
        cluster.kubectl("get", "inferencepools,inferenceobjectives,inferencemodelrewrites", "-A", timeout=_TIMEOUT_S)
        return True

    wait_until(are_served, "the definitions are served", _TIMEOUT_S)


@contextmanager
def running(cluster: Cluster, namespace: str, pool: str, ports: Ports, log: Path) -> Iterator[None]:
    """It picks for one InferencePool while the context lasts; whether it is ready yet, its metrics say."""
    carry_out(gotools.plan([PROGRAM]))
    flags = {
        "pool-name": pool,
        "pool-namespace": namespace,
        "grpc-port": ports.picks,
        "grpc-health-port": ports.health,
        "metrics-port": ports.metrics,
        "metrics-endpoint-auth": "false",
        "tracing": "false",
    }
    line = [str(gotools.path_of(PROGRAM)), *(f"--{name}={value}" for name, value in flags.items())]
    where = environment({"KUBECONFIG": str(cluster.kubeconfig_path)})
    with log.open("wb") as said, subprocess.Popen(line, env=where, stdout=said, stderr=said) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
