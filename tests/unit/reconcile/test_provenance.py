"""A report says what the verdict is about: what ran, where, by whose count, from which spec and seed."""

import dataclasses

import pytest
from shadowrun_operator.reconcile.known import facts_of
from shadowrun_operator.reconcile.observation import Observation

from tests.unit.reconcile.world import World

pytestmark = pytest.mark.operator

DIGEST = "sha256:" + "a" * 64


@pytest.fixture(scope="module")
def seen() -> Observation:
    """A run that counts, as real nodes show it: images by digest, nodes with labels of their drivers."""
    world = World.with_spec()
    world.until("Running")
    world.turn()
    found = world.observe()
    pods = tuple(dataclasses.replace(pod, images=(f"{pod.component}:1@{DIGEST}",)) for pod in found.pods)
    labels = {
        node: {"gpu": "H200", "zone": "a", "nvidia.com/cuda.driver-version.full": "580.65.06"}
        for node in found.node_labels
    }
    return dataclasses.replace(found, pods=pods, node_labels=labels)


def test_everything_that_decides_what_was_measured_is_named(seen: Observation) -> None:
    assert seen.record is not None
    facts = facts_of(seen, seen.record, 1.0)
    assert facts.versions == {
        "operator": "0.1.0",
        "kubernetes": "v1.35.1",
        "envoy": "1.40.0",
        "mirror": f"mirror:1@{DIGEST}",
        "capture": f"capture:1@{DIGEST}",
    }
    assert (facts.spec_hash, facts.attempt) == (seen.record.spec_hash, 1)
    assert len(facts.seed_fingerprint) == 8
    for arm in facts.arms:
        assert arm.images == (f"{arm.name}:1@{DIGEST}",)
        assert arm.nodes == ("node1",)
        assert arm.labels == {"gpu": "H200", "nvidia.com/cuda.driver-version.full": "580.65.06"}


def test_where_no_pod_is_left_to_be_asked_the_image_is_what_was_asked_for(seen: Observation) -> None:
    assert seen.record is not None
    facts = facts_of(dataclasses.replace(seen, pods=()), seen.record, 1.0)
    assert (facts.versions["mirror"], facts.versions["capture"]) == ("mirror:1", "capture:1")
