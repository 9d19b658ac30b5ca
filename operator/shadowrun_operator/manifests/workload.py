"""Which pods a workload has: those of one pod template, or the groups of leader and workers of a LeaderWorkerSet. Pure.

A workload is a Deployment, what has its shape (`template`), or a LeaderWorkerSet; the primary's or an arm.
"""

from dataclasses import dataclass

from shadowrun_operator.manifests.names import Manifest

LEADER = "leaderTemplate"
WORKER = "workerTemplate"
_LISTS = ("containers", "initContainers")


@dataclass(frozen=True)
class Part:
    """Pods of one template. `field` is where a LeaderWorkerSet has it, "" in any other workload."""

    field: str
    template: Manifest
    count: int  # of these pods in each replica


def is_grouped(workload: Manifest) -> bool:
    """Whether its replicas are groups of pods that serve together."""
    return "leaderWorkerTemplate" in workload["spec"]


def parts_of(workload: Manifest) -> tuple[Part, ...]:
    """The pods that requests go to are of the first. Without a template of their own leaders are as their workers."""
    if not is_grouped(workload):
        return (Part("", workload["spec"]["template"], 1),)
    group = workload["spec"]["leaderWorkerTemplate"]
    leader, size = group.get(LEADER), group.get("size", 1)
    if leader is None:
        return (Part(WORKER, group[WORKER], size),)
    return Part(LEADER, leader, 1), Part(WORKER, group[WORKER], size - 1)


def serving_template(workload: Manifest) -> Manifest:
    """The template of the pods that requests go to."""
    return parts_of(workload)[0].template


def pods_each(workload: Manifest) -> int:
    """How many pods a replica has."""
    return sum(part.count for part in parts_of(workload))


def containers_of(workload: Manifest, kind: str = "containers") -> list[str]:
    """The names of its containers, each once, those of the pods that serve first."""
    found = (c["name"] for part in parts_of(workload) for c in part.template["spec"].get(kind) or [])
    return list(dict.fromkeys(found))


def beside_templates(workload: Manifest) -> Manifest:
    """What else its spec says of its pods: how many there are, and how those of a group stand together."""
    spec = workload["spec"]
    if not is_grouped(workload):
        return {"replicas": spec.get("replicas")}
    group = {key: value for key, value in spec["leaderWorkerTemplate"].items() if key not in (LEADER, WORKER)}
    return {key: value for key, value in spec.items() if key != "leaderWorkerTemplate"} | group


def part_of_change(change: Manifest, part: Part, workload: Manifest) -> Manifest:
    """A patch of a workload's pods as far as it is about those of one part.

    Entries for containers that only the pods of another part have are left out.
    """
    spec = change.get("spec")
    if len(parts_of(workload)) == 1 or not isinstance(spec, dict):
        return change
    kept = {key: value for key, value in spec.items() if key not in _LISTS}
    for kind in _LISTS:
        own = {container["name"] for container in part.template["spec"].get(kind) or []}
        entries = [entry for entry in spec.get(kind, []) if entry.get("name", "") in {*own, ""}]
        kept |= {kind: entries} if entries else {}
    return {**change, "spec": kept}
