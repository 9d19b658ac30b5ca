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


def _with_devices(policy: str, **asked: int) -> World:
    world = World.with_spec(hardware={"policy": policy})
    limits = {"nvidia.com/gpu": 1, "memory": "1Gi"}
    engine = world.users["Deployment", "chat"]["spec"]["template"]["spec"]["containers"][0]
    engine["resources"] = {"limits": limits}
    changed = {f"nvidia.com/{key}": amount for key, amount in asked.items()}
    world.body["spec"]["arms"]["candidate"]["patch"]["spec"]["containers"][0]["resources"] = {"limits": changed}
    return world


def test_arms_that_ask_for_unlike_devices_do_not_match() -> None:
    world = _with_devices("Require", gpu=2)
    world.until("Complete")
    status = world.body["status"]
    assert (status["endReason"], status["verdict"]) == ("HardwareMismatch", "Inconclusive")
    assert "candidate asks for nvidia.com/gpu=2 a pod, the baseline for nvidia.com/gpu=1" in status["message"]
    assert world.longest_copying == 0.0, "before the clock starts"


def test_unlike_devices_are_only_reported_where_the_spec_says_so() -> None:
    world = _with_devices("Report", gpu=2)
    world.until("Running")
    found = next(c for c in world.body["status"]["conditions"] if c["type"] == "HardwareMatched")
    assert (found["status"], found["reason"]) == ("False", "Mismatch")


def test_equal_devices_match_whatever_else_is_asked_for() -> None:
    world = _with_devices("Require", gpu=1)
    world.until("Running")


@pytest.mark.parametrize(("product", "phase"), [("A100", "Finishing"), ("H200", "Running")])
def test_nodes_are_looked_at_again_when_a_pod_has_moved(product: str, phase: str) -> None:
    world = World.with_spec()
    world.nodes["node2"] = product
    world.until("Running")
    world.placement["candidate"] = "node2"
    world.kill("candidate-0")
    world.turn()
    assert world.phase == phase
    assert (world.body["status"].get("endReason") == "HardwareMismatch") is (phase == "Finishing")


def test_every_label_of_a_list_counts() -> None:
    world = World.with_spec()
    world.placement = {"candidate": "node2"}
    world.until("WarmingUp")
    world.body["spec"]["hardware"]["matchLabelKeys"] = ["gpu", "zone"]
    seen = world.observe()
    labels = {"node1": {"gpu": "H200", "zone": "a"}, "node2": {"gpu": "H200", "zone": "b"}}
    finding = hardware_matches(dataclasses.replace(seen, node_labels=labels))
    assert finding.matched is False
    assert "Label zone differs" in finding.message


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
