"""The room on nodes is what they offer less what is bound to them, and unknown where rights or size forbid to look."""

import asyncio
from typing import Any, cast

import pytest
from shadowrun_operator.cluster import room as room_module
from shadowrun_operator.cluster.client import ApiRefusal, ApiUnreachable, Cluster
from shadowrun_operator.cluster.memory import Memory
from shadowrun_operator.cluster.observe import observe
from shadowrun_operator.cluster.room import MOST_NODES, free_room
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest, RunRef
from shadowrun_operator.reconcile.observation import NodeRoom

from tests.unit.cluster_io.test_modes import SETTINGS, cluster_with, run
from tests.unit.cluster_io.test_routes import runs_on
from tests.unit.cluster_io.wire import answering, nobody

pytestmark = pytest.mark.operator


class Nodes:
    """As much of a cluster as is asked: nodes, and the pods bound to each."""

    def __init__(self, count: int, *, refused: int | Exception | None = None) -> None:
        self.asked: list[dict[str, str]] = []
        self.running = 0
        self._count, self._refused = count, refused

    async def list_few(self, kind: str, most: int, **selectors: str) -> list[Manifest] | None:
        self.asked.append({"kind": kind, "most": str(most), **selectors})
        return [_node(f"n{i}") for i in range(self._count)] if self._count <= most else None

    async def list(self, kind: str, namespace: str = "", **selectors: str) -> list[Manifest]:
        self.asked.append({"kind": kind, "namespace": namespace, **selectors})
        self.running += 1
        assert self.running == 1, "one list at a time"
        await asyncio.sleep(0)
        self.running -= 1
        if isinstance(self._refused, int):
            raise ApiRefusal(self._refused, "Forbidden", "pods is forbidden")
        if self._refused is not None:
            raise self._refused
        resources = {"requests": {"cpu": "250m"}, "limits": {"nvidia.com/gpu": 3}}
        return [{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}]


def _node(name: str) -> Manifest:
    return {
        "metadata": {"name": name, "labels": {"pool": "a"}},
        "spec": {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "4", "memory": "1Gi", "pods": "110", "nvidia.com/gpu": "8"}},
    }


def _room(nodes: Nodes, **pool: str) -> tuple[NodeRoom, ...] | None:
    return asyncio.run(free_room(cast(Cluster, cast(Any, nodes)), pool, lambda _: False))


def test_what_is_bound_to_a_node_is_taken_from_what_it_offers() -> None:
    nodes = Nodes(1)
    (room,) = _room(nodes, pool="a") or ()
    assert room.free == {"cpu": 3750, "memory": 2**30, "pods": 109, "nvidia.com/gpu": 5}
    assert [taint["key"] for taint in room.taints] == ["gpu", "node.kubernetes.io/unschedulable"]
    assert nodes.asked[0]["selector"] == "pool=a"
    assert nodes.asked[1]["namespace"] == ""
    assert nodes.asked[1]["fields"].startswith("spec.nodeName=n0,")


@pytest.mark.parametrize("refused", [403, 429, 500, ApiUnreachable("GET /api/v1/pods: TimeoutError")])
def test_nothing_is_known_where_pods_of_other_namespaces_cannot_be_read(refused: int | Exception) -> None:
    assert _room(Nodes(2, refused=refused)) is None


@pytest.mark.parametrize(
    ("known", "free"), [(True, 1), (False, 2)], ids=["it was seen there", "it got there after this pass had looked"]
)
async def test_room_is_not_taken_by_pods_that_it_is_looked_for(known: bool, free: int) -> None:
    cluster = cluster_with(run())
    node = {"name": "n", "labels": {"pool": "a"}}
    cluster.put({"kind": "Node", "metadata": node | {"namespace": ""}, "status": {"allocatable": {"pods": "3"}}})
    runs = runs_on(cluster)
    for _ in range(2):
        await runs.pass_once("inference", "x")
    for name, labels in (
        ("theirs", {}),
        ("x-baseline-0", names.labels(RunRef(name="x", namespace="", uid=""), "baseline")),
    ):
        meta = {"name": name, "namespace": "inference", "labels": labels}
        cluster.put({"kind": "Pod", "metadata": meta, "spec": {"nodeName": "n", "containers": []}})
    listed = cluster.list

    async def before_it_was_bound(kind: str, namespace: str = "", **selectors: Any) -> list[Manifest]:
        own = kind == "Pod" and bool(namespace)
        return [] if own and not known else await listed(kind, namespace, **selectors)

    cluster.list = before_it_was_bound  # type: ignore[method-assign]
    body = cluster.objects[names.KIND, "inference", "x"]
    seen = await observe(cluster, answering(nobody), SETTINGS, body, Memory())  # type: ignore[arg-type]
    assert [room.free for room in seen.room or ()] == [{"pods": free}]
    await runs.close()


def test_several_nodes_are_looked_at_one_after_another() -> None:
    assert len(_room(Nodes(3)) or ()) == 3


def test_a_look_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_module, "LOOK_S", 0.0)
    assert _room(Nodes(3)) is None


def test_a_pool_too_large_is_not_looked_at() -> None:
    nodes = Nodes(MOST_NODES + 1)
    assert _room(nodes) is None
    assert len(nodes.asked) == 1
