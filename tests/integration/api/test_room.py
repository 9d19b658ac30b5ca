"""What is left of a node is counted by a real API server's lists: of that node's pods alone, in every namespace."""

import uuid
from collections.abc import Iterator

import pytest
import yaml
from shadowrun_operator.cluster.client import Cluster
from shadowrun_operator.cluster.room import free_room

from tests.integration.api.conftest import NAMESPACE, HasApi, Runs

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

GPU = "nvidia.com/gpu"


@pytest.fixture
def pool(server: HasApi, runs: Runs) -> Iterator[str]:
    """Two nodes without a kubelet: on the first is a pod of three accelerators, and one that has ended."""
    name = f"room-{uuid.uuid4().hex[:6]}"
    for number in (1, 2):
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"{name}-{number}", "labels": {"pool": name}},
            "status": {"allocatable": {"cpu": "4", "pods": "10", GPU: "8"}, "capacity": {"cpu": "4", GPU: "8"}},
        }
        server.kubectl("create", "-f", "-", input=yaml.safe_dump(node))
    for pod in ("runs", "ended"):
        server.kubectl("create", "-f", "-", input=yaml.safe_dump(_pod(f"{name}-{pod}", f"{name}-1")))
    done = '{"status": {"phase": "Succeeded"}}'
    server.kubectl("-n", NAMESPACE, "patch", "pod", f"{name}-ended", "--subresource=status", "--type=merge", "-p", done)
    yield name
    pods = (f"{name}-runs", f"{name}-ended")
    server.kubectl("-n", NAMESPACE, "delete", "pod", *pods, "--force", "--grace-period=0", "--ignore-not-found")
    server.kubectl("delete", "node", f"{name}-1", f"{name}-2")


def _pod(name: str, node: str) -> dict[str, object]:
    resources = {"requests": {"cpu": "500m"}, "limits": {GPU: 3}}
    spec = {"nodeName": node, "containers": [{"name": "engine", "image": "engine:1", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


async def test_only_what_runs_on_a_node_is_taken_from_it(api: Cluster, pool: str) -> None:
    found = {room.name: room for room in await free_room(api, {"pool": pool}, lambda _: False) or ()}
    assert set(found) == {f"{pool}-1", f"{pool}-2"}
    first, second = found[f"{pool}-1"], found[f"{pool}-2"]
    used = {key: second.free[key] - first.free[key] for key in ("cpu", "pods", GPU)}
    assert used == {"cpu": 500, "pods": 1, GPU: 3}


async def test_a_pool_that_nobody_is_in_has_no_room_at_all(api: Cluster) -> None:
    assert await free_room(api, {"pool": "nobody"}, lambda _: False) == ()
