"""Read what is left of the nodes that arms may go to. Decides nothing.

That takes all pods of those nodes, of whatever namespace: where they can't be listed nothing is known.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping

from shadowrun_operator.cluster.client import ApiRefusal, ApiUnreachable, Cluster
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.requests import amount, requests
from shadowrun_operator.reconcile.observation import NodeRoom

log = logging.getLogger(__name__)

MOST_NODES = 32
"""Pools of more nodes are not looked at: that would take a list of pods for each."""
LOOK_S = 5.0
"""A look that takes longer is given up: the pass goes on without it."""
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


async def free_room(
    cluster: Cluster, pool: Mapping[str, str], waits: Callable[[Manifest], bool]
) -> tuple[NodeRoom, ...] | None:
    """Every node with these labels; None where that cannot be told, for whatever reason: nothing rests on it.

    `waits`: whether a pod is one of those that room is looked for: it takes none, though it may have a node by now.
    One list after another: a look must not be a burst of lists of all namespaces.
    """
    selector = ",".join(f"{key}={value}" for key, value in sorted(pool.items()))
    try:
        async with asyncio.timeout(LOOK_S):
            nodes = await cluster.list_few("Node", MOST_NODES, selector=selector)
            if nodes is None:
                return None
            pods = [await cluster.list("Pod", fields=_bound_to(node["metadata"]["name"])) for node in nodes]
    except (ApiRefusal, ApiUnreachable, TimeoutError) as error:
        log.info("The room on nodes is not known: %s", error or type(error).__name__)
        return None
    return tuple(_room(node, itertools.filterfalse(waits, bound)) for node, bound in zip(nodes, pods, strict=True))


def _bound_to(node: str) -> str:
    return f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"


def _room(node: Manifest, pods: Iterable[Manifest]) -> NodeRoom:
    free = {key: amount(key, given) for key, given in node.get("status", {}).get("allocatable", {}).items()}
    for pod in pods:
        for key, asked in {**requests(pod["spec"]), "pods": 1}.items():
            free[key] = free.get(key, 0) - asked
    spec = node.get("spec", {})
    taints = [*spec.get("taints", []), *([_UNSCHEDULABLE] if spec.get("unschedulable") else [])]
    return NodeRoom(
        name=node["metadata"]["name"], labels=node["metadata"].get("labels", {}), taints=tuple(taints), free=free
    )
