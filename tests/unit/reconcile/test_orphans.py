"""What a run that is gone left in the customers' path: the Service goes back first, Envoy later, the Service never."""

import pytest
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile.orphans import abandoned_steps, orphan_plans
from shadowrun_operator.reconcile.plan import Apply, Delete

from tests.unit.reconcile.world import World

pytestmark = pytest.mark.operator


def _path_objects(world: World) -> list[Manifest]:
    return [
        item
        for (kind, _), item in world.objects.items()
        if kind != "ConfigMap" and item["metadata"]["labels"][names.COMPONENT_LABEL] == names.CAPTURE
    ]


def test_a_gone_run_gives_its_service_back_before_anything_of_capture_is_removed() -> None:
    world = World.with_spec()
    world.until("WarmingUp")
    (first,) = orphan_plans(_path_objects(world), set(), world.now)
    (step,) = first.steps
    assert isinstance(step, Apply)
    assert step.manifest["spec"]["selector"] == {"app": "chat"}
    world.step(step)
    (second,) = orphan_plans(_path_objects(world), set(), world.now)
    removed = {(s.kind, s.name) for s in second.steps if isinstance(s, Delete)}
    assert removed == {("Deployment", "x-capture"), ("PodDisruptionBudget", "x-capture"), ("Secret", "x-capture")}
    for step in second.steps:
        world.step(step)
    assert orphan_plans(_path_objects(world), set(), world.now) == []
    assert ("Service", "chat-shadowed") in world.objects


def test_nothing_of_a_living_run_is_touched() -> None:
    world = World.with_spec()
    world.until("WarmingUp")
    assert orphan_plans(_path_objects(world), {("inference", "x")}, world.now) == []


def test_a_service_that_does_not_say_whom_it_stood_for_is_left_alone_with_its_envoy() -> None:
    world = World.with_spec()
    world.until("WarmingUp")
    del world.objects["Service", "chat-shadowed"]["metadata"]["annotations"]
    assert orphan_plans(_path_objects(world), set(), world.now) == []


def test_of_an_abandoned_run_arms_and_mirror_go_with_the_first_look_and_evidence_stays() -> None:
    world = World.with_spec()
    world.until("WarmingUp")
    evidence = {"kind": "ConfigMap", "metadata": {"name": "x-evidence", "labels": {names.COMPONENT_LABEL: "evidence"}}}
    world.objects["ConfigMap", "x-evidence"] = evidence
    for step in abandoned_steps(world.objects.values(), world.now):
        world.step(step)
    assert {name for _, name in world.objects} == {"chat-shadowed", "x-capture", "x-evidence"}
    assert world.objects["Service", "chat-shadowed"]["spec"]["selector"] == {"app": "chat"}
    for step in abandoned_steps(list(world.objects.values()), world.now):
        world.step(step)
    assert set(world.objects) == {("Service", "chat-shadowed"), ("ConfigMap", "x-evidence")}
