"""Several mirrors count for one run: all are told, all are read, and the death of one loses what it had in flight."""

from typing import Any

import pytest
from shadowrun_mirror.evidence import Amount
from shadowrun_operator.manifests import names
from shadowrun_operator.reconcile.reconcile import reconcile

from tests.unit.reconcile.world import World

pytestmark = pytest.mark.operator


def several(**changes: Any) -> World:
    """A run with three mirrors."""
    return World.with_spec(mirror={"replicas": 3}, **changes)


def received(world: World) -> int:
    """Copies that any mirror, living or dead, counted."""
    classes = (c for e in world.evidence.values() for n, w in e.windows.items() if n for c in w.classes.values())
    return sum((c.received for c in classes), Amount()).requests


def test_copying_waits_for_every_mirror() -> None:
    world = several()
    world.starting = False
    for _ in range(4):
        world.turn()
    world.starting = True
    world.pass_time(1)
    world.objects["Deployment", "x-mirror"]["status"]["readyReplicas"] = 2
    assert "mirror" in reconcile(world.observe()).status.message
    world.until("WarmingUp")


def test_every_mirror_counts_and_the_sum_is_the_run_s() -> None:
    world = several()
    world.until("Complete")
    assert len(world.evidence) == 3
    status = world.body["status"]
    assert status["funnel"]["requests"]["selected"] == received(world)
    assert not [name for kind, name in world.objects if kind != "ConfigMap" and name != "chat-shadowed"]


def test_every_mirror_is_told_and_one_that_did_not_hear_is_told_again() -> None:
    world = several()
    world.until("Running")
    world.turn()
    world.silent = {"mirror-1"}
    world.body["spec"]["sampling"]["rate"] = "10%"
    plan = world.turn()
    assert plan.push is not None
    assert len(plan.push.addresses) == 3
    plan = world.turn()
    assert plan.push is not None
    assert plan.push.addresses == ("mirror-1-0",)
    world.silent = set()
    world.turn()
    world.turn()
    assert {config.capture.sampling.threshold for config in world.configs.values()} == {900_000}
    assert reconcile(world.observe()).push is None


def test_each_mirror_has_its_part_of_the_limits() -> None:
    world = several(admission={"maxInFlight": 9, "queue": {"maxLength": 6, "maxWait": "1s"}})
    world.until("Running")
    assert {(c.admission.max_in_flight, c.admission.max_queued) for c in world.configs.values()} == {(3, 2)}


def test_a_mirror_that_dies_loses_what_it_had_in_flight_and_that_is_counted() -> None:
    world = several()
    world.until("Running")
    for _ in range(5):
        world.turn()
    world.kill("mirror-2")
    world.turn()
    world.turn()
    assert {"reason": "MirrorLost", "requests": 1}.items() <= world.body["status"]["dropped"][0].items()
    world.until("Complete")
    requests = world.body["status"]["funnel"]["requests"]
    assert requests["selected"] == received(world)
    assert len(world.evidence) == 4, "the pod in its place counts under an identity of its own"


def test_the_pod_in_its_place_begins_with_the_configuration_that_holds() -> None:
    world = several()
    world.until("Running")
    world.turn()
    assert world.mirror is not None
    world.kill("mirror-2")
    assert world.configs["uid-mirror-2-1"] == world.mirror


def test_a_mirror_that_cannot_be_read_at_the_end_takes_the_verdict_away() -> None:
    world = several()
    world.until("Running")
    world.silent = {"mirror-1"}
    world.until("Complete")
    assert (world.body["status"]["verdict"], world.body["status"]["reason"]) == ("Inconclusive", "EvidenceMissing")
    assert "mirror-1" in world.body["status"]["message"]


def test_what_only_several_mirrors_need_is_made_and_removed_with_them() -> None:
    world = several()
    world.until("Running")
    assert {("Service", "x-mirror-pods"), ("PodDisruptionBudget", "x-mirror")} <= world.objects.keys()
    assert world.objects["Deployment", "x-mirror"]["spec"]["replicas"] == 3
    alone = World.with_spec()
    alone.until("Running")
    assert not {("Service", "x-mirror-pods"), ("PodDisruptionBudget", "x-mirror")} & alone.objects.keys()
    for item in world.objects.values():
        if item["kind"] == "Service" and item["metadata"]["name"] == "x-mirror-pods":
            assert item["metadata"]["labels"][names.COMPONENT_LABEL] == names.MIRROR
