"""Whether arms would find nodes is counted before the scheduler is asked, and never claimed without knowing."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_operator.manifests.requests import devices, requests
from shadowrun_operator.reconcile.observation import NodeRoom
from shadowrun_operator.reconcile.reconcile import reconcile
from shadowrun_operator.reconcile.room import lacking_room

from tests.unit.reconcile.world import World

pytestmark = pytest.mark.operator

GPU = "nvidia.com/gpu"
TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}


def _node(name: str = "node1", *, gpus: int = 8, taints: tuple[dict[str, str], ...] = (), **more: Any) -> NodeRoom:
    free = {"cpu": 4000, "memory": 64 * 2**30, "pods": 100, GPU: gpus} | more
    return NodeRoom(name=name, labels={"pool": "a"}, taints=taints, free=free)


def _lacking(*nodes: NodeRoom, **pod: Any) -> str | None:
    """What is lacking for a baseline and a candidate of one accelerator each, right after acceptance."""
    world = World.with_spec()
    template = world.users["Deployment", "chat"]["spec"]["template"]["spec"]
    template["containers"][0]["resources"] = {"limits": {GPU: 1, "memory": "1Gi"}, "requests": {"cpu": "500m"}}
    template.update(pod)
    world.turn()
    return lacking_room(dataclasses.replace(world.observe(), room=nodes))


@pytest.mark.parametrize(
    "nodes",
    [
        (_node(gpus=2),),
        (_node("node1", gpus=1), _node("node2", gpus=1)),
        (_node(taints=({"key": "soft", "effect": "PreferNoSchedule"},)),),
    ],
)
def test_arms_that_fit_lack_nothing(nodes: tuple[NodeRoom, ...]) -> None:
    assert _lacking(*nodes) is None


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ((_node(gpus=1),), f"1 of 2 pods of the arms on 1 nodes with pool=a: a pod asks for {GPU} 1, the freest"),
        ((_node("a", gpus=0), _node("b", gpus=0)), "2 of 2 pods of the arms on 2 nodes"),
        ((_node(cpu=600),), "asks for cpu 0.5, the freest node has 0.1"),
        ((_node(memory=2**29),), "asks for memory 1.0Gi, the freest node has 0.5Gi"),
        ((_node(pods=1),), "asks for pods 1, the freest node has 0"),
        ((_node("a", gpus=0), _node("b", cpu=0)), "asks for cpu"),
        ((_node(taints=(TAINT,)),), "no node with pool=a takes them"),
        ((), "no node with pool=a"),
    ],
)
def test_what_is_lacking_is_said_with_its_numbers(nodes: tuple[NodeRoom, ...], says: str) -> None:
    assert says in (_lacking(*nodes) or "")


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": GPU, "operator": "Exists"},
        {"key": GPU, "value": "present", "effect": "NoSchedule"},
        {"key": GPU, "operator": "Equal", "value": "present"},
    ],
)
def test_a_taint_that_is_tolerated_is_no_obstacle(toleration: dict[str, str]) -> None:
    assert _lacking(_node(taints=(TAINT,)), tolerations=[toleration]) is None


@pytest.mark.parametrize("toleration", [{"key": GPU}, {"key": "other", "operator": "Exists"}, {"effect": "NoExecute"}])
def test_a_taint_that_is_not_quite_tolerated_is_one(toleration: dict[str, str]) -> None:
    assert _lacking(_node(taints=(TAINT,)), tolerations=[toleration]) is not None


def test_nodes_of_another_pool_do_not_count() -> None:
    other = dataclasses.replace(_node(), labels={"pool": "b"})
    assert "no node with pool=a" in (_lacking(other) or "")


def test_where_nothing_is_known_of_the_nodes_nothing_is_said() -> None:
    world = World.with_spec()
    world.turn()
    assert world.observe().room is None
    assert lacking_room(world.observe()) is None


def test_a_lack_is_said_in_the_first_pass_that_makes_anything_and_the_arms_are_made_all_the_same() -> None:
    world = World.with_spec()
    world.turn()
    plan = reconcile(dataclasses.replace(world.observe(), room=()))
    ready = next(c for c in plan.status.conditions if c.type == "ArmsReady")
    assert (ready.status, ready.reason) == ("False", "NoRoom")
    assert plan.status.message.startswith("No room for 2 of 2 pods")
    assert plan.steps != (), "a cluster that adds nodes for pods that wait must see pods that wait"


def test_pods_that_have_a_node_need_no_room() -> None:
    world = World.with_spec()
    world.until("WarmingUp")
    assert lacking_room(dataclasses.replace(world.observe(), room=())) is None


def test_what_runs_side_by_side_adds_up_and_what_runs_before_is_only_its_largest() -> None:
    def container(**limits: Any) -> dict[str, Any]:
        return {"name": "c", "resources": {"limits": limits}}

    sidecar = container(cpu="100m") | {"restartPolicy": "Always"}
    spec = {
        "containers": [container(**{GPU: 1, "cpu": "1"}), container(cpu=2)],
        "initContainers": [sidecar, container(cpu="2500m", memory="1Mi")],
        "overhead": {"cpu": "10m"},
    }
    assert requests(spec) == {"cpu": 3110, "memory": 2**20, GPU: 1}
    assert devices({"spec": spec}) == {GPU: 1}


@given(st.lists(st.integers(0, 4), max_size=4))
def test_of_equal_pods_as_many_fit_as_accelerators_are_left(gpus: list[int]) -> None:
    nodes = [_node(f"n{i}", gpus=count) for i, count in enumerate(gpus)]
    left = max(0, 2 - sum(gpus))
    said = _lacking(*nodes)
    assert (said is None) is (left == 0)
    assert said is None or said.startswith(f"No room for {left} of 2 pods")
