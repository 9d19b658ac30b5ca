"""Whether arms landed on equal nodes is read from the nodes, and a label that is missing is never a match."""

import dataclasses

import pytest
from shadowrun_operator.reconcile.hardware import accelerator, hardware_matches
from shadowrun_operator.reconcile.observation import Observation

from tests.unit.reconcile.world import World

pytestmark = pytest.mark.operator


def _landed(nodes: dict[str, str | None], placement: dict[str, str], **spec: object) -> Observation:
    world = World.with_spec(**spec)
    world.nodes, world.placement, world.starting = nodes, placement, False
    for _ in range(4):
        world.turn()
    return world.observe()


@pytest.mark.parametrize(
    ("nodes", "matched"),
    [
        ({"node1": "H200", "node2": "H200"}, True),
        ({"node1": "H200", "node2": "A100"}, False),
        ({"node1": "H200", "node2": None}, False),
        ({"node1": None, "node2": None}, False),
    ],
)
def test_arms_match_only_where_every_label_is_there_and_equal(nodes: dict[str, str | None], matched: bool) -> None:
    assert hardware_matches(_landed(nodes, {"candidate": "node2"})).matched is matched


def test_the_finding_names_label_nodes_and_values() -> None:
    message = hardware_matches(_landed({"node1": "H200", "node2": "A100"}, {"candidate": "node2"})).message
    assert "Label gpu differs" in message
    assert "'A100' (candidate on node2)" in message


def test_arms_without_a_node_are_waited_for() -> None:
    world = World.with_spec()
    world.turn()
    finding = hardware_matches(world.observe())
    assert finding.matched is None
    assert "baseline, candidate" in finding.message


def test_without_labels_to_match_nothing_is_compared() -> None:
    world = World.with_spec(hardware={"matchLabelKeys": []})
    assert hardware_matches(world.observe()).matched is True


def test_several_values_on_one_arm_are_all_said() -> None:
    seen = _landed({"node1": "H200", "node2": "H200"}, {"candidate": "node2"})
    seen = dataclasses.replace(seen, node_labels={"node1": {"gpu": "H200"}, "node2": {}})
    assert accelerator(seen, "baseline") == "gpu=H200"
    assert accelerator(seen, "candidate") == "gpu=(missing)"
