"""The room on nodes is what they offer less what is bound to them, and unknown where rights or size forbid to look."""

import asyncio
from typing import Any, cast

import pytest
from shadowrun_operator.cluster.client import ApiRefusal, Cluster
from shadowrun_operator.cluster.room import MOST_NODES, free_room
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile.observation import NodeRoom

pytestmark = pytest.mark.operator


class Nodes:
    """As much of a cluster as is asked: nodes, and the pods bound to each."""

    def __init__(self, count: int, *, refused: int = 0) -> None:
        self.asked: list[dict[str, str]] = []
        self._count, self._refused = count, refused

    async def list(self, kind: str, namespace: str = "", **selectors: str) -> list[Manifest]:
        self.asked.append({"kind": kind, "namespace": namespace, **selectors})
        if kind == "Node":
            return [_node(f"n{i}") for i in range(self._count)]
        if self._refused:
            raise ApiRefusal(self._refused, "Forbidden", "pods is forbidden")
        resources = {"requests": {"cpu": "250m"}, "limits": {"nvidia.com/gpu": 3}}
        return [{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}]


def _node(name: str) -> Manifest:
    return {
        "metadata": {"name": name, "labels": {"pool": "a"}},
        "spec": {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "4", "memory": "1Gi", "pods": "110", "nvidia.com/gpu": "8"}},
    }


def _room(nodes: Nodes, **pool: str) -> tuple[NodeRoom, ...] | None:
    return asyncio.run(free_room(cast(Cluster, cast(Any, nodes)), pool))


def test_what_is_bound_to_a_node_is_taken_from_what_it_offers() -> None:
    nodes = Nodes(1)
    (room,) = _room(nodes, pool="a") or ()
    assert room.free == {"cpu": 3750, "memory": 2**30, "pods": 109, "nvidia.com/gpu": 5}
    assert [taint["key"] for taint in room.taints] == ["gpu", "node.kubernetes.io/unschedulable"]
    assert nodes.asked[0]["selector"] == "pool=a"
    assert nodes.asked[1]["namespace"] == ""
    assert nodes.asked[1]["fields"].startswith("spec.nodeName=n0,")


def test_nothing_is_known_where_pods_of_other_namespaces_may_not_be_read() -> None:
    assert _room(Nodes(1, refused=403)) is None


def test_any_other_refusal_is_one() -> None:
    with pytest.raises(ApiRefusal):
        _room(Nodes(1, refused=500))


def test_a_pool_too_large_is_not_looked_at() -> None:
    nodes = Nodes(MOST_NODES + 1)
    assert _room(nodes) is None
    assert len(nodes.asked) == 1
