"""One node of the local cluster: a set of namespaces that real node programs run in.

A node has its own network, mounts, process ids and host name, and one first process. Killing that process is pulling
the plug: the kernel ends everything inside, containers included, and takes the node's mounts and its cable with it, so
there is nothing to undo.
"""

from collections.abc import Sequence
from pathlib import Path

from . import config
from .commands import ClusterError, run
from .gotools import path_of
from .paths import State
from .processes import processes_of, spawn
from .topology import NODES, Lane, Node

FIRST_PROCESS = "init"
START_TIMEOUT = 60.0
PROGRAMS = ("containerd", "kubelet", "kube-proxy")


def process_names(node: Node) -> list[str]:
    return [f"{node.name}/{program}" for program in PROGRAMS]


def power_on(node: Node, state: State, lane: Lane) -> None:
    """Make the namespaces, the folders and the cable."""
    folder = state.node(node.name)
    ready = folder / "ready"
    for name in config.NODE_FOLDERS.values():
        (folder / name).mkdir(parents=True)
    script = config.node_setup(node, folder, ready)
    namespaces = ["--net", "--mount", "--pid", "--uts", "--mount-proc", "--propagation=slave"]
    name = f"{node.name}/{FIRST_PROCESS}"
    first = spawn(name, ["unshare", *namespaces, "--fork", "--kill-child", "sh", "-c", script], state)
    first.wait_until(ready.exists, f"{node.name} has its folders", START_TIMEOUT, poll=0.01)
    _connect(node, lane, first_pid(node, state))


def _connect(node: Node, lane: Lane, pid: int) -> None:
    run(["ip", "link", "add", lane.link(node), "type", "veth", "peer", "name", "eth0", "netns", str(pid)])
    run(["ip", "link", "set", lane.link(node), "master", lane.bridge, "up"])
    run(["nsenter", "-t", str(pid), "-n", "ip", "-batch", "-"], stdin=config.node_network(lane, node))
    run(["nsenter", "-t", str(pid), "-n", "-m", "sysctl", "-qw", "net.ipv4.ip_forward=1"])
    run(["ip", "route", "replace", lane.pod_range(node), "via", lane.address(node)])


def first_pid(node: Node, state: State) -> int:
    name = f"{node.name}/{FIRST_PROCESS}"
    for process in processes_of(state):
        if process.name == name and process.program == "sh":
            return process.pid
    raise ClusterError(f"{node.name} is not running")


def inside(node: Node, state: State, argv: Sequence[str | Path]) -> list[str | Path]:
    """The command that runs `argv` in the node."""
    return ["nsenter", "-t", str(first_pid(node, state)), "-m", "-n", "-p", "-u", "--", *argv]


def start_containerd(node: Node, state: State, lane: Lane) -> None:
    folder = state.node(node.name)
    (folder / "cni").mkdir()
    (folder / "cni" / "10-bridge.conflist").write_text(config.cni(lane, node))
    (folder / "containerd.toml").write_text(config.containerd(folder / "cni"))
    containerd = path_of("containerd")
    argv = inside(node, state, [containerd, "-c", folder / "containerd.toml"])
    name = f"{node.name}/containerd"
    process = spawn(name, argv, state, {"PATH": f"{containerd.parent}:/usr/sbin:/usr/bin:/sbin:/bin"})
    version = inside(node, state, [path_of("ctr"), "version"])
    process.wait_until(lambda: bool(run(version)), f"{name} answers", START_TIMEOUT)


def import_image(node: Node, state: State, archive: Path) -> None:
    """Unpack an image in the node. Its archive's layers are not kept as well: nothing pushes them anywhere."""
    options = ["--local", "--discard-unpacked-layers"]
    run(inside(node, state, [path_of("ctr"), "--namespace=k8s.io", "images", "import", *options, archive]))


def start_kubelet(node: Node, state: State, lane: Lane) -> None:
    folder = state.node(node.name)
    (folder / "kubelet.json").write_text(config.kubelet(f"{lane.control_group}/{node.name}"))
    labels = ",".join(f"{name}={value}" for name, value in node.labels().items())
    kubelet: list[str | Path] = [
        path_of("kubelet"),
        f"--kubeconfig={state.kubeconfig}",
        f"--config={folder / 'kubelet.json'}",
        f"--hostname-override={node.name}",
        f"--node-ip={lane.address(node)}",
        f"--node-labels={labels}",
        *([f"--register-with-taints={node.taint}"] if node.taint else []),
    ]
    spawn(f"{node.name}/kubelet", inside(node, state, kubelet), state)


def start_kube_proxy(node: Node, state: State, lane: Lane) -> None:
    settings = state.node(node.name) / "kube-proxy.json"
    settings.write_text(config.kube_proxy(lane, node, state.kubeconfig))
    proxy: list[str | Path] = [path_of("kube-proxy"), f"--config={settings}"]
    spawn(f"{node.name}/kube-proxy", inside(node, state, proxy), state)


def expected_processes() -> set[str]:
    return {name for node in NODES for name in process_names(node)}
