"""Whether the arms' pods would find a node now, told before the scheduler is asked. Pure.

What is not looked at (affinity, spreading, devices by claims) can only make room seem larger: what is said to fit may
not, and what is said not to fit does not, unless pods of lower priority are evicted or nodes are added.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.requests import MILLI, requests
from shadowrun_operator.manifests.workload import WORKER, Part, parts_of
from shadowrun_operator.reconcile.observation import NodeRoom, Observation

_KEPT_AWAY = ("NoSchedule", "NoExecute")
_POD = {"pods": 1}


def pool_of(seen_selector: Mapping[str, str], pod_spec: Manifest) -> dict[str, str]:
    """Labels of the nodes that the arms' pods may go to: the template's selector, and the spec's over it.

    A selector that is none (of a record of an operator that did not look) is the API server's to refuse.
    """
    given = pod_spec.get("nodeSelector")
    return {**(given if isinstance(given, dict) else {}), **seen_selector}


def common_pool(seen_selector: Mapping[str, str], source: Manifest) -> dict[str, str]:
    """Labels that the nodes of all pods of a workload have: one look at these nodes tells of each of its parts."""
    first, *others = (pool_of(seen_selector, part.template.get("spec", {})) for part in parts_of(source))
    return {key: value for key, value in first.items() if all(pool.get(key) == value for pool in others)}


def lacking_room(seen: Observation) -> str | None:
    """A sentence with the numbers where pods that have no node yet fit on none; None where all do, or nobody knows."""
    waiting = _waiting(seen)
    if seen.room is None or seen.record is None or not waiting:
        return None
    free = {node.name: dict(node.free) for node in seen.room}
    left: list[Manifest] = []
    for pod_spec in waiting:
        wanted = {**requests(pod_spec), **_POD}
        fitting = [n.name for n in _taking(seen, pod_spec) if _fits(wanted, free[n.name])]
        if fitting:
            free[fitting[0]] = {key: amount - wanted.get(key, 0) for key, amount in free[fitting[0]].items()}
        else:
            left.append(pod_spec)
    return None if not left else _sentence(seen, left, of=len(waiting), free=free)


def _sentence(seen: Observation, left: list[Manifest], *, of: int, free: Mapping[str, Mapping[str, int]]) -> str:
    """With the numbers of the last pod that found no place."""
    asked = {**requests(left[-1]), **_POD}
    taking = [free[n.name] for n in _taking(seen, left[-1])]
    selector = pool_of(seen.run.spec.hardware.node_selector, left[-1])
    where = ", ".join(f"{key}={value}" for key, value in sorted(selector.items())) or "any label"
    if not taking:
        return f"No room for {len(left)} of {of} pods of the arms: no node with {where} takes them."
    return (
        f"No room for {len(left)} of {of} pods of the arms on {len(taking)} nodes with {where}:"
        f" {_short(asked, taking)}. They wait for it."
    )


def _taking(seen: Observation, pod_spec: Manifest) -> list[NodeRoom]:
    """The nodes that would take such a pod if they had the room."""
    selector = pool_of(seen.run.spec.hardware.node_selector, pod_spec)
    labelled = (node for node in seen.room or () if selector.items() <= node.labels.items())
    return [node for node in labelled if _tolerated(node, pod_spec)]


def _waiting(seen: Observation) -> list[Manifest]:
    """Specs of the pods that have no node yet, made or not."""
    if seen.record is None:
        return []
    found: list[Manifest] = []
    for arm in seen.run.spec.made_arms:
        parts = parts_of(seen.arm(arm) or seen.record.source)
        for part in parts:
            wanted = part.count * seen.run.spec.arms.replicas
            found += [part.template.get("spec", {})] * max(0, wanted - _landed(seen, arm, part, alone=len(parts) == 1))
    return found


def _landed(seen: Observation, arm: str, part: Part, *, alone: bool) -> int:
    """How many pods of a part have a node; `alone`: all pods of the arm are of this part."""
    follows = part.field == WORKER
    return sum(1 for pod in seen.pods_of(arm) if pod.node and (alone or pod.follows is follows))


def _fits(wanted: Mapping[str, int], free: Mapping[str, int]) -> bool:
    return all(free.get(key, 0) >= amount for key, amount in wanted.items())


def _tolerated(node: NodeRoom, pod_spec: Manifest) -> bool:
    tolerations = pod_spec.get("tolerations") or []
    return all(
        any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in node.taints
        if taint.get("effect") in _KEPT_AWAY
    )


def _tolerates(toleration: Mapping[str, Any], taint: Manifest) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and (toleration.get("value") or "") == (taint.get("value") or "")


def _short(asked: Mapping[str, int], nodes: Sequence[Mapping[str, int]]) -> str:
    """What a pod asks for that no node has, or all it asks for where only the mixture is missing."""
    most = {key: max(free.get(key, 0) for free in nodes) for key in asked}
    short = [key for key in sorted(asked) if most[key] < asked[key]] or sorted(asked.keys() - _POD.keys())
    return ", ".join(
        f"a pod asks for {key} {_amount(key, asked[key])}, the freest node has {_amount(key, most[key])}"
        for key in short
    )


def _amount(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount / MILLI:g}"
    return f"{amount / 2**30:.1f}Gi" if resource in ("memory", "ephemeral-storage") else str(amount)
