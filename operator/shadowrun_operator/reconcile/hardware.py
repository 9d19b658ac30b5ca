"""Whether the arms landed on equal nodes, judged from the nodes their pods run on and not from what was asked for.

Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shadowrun_operator.api.conditions import ConditionType, condition
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.requests import devices
from shadowrun_operator.manifests.workload import parts_of
from shadowrun_operator.reconcile.observation import Observation, Pod


@dataclass(frozen=True)
class HardwareFinding:
    """`matched` is None while pods of an arm have no node yet."""

    matched: bool | None
    message: str


def hardware_matches(observation: Observation) -> HardwareFinding:
    """Every arm's pods ask for the same devices, and all arms' nodes have the same value of every matched label.

    A label that is missing differs.
    """
    spec = observation.run.spec
    keys = spec.hardware.match_label_keys
    if not spec.made_arms:
        return HardwareFinding(None, "The arms stand behind URLs: what they run on is not verified.")
    unequal = _unequal_devices(observation)
    if unequal:
        return HardwareFinding(False, unequal)
    pods = observation.pods_of(*spec.arm_names)
    if not keys:
        return HardwareFinding(True, "hardware.matchLabelKeys names no label: nothing is compared.")
    landed = [pod for pod in pods if pod.node]
    waiting = [arm for arm in spec.arm_names if _scheduled(landed, arm) < observation.pods_per_arm]
    for key in keys:
        problem = _key_problem(key, landed, observation.node_labels)
        if problem:
            return HardwareFinding(False, problem)
    if waiting:
        return HardwareFinding(None, f"Waiting for the pods of {', '.join(waiting)} to be given a node.")
    return HardwareFinding(True, f"All arms agree: {accelerator(observation, names.BASELINE)}.")


def hardware_found(observation: Observation) -> HardwareFinding:
    """What is known: what is seen now, or where that says nothing (pods come and go), what the run found before."""
    finding = hardware_matches(observation)
    known = condition(observation.run.status.conditions, ConditionType.HARDWARE_MATCHED)
    if finding.matched is not None or known is None or known.status == "Unknown":
        return finding
    return HardwareFinding(known.status == "True", known.message)


def accelerator(observation: Observation, arm: str) -> str:
    """What the matched labels say about one arm's nodes: `key=value` pairs, several values where its pods differ."""
    nodes = {pod.node for pod in observation.pods_of(arm) if pod.node}
    said = []
    for key in observation.run.spec.hardware.match_label_keys:
        values = sorted({observation.node_labels.get(node, {}).get(key, "(missing)") for node in nodes})
        said.append(f"{key}={'|'.join(values)}")
    return ", ".join(said)


def _unequal_devices(seen: Observation) -> str | None:
    found = {arm: workload for arm in seen.run.spec.made_arms if (workload := seen.arm(arm)) is not None}
    asked = {arm: _devices_each(workload) for arm, workload in found.items()}
    baseline, each = asked.get(names.BASELINE), "group" if seen.grouped else "pod"
    for arm, wanted in asked.items():
        if baseline is not None and wanted != baseline:
            return f"The {arm} asks for {_amounts(wanted)} a {each}, the baseline for {_amounts(baseline)}."
    return None


def _devices_each(workload: Manifest) -> dict[str, int]:
    """What a replica asks for."""
    asked: dict[str, int] = {}
    for part in parts_of(workload):
        for key, amount in devices(part.template).items():
            asked[key] = asked.get(key, 0) + part.count * amount
    return asked


def _amounts(asked: Mapping[str, int]) -> str:
    return ", ".join(f"{key}={amount}" for key, amount in sorted(asked.items())) or "no device"


def _scheduled(landed: list[Pod], arm: str) -> int:
    return sum(1 for pod in landed if pod.component == arm)


def _key_problem(key: str, pods: list[Pod], node_labels: Mapping[str, Mapping[str, str]]) -> str | None:
    values: dict[str, str] = {}
    for pod in pods:
        value = node_labels.get(pod.node, {}).get(key)
        if value is None:
            return f"Node {pod.node} of {pod.component} has no label {key}: it cannot be shown to match."
        values.setdefault(value, f"{pod.component} on {pod.node}")
    if len(values) > 1:
        said = "; ".join(f"{value!r} ({where})" for value, where in sorted(values.items()))
        return f"Label {key} differs: {said}."
    return None
