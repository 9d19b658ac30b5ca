"""The local provider: real Kubernetes programs on this machine, without a container engine or an image registry.

Crash-only: taking down is killing and sweeping, and a cluster that is not whole is taken down and made anew.
"""

import os
import sys
from functools import partial
from pathlib import Path

from . import baseimages, config, controlplane, debian, gotools, host, node
from .base import Cluster
from .commands import ClusterError, wait_until
from .localimages import LocalImages, write_archive
from .locks import locked
from .parallel import at_once
from .paths import State
from .processes import alive, end, marked_processes, processes_of
from .progress import Plan, carry_out
from .topology import NODES, Lane, Node

CONTROL_PLANE_PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns")
PROGRAMS = (*CONTROL_PLANE_PROGRAMS, *node.PROGRAMS, "containerd-shim-runc-v2", "ctr", "kubectl", "helm")
EXPECTED = {*controlplane.PROCESSES, *node.expected_processes()}
READY_TIMEOUT = 120.0
RECOVERY_TIMEOUT = 60.0  # a machine under load may answer late; that is no reason to throw a cluster away
SETTLE_POLL = 0.3


class LocalCluster(Cluster):
    """Three nodes, each a set of namespaces, and a control plane beside them."""

    def __init__(self, state: State | None = None, *, quiet: bool = False) -> None:
        self.state = state or State()
        self.quiet = quiet
        super().__init__("local", self.state.kubeconfig)

    def create(self) -> bool:
        require_root()
        if self.is_healthy():
            return False
        carry_out(machine_plan(), self.quiet)
        with locked(host.LOCK):
            if self.is_healthy():
                return False
            sweep_the_dead()
            sweep(self.state)
            try:
                carry_out(self._plan(), self.quiet)
            except BaseException:
                sweep(self.state)
                raise
        return True

    def delete(self) -> None:
        require_root()
        with locked(host.LOCK):
            sweep(self.state)

    def is_healthy(self) -> bool:
        """Every process runs, from the programs this checkout asks for, and every node is Ready, or soon is again."""
        if EXPECTED - alive(self.state) or made_from(self.state) != programs_key():
            return False
        try:
            self._wait_for_nodes(RECOVERY_TIMEOUT)
        except ClusterError:
            return False
        return True

    def build_image(self, tag: str, dockerfile: Path, context: Path, target: str | None = None) -> None:
        LocalImages(self.state, quiet=self.quiet).build(tag, dockerfile, context, target)

    def load_docker_image(self, docker_image: str) -> None:
        LocalImages(self.state, quiet=self.quiet).load(docker_image)

    def _plan(self) -> Plan:
        lane = host.prepare(self.state.root)
        return [
            ("starting the API and three machines", lambda _: self._start_machines(lane)),
            ("starting kubelets, controllers and DNS", lambda _: self._start_kubernetes(lane)),
            ("waiting until the nodes are ready", lambda _: self._wait_until_ready()),
        ]

    def _start_machines(self, lane: Lane) -> None:
        host.remove_tree(self.state.logs)
        self.state.nodes.mkdir(parents=True)
        write_archive(baseimages.PAUSE.reference, baseimages.PAUSE.tag, self.pause_archive)
        machines = [partial(self._start_machine, one, lane) for one in NODES]
        at_once([partial(controlplane.start_api, self.state, lane), *machines])

    @property
    def pause_archive(self) -> Path:
        return self.state.nodes / "pause.tar"

    def _start_machine(self, one: Node, lane: Lane) -> None:
        node.power_on(one, self.state, lane)
        node.start_containerd(one, self.state, lane)
        node.import_image(one, self.state, self.pause_archive)

    def _start_kubernetes(self, lane: Lane) -> None:
        controlplane.start_controllers(self.state, lane)
        for one in NODES:
            node.start_kubelet(one, self.state, lane)
            node.start_kube_proxy(one, self.state, lane)
        controlplane.start_dns(self.state, lane)

    def _wait_until_ready(self) -> None:
        at_once(partial(self._add_gpus, one) for one in NODES)
        self._wait_for_nodes(READY_TIMEOUT)
        self.state.made_from.write_text(programs_key())

    def _add_gpus(self, one: Node) -> None:
        patch = ("patch", "node", one.name, "--subresource=status", "--type=merge", "-p")
        add = partial(self.kubectl, *patch, config.gpu_patch(one.pool.gpus))
        wait_until(lambda: bool(add()), f"{one.name} is registered", READY_TIMEOUT, SETTLE_POLL)

    def _wait_for_nodes(self, timeout: float) -> None:
        ready = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
        ask = partial(self.kubectl, "get", "nodes", *(one.name for one in NODES), "-o", ready, timeout=timeout)
        wait_until(lambda: ask().split() == ["True"] * len(NODES), "all nodes are Ready", timeout, SETTLE_POLL)


def require_root() -> None:
    if not sys.platform.startswith("linux"):
        raise ClusterError("the local provider needs Linux; with a Docker engine use --provider=kind")
    if os.geteuid() != 0:
        raise ClusterError("the local provider makes network interfaces and control groups, which needs root")


def machine_plan() -> Plan:
    """What the machine lacks: packages, programs, images. Empty when all is there."""
    plan: Plan = []
    packages = debian.missing()
    if packages:
        plan.append((f"installing {' '.join(packages)}", lambda _: debian.install(packages)))
    plan += gotools.plan(PROGRAMS)
    plan += [(f"making the image {image.tag}", partial(baseimages.make, image)) for image in baseimages.missing()]
    return plan


def programs_key() -> str:
    """Which programs and pause image a cluster started now would be made from."""
    folders = {str(gotools.path_of(program).parent) for program in PROGRAMS}
    return "\n".join([*sorted(folders), baseimages.PAUSE.key])


def made_from(state: State) -> str | None:
    try:
        return state.made_from.read_text()
    except FileNotFoundError:
        return None


def sweep_the_dead() -> None:
    """Clean up after checkouts whose cluster was killed or whose folder is gone. A living one keeps its lane."""
    states = {process.state for process in marked_processes()} | set(host.LaneRecords().holders().values())
    for state in map(State, states):
        if not is_living(state):
            sweep(state)


def is_living(state: State) -> bool:
    """Somebody may be using it: its checkout exists and so does its API."""
    return state.kubeconfig.exists() and {"etcd", "kube-apiserver"} <= alive(state)


def sweep(state: State) -> None:
    """Leave nothing of a cluster but its logs and the memory of what was built. Undoes any part of a start."""
    end(processes_of(state))
    host.restore(state.root)
    for folder in (state.control_plane, state.nodes, state.loaded_images):
        host.remove_tree(folder)
    for file in (state.kubeconfig, state.made_from):
        file.unlink(missing_ok=True)
