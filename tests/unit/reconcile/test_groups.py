"""Arms that are LeaderWorkerSets: made of drafts, ready and removed as one, and counted pod by pod."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from shadowrun_operator.manifests import groups, names
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile.acceptance import violation
from shadowrun_operator.reconcile.endings.gpu_hours_reached import accelerators
from shadowrun_operator.reconcile.hardware import hardware_matches
from shadowrun_operator.reconcile.observation import NodeRoom
from shadowrun_operator.reconcile.room import lacking_room

from tests.unit.reconcile.world import World, decoded, leader_worker_set

pytestmark = pytest.mark.operator

GPU = "nvidia.com/gpu"
LEADER, WORKER = "leaderTemplate", "workerTemplate"


def _world(*, size: int = 2, leader: bool = False, candidate: Manifest | None = None, **arms: Any) -> World:
    world = World.with_spec(arms=arms)
    world.body["spec"]["arms"]["template"] = {"leaderWorkerSetRef": {"name": "big"}}
    if candidate is not None:
        world.body["spec"]["arms"]["candidate"] = candidate
    world.users = {key: item for key, item in world.users.items() if key[0] == "Service"}
    world.users[groups.KIND, "big"] = leader_worker_set(size=size, leader=leader)
    return world


def _group(world: World) -> Manifest:
    """Of the user's set."""
    found: Manifest = world.users[groups.KIND, "big"]["spec"]["leaderWorkerTemplate"]
    return found


def _set(world: World, arm: str) -> Manifest:
    return world.objects[groups.KIND, f"x-{arm}-set"]


def _asks(template: Manifest, gpus: int) -> None:
    template["spec"]["containers"][0]["resources"] = {"limits": {GPU: gpus}}


def _drafts(world: World) -> set[str]:
    ends = ("-leader", "-worker")
    return {name for kind, name in world.objects if kind == "Deployment" and name.endswith(ends)}


@pytest.mark.parametrize("leader", [False, True])
def test_a_life_of_groups_from_drafts_to_a_verdict_leaves_nothing(leader: bool) -> None:
    world = _world(leader=leader, control="Enabled", replicas=2)
    world.until("WarmingUp")
    assert {name for kind, name in world.objects if kind == groups.KIND} == {
        "x-baseline-set",
        "x-candidate-set",
        "x-control-set",
    }
    assert not {("Deployment", f"x-{arm}") for arm in ("baseline", "candidate", "control")} & world.objects.keys()
    for arm in ("baseline", "candidate"):
        selector = world.objects["Service", f"x-{arm}"]["spec"]["selector"]
        assert selector == {**names.selector(world.observe().ref, arm), **groups.LEADS}
    world.until("Complete")
    assert world.body["status"]["endReason"] == "DurationReached"
    assert {kind for kind, _ in world.objects} == {"ConfigMap", "Service"}
    assert {name for kind, name in world.objects if kind == "Service"} == {"chat-shadowed"}


def test_a_set_is_ready_by_its_replicas_where_its_status_says_no_generation() -> None:
    """As that of LWS before 0.9."""
    world = _world()
    world.until("Running")
    status = _set(world, "baseline")["status"]
    status["observedGeneration"] -= 1
    assert not world.observe().all_ready("baseline")
    del status["observedGeneration"]
    assert world.observe().all_ready("baseline")
    status["readyReplicas"] -= 1
    assert not world.observe().all_ready("baseline")


def test_the_candidate_s_pods_are_patched_before_there_is_any() -> None:
    world = _world(leader=True)
    world.turn()
    world.turn()
    assert _drafts(world) == {"x-candidate-leader", "x-candidate-worker"}
    assert not world.pods
    world.turn()
    assert _set(world, "candidate")["spec"]["leaderWorkerTemplate"][LEADER]["spec"]["containers"][0]["args"] == ["-x"]
    world.starting = False
    for _ in range(3):
        world.turn()
    assert _drafts(world) == set(), "drafts go when their set stands"
    assert {groups.KIND for arm in ("baseline", "candidate") if _set(world, arm)} == {groups.KIND}


def test_what_the_api_server_refuses_of_either_template_sends_the_run_back_without_a_trace() -> None:
    world = _world(leader=True)
    world.refuse = "spec.template.spec.containers[0].args: Invalid value"
    for _ in range(3):
        world.turn()
    assert (world.phase, world.record) == ("Pending", None)
    assert "API server refused" in world.body["status"]["message"]
    assert not {kind for kind, _ in world.objects} & {"Deployment", groups.KIND}


BOTH: Manifest = {
    "patch": {
        "metadata": {"labels": {"mesh": "on"}},
        "spec": {"containers": [{"name": "engine", "args": ["-x"]}, {"name": "worker", "image": "w:2"}]},
    }
}


def test_the_status_says_in_which_template_the_candidate_differs() -> None:
    world = _world(leader=True, candidate=BOTH)
    for key in (LEADER, WORKER):  # patched by the world's API server in containers alone
        _group(world)[key]["metadata"].pop("labels")
    world.until("Running")
    assert world.body["status"]["difference"] == [
        "leaderTemplate.spec.containers[engine].args",
        "workerTemplate.spec.containers[worker].image",
    ]


def _of(arm: str, field: str) -> Callable[[World], None]:
    def meddle(world: World) -> None:
        template = _set(world, arm)["spec"]["leaderWorkerTemplate"][field]
        template["spec"]["containers"].append({"name": "sidecar", "image": "s:1"})

    return meddle


def _resized(world: World) -> None:
    _set(world, "candidate")["spec"]["leaderWorkerTemplate"]["size"] = 5


@pytest.mark.parametrize(
    ("meddle", "said"),
    [
        (_of("candidate", WORKER), "candidate: workerTemplate.spec.containers[sidecar].image"),
        (_of("control", LEADER), "control: leaderTemplate.spec.containers[sidecar].image"),
        (_of("baseline", WORKER), "workerTemplate.spec.containers[sidecar].image"),
        (_resized, "candidate: size"),
    ],
)
def test_what_nobody_declared_of_a_group_ends_the_run(meddle: Callable[[World], None], said: str) -> None:
    world = _world(leader=True, control="Enabled")
    world.starting = False
    for _ in range(5):
        world.turn()
    meddle(world)
    world.starting = True
    world.until("Complete")
    status = world.body["status"]
    assert (status["endReason"], status["verdict"]) == ("ArmChanged", "Inconclusive")
    assert said in status["message"]


def test_a_set_that_is_replaced_while_copying_ends_the_run() -> None:
    world = _world()
    world.until("Running")
    _set(world, "candidate")["metadata"]["generation"] += 1
    world.until("Complete")
    assert world.body["status"]["endReason"] == "ArmChanged"
    assert "candidate was edited" in world.body["status"]["message"]


def test_a_change_that_changes_no_pod_of_any_template_is_refused() -> None:
    same = {"patch": {"spec": {"containers": [{"name": "worker", "image": "registry.example/engine:1"}]}}}
    world = _world(leader=True, candidate=same)
    for _ in range(6):
        world.turn()
    assert world.phase == "Pending"
    assert "changes nothing" in world.body["status"]["message"]


def test_accelerators_are_those_of_every_pod_of_every_group() -> None:
    world = _world(size=4, leader=True, replicas=3)
    _asks(_group(world)[LEADER], 1)
    _asks(_group(world)[WORKER], 8)
    world.until("WarmingUp")
    assert accelerators(world.observe()) == 2 * 3 * (1 + 3 * 8)


def test_hardware_is_that_of_the_nodes_of_workers_too() -> None:
    world = _world(size=2)
    world.until("Preparing")
    world.starting = False
    for _ in range(4):
        world.turn()
    seen = world.observe()
    assert hardware_matches(seen).matched is True
    (worker,) = (pod for pod in seen.pods_of("candidate") if pod.follows)
    elsewhere = tuple(dataclasses.replace(pod, node="node9") if pod is worker else pod for pod in seen.pods)
    labels = {**seen.node_labels, "node9": {"gpu": "L40S"}}
    assert hardware_matches(dataclasses.replace(seen, pods=elsewhere, node_labels=labels)).matched is False
    homeless = tuple(dataclasses.replace(pod, node="") if pod is worker else pod for pod in seen.pods)
    assert hardware_matches(dataclasses.replace(seen, pods=homeless)).matched is None


def test_groups_that_ask_for_other_devices_are_no_match() -> None:
    world = _world(leader=True, candidate={"patch": {"spec": {"containers": [{"name": "worker", "image": "w:2"}]}}})
    world.starting = False
    for _ in range(5):
        world.turn()
    _asks(_set(world, "candidate")["spec"]["leaderWorkerTemplate"][WORKER], 8)
    assert f"The candidate asks for {GPU}=8 a group" in hardware_matches(world.observe()).message


def _node(name: str, gpus: int, **labels: str) -> NodeRoom:
    free = {"cpu": 4000, "memory": 2**36, "pods": 100, GPU: gpus}
    return NodeRoom(name=name, labels={"pool": "a", **labels}, taints=(), free=free)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ((_node("a", 8), _node("b", 8), _node("c", 8), _node("d", 8)), ""),
        ((_node("a", 8), _node("b", 8), _node("c", 8)), "No room for 1 of 6 pods"),
        ((_node("a", 8),), f"No room for 3 of 6 pods of the arms on 1 nodes with pool=a: a pod asks for {GPU} 8"),
    ],
)
def test_room_is_counted_for_leaders_and_workers(nodes: tuple[NodeRoom, ...], said: str) -> None:
    """Two arms of one leader without and two workers with eight each."""
    world = _world(size=3, leader=True)
    _asks(_group(world)[WORKER], 8)
    world.turn()
    found = lacking_room(dataclasses.replace(world.observe(), room=nodes))
    assert (found or "").startswith(said)
    assert (found is None) is (said == "")


def test_pods_of_either_template_that_have_a_node_wait_no_more() -> None:
    world = _world(size=3, leader=True)
    _asks(_group(world)[WORKER], 8)
    world.starting = False
    for _ in range(5):
        world.turn()
    seen = world.observe()
    landed = tuple(dataclasses.replace(pod, node="" if pod.follows else pod.node) for pod in seen.pods)
    found = lacking_room(dataclasses.replace(seen, pods=landed, room=(_node("a", 8),)))
    assert found is not None
    assert found.startswith("No room for 3 of 4 pods"), "only workers wait"


def test_each_template_looks_at_the_nodes_that_it_may_go_to() -> None:
    world = _world(leader=True)
    _group(world)[LEADER]["spec"]["nodeSelector"] = {"kind": "cpu"}
    _group(world)[WORKER]["spec"]["nodeSelector"] = {"kind": "gpu"}
    _asks(_group(world)[WORKER], 1)
    world.turn()
    seen = world.observe()
    room = (_node("a", 0, kind="cpu"), _node("b", 2, kind="gpu"))
    assert lacking_room(dataclasses.replace(seen, room=room)) is None
    assert "kind=cpu" in (lacking_room(dataclasses.replace(seen, room=room[1:])) or "")


def _selected_by(**labels: str) -> Callable[[World], None]:
    """The leaders that have these labels."""

    def change(world: World) -> None:
        world.users["Service", "chat"]["spec"]["selector"] = labels | groups.LEADS

    return change


def _patched(patch: Manifest) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.body["spec"]["arms"]["candidate"] = {"patch": patch}

    return change


def _short(**fields: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.body["spec"]["arms"]["candidate"] = fields

    return change


def _both(*changes: Callable[[World], None]) -> Callable[[World], None]:
    def change(world: World) -> None:
        for one in changes:
            one(world)

    return change


def _claims(world: World) -> None:
    _group(world)["volumeClaimTemplates"] = [{"metadata": {"name": "cache"}}]
    _group(world)[LEADER]["spec"]["volumes"] = [{"name": "cache", "emptyDir": {}}]


def _worker_on_the_host(world: World) -> None:
    _group(world)[WORKER]["spec"]["hostNetwork"] = True


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [
        (_selected_by(), "PrimaryUnsuitable", "add leaderworkerset.sigs.k8s.io/name"),
        (
            _both(_selected_by(app="chat"), _patched({"metadata": {"labels": {"app": "chat"}}})),
            "PatchInvalid",
            "app=chat",
        ),
        (_patched({"metadata": {"labels": {groups.NAME_LABEL: "big"}}}), "PatchInvalid", "sets itself"),
        (_patched({"spec": {"containers": [{"name": "other"}]}}), "PatchInvalid", "are: engine, worker"),
        (_short(image="e:2"), "PatchInvalid", "'engine' of its leaderTemplate and 'worker' of its workerTemplate"),
        (_short(image="e:2", container="other"), "PatchInvalid", "are: engine, worker"),
        (_claims, "TemplateUnsuitable", "LeaderWorkerSet 'big' gives each pod a claim"),
        (_worker_on_the_host, "TemplateUnsuitable", "The workerTemplate of LeaderWorkerSet 'big' has hostNetwork"),
    ],
)
def test_what_groups_cannot_be_is_refused(change: Callable[[World], None], reason: str, said: str) -> None:
    world = _world(leader=True)
    change(world)
    problem = violation(world.observe())
    assert problem is not None
    assert (problem.reason, said in problem.message) == (reason, True), problem.message


def test_a_cluster_without_leader_worker_sets_says_so() -> None:
    world = _world()
    seen = dataclasses.replace(world.observe(), source=None, groups_served=False)
    problem = violation(seen)
    assert problem is not None
    assert problem.reason == "LeaderWorkerSetNotFound"
    assert "This cluster has no leaderworkerset.x-k8s.io/v1" in problem.message


@pytest.mark.parametrize(
    ("container", "difference"),
    [
        ("engine", ["leaderTemplate.spec.containers[engine].image"]),
        ("worker", ["workerTemplate.spec.containers[worker].image"]),
    ],
)
def test_shortcuts_are_of_the_container_that_is_named(container: str, difference: list[str]) -> None:
    world = _world(leader=True, candidate={"image": "e:2", "container": container})
    world.until("Running")
    assert world.body["status"]["difference"] == difference


def test_one_template_needs_no_container_named() -> None:
    world = _world(candidate={"image": "e:2"})
    world.until("Running")
    assert world.body["status"]["difference"] == ["workerTemplate.spec.containers[engine].image"]


def test_what_was_frozen_at_acceptance_outlives_the_user_s_set_and_the_operator() -> None:
    world = _world(leader=True)
    world.turn()
    assert world.record is not None
    assert decoded(world.record) == world.record
    frozen = copy.deepcopy(world.record.source)
    del world.users[groups.KIND, "big"]
    world.restart_operator()
    world.until("Running")
    assert world.record.source == frozen
