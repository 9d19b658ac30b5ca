"""Has NetworkPolicies enforced on a test cluster, while a test asks for it: kube-router's firewall on every local node.

kind's own network enforces them, and whether an existing cluster's does is that cluster's matter. This module must not
know what a policy says.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import gotools
from .base import Cluster
from .commands import run
from .local import LocalCluster
from .node import first_pid, inside
from .paths import State
from .processes import end, processes_of, spawn
from .progress import carry_out
from .topology import NODES, SERVICE_CIDR, Node

PROGRAM = "kube-router"
HEALTH_PORT = 20244
_START_TIMEOUT = 60.0
_FLUSH = "iptables --flush && iptables --delete-chain && ipset destroy"


@contextmanager
def enforced(cluster: Cluster) -> Iterator[None]:
    """From the first look of the firewalls on until the context ends; nothing of them stays on the nodes."""
    if not isinstance(cluster, LocalCluster):
        yield
        return
    carry_out(gotools.plan([PROGRAM]), cluster.quiet)
    try:
        for node in NODES:
            _start(node, cluster.state)
        yield
    finally:
        end(process for process in processes_of(cluster.state) if process.name.endswith(f"/{PROGRAM}"))
        for node in NODES:
            run(inside(node, cluster.state, ["sh", "-c", _FLUSH]))


def _start(node: Node, state: State) -> None:
    """Bridged packets pass the firewall too: two pods of one node are on one bridge."""
    pid = str(first_pid(node, state))
    run(["nsenter", "-t", pid, "-n", "-m", "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1"])
    router: list[str | Path] = [
        gotools.path_of(PROGRAM),
        f"--kubeconfig={state.kubeconfig}",
        f"--hostname-override={node.name}",
        "--run-firewall=true",
        "--run-router=false",
        "--run-service-proxy=false",
        "--run-loadbalancer=false",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        f"--health-port={HEALTH_PORT}",
    ]
    name = f"{node.name}/{PROGRAM}"
    started = spawn(name, inside(node, state, router), state)
    chains = inside(node, state, ["iptables", "--list-rules", "FORWARD"])
    started.wait_until(lambda: "KUBE-ROUTER" in run(chains), f"{name} has its rules", _START_TIMEOUT)
