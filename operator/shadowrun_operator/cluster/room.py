"""Read what is left of the nodes that arms may go to. Decides nothing.

That takes all pods of those nodes, of whatever namespace: where the operator may not list them nothing is known.
"""

import asyncio
from collections.abc import Mapping

from shadowrun_operator.cluster.client import ApiRefusal, Cluster
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.requests import amount, requests
from shadowrun_operator.reconcile.observation import NodeRoom

MOST_NODES = 32
"""Pools of more nodes are not looked at: that would take a list of pods for each."""
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


async def free_room(cluster: Cluster, pool: Mapping[str, str]) -> tuple[NodeRoom, ...] | None:
    """Every node with these labels; None where that cannot be told. Any refusal but a lack of rights is raised."""
    try:
        nodes = await cluster.list("Node", selector=",".join(f"{key}={value}" for key, value in sorted(pool.items())))
        if len(nodes) > MOST_NODES:
            return None
        names = [node["metadata"]["name"] for node in nodes]
        pods = await asyncio.gather(*(cluster.list("Pod", fields=_bound_to(name)) for name in names))
    except ApiRefusal as refusal:
        if refusal.status != 403:
            raise
        return None
    return tuple(_room(node, found) for node, found in zip(nodes, pods, strict=True))


def _bound_to(node: str) -> str:
    return f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"


def _room(node: Manifest, pods: list[Manifest]) -> NodeRoom:
    free = {key: amount(key, given) for key, given in node.get("status", {}).get("allocatable", {}).items()}
    for pod in pods:
        for key, asked in {**requests(pod["spec"]), "pods": 1}.items():
            free[key] = free.get(key, 0) - asked
    spec = node.get("spec", {})
    taints = [*spec.get("taints", []), *([_UNSCHEDULABLE] if spec.get("unschedulable") else [])]
    return NodeRoom(
        name=node["metadata"]["name"], labels=node["metadata"].get("labels", {}), taints=tuple(taints), free=free
    )
