"""A node that a test adds to a local cluster, to pull its plug: nobody else's pods are on it, and it leaves nothing."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from . import cgroups, host, node
from .commands import ClusterError, run, wait_until
from .local import LocalCluster
from .localimages import LocalImages
from .processes import end, processes_of
from .topology import L40S, NODES, Lane, Node

TAINT = "test/spare"
SPARE = Node(4, L40S, "zone-b", region="spare", taint=f"{TAINT}=:NoSchedule")
READY_TIMEOUT = 120.0


@contextmanager
def plugged_in(cluster: LocalCluster, images: Sequence[str]) -> Iterator[Node]:
    """The node, ready and with these images on it; only pods that tolerate `TAINT` go there."""
    lane = host.LaneRecords().lane_of(cluster.state.root)
    if lane is None:
        raise ClusterError("there is no cluster that a node could be added to")
    _take_away(cluster, lane)  # a test that was killed has left its own
    try:
        _plug_in(cluster, lane, images)
        yield SPARE
    finally:
        _take_away(cluster, lane)


def pull_the_plug(cluster: LocalCluster) -> None:
    """Everything on the node ends at once, and so does its cable. Nobody tells the API server."""
    end(process for process in processes_of(cluster.state) if process.name.startswith(f"{SPARE.name}/"))


def _plug_in(cluster: LocalCluster, lane: Lane, images: Sequence[str]) -> None:
    state = cluster.state
    cgroups.create(f"{lane.control_group}/{SPARE.name}")
    node.power_on(SPARE, state, lane)
    for other in NODES:
        route = ["ip", "route", "replace", lane.pod_range(SPARE), "via", lane.address(SPARE)]
        run(node.inside(other, state, route))
    node.start_containerd(SPARE, state, lane)
    node.import_image(SPARE, state, cluster.pause_archive)
    with tempfile.TemporaryDirectory(prefix="image-", dir=state.root) as folder:
        for number, tag in enumerate(images):
            archive = Path(folder, f"{number}.tar")
            LocalImages(state).write(tag, archive)
            node.import_image(SPARE, state, archive)
    node.start_kubelet(SPARE, state, lane)
    node.start_kube_proxy(SPARE, state, lane)
    ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    wait_until(lambda: cluster.kubectl("get", "node", SPARE.name, "-o", ready) == "True", "it is ready", READY_TIMEOUT)


def _take_away(cluster: LocalCluster, lane: Lane) -> None:
    """Nothing of it is left; where there is nothing, nothing happens."""
    pull_the_plug(cluster)
    cluster.kubectl("delete", "node", SPARE.name, "--ignore-not-found")
    run(["ip", "route", "flush", lane.pod_range(SPARE)])
    cgroups.remove(f"{lane.control_group}/{SPARE.name}")
    host.remove_tree(cluster.state.node(SPARE.name))
