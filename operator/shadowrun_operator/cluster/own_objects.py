"""Find the objects that carry a run's labels, and tell them from those that only have their names. Decides nothing."""

import asyncio
from collections.abc import Iterable

from shadowrun_operator.api.run import ShadowRun
from shadowrun_operator.cluster.client import Cluster
from shadowrun_operator.cluster.memory import Memory
from shadowrun_operator.manifests import groups, names
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.workload import LEADER, WORKER
from shadowrun_operator.reconcile.record import RunRecord

OWN_KINDS = ("ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Secret", "Service")
_WITHOUT_OWNER = (names.CAPTURE, names.COPIES, names.ROUTED)


async def labelled(cluster: Cluster, run: ShadowRun) -> list[Manifest]:
    """All but ConfigMaps."""
    kinds = (kind for kind in OWN_KINDS if kind != "ConfigMap")
    lists = await asyncio.gather(*(cluster.list(kind, run.namespace, selector=_selector(run)) for kind in kinds))
    return [item for found in lists for item in found]


async def sets_of(cluster: Cluster, run: ShadowRun, record: RunRecord | None) -> list[Manifest] | None:
    """The arms' LeaderWorkerSets, where the run has such arms; None where the cluster has none at all."""
    if not run.spec.arms.template.grouped and (record is None or not record.group):
        return []
    return await cluster.list_if_served(groups.KIND, run.namespace, selector=_selector(run))


async def config_maps(cluster: Cluster, run: ShadowRun, memory: Memory, *, evidence_only: bool) -> list[Manifest]:
    """Evidence and report may be large and change seldom: each is read once in each version.

    `evidence_only` asks for the evidence by its name, which costs an API server less than to look for labels.
    """
    if evidence_only:
        name = names.object_name(run.name, names.EVIDENCE)
        one = await cluster.get("ConfigMap", run.namespace, name, bare=True)
        bare = [one] if one is not None and _is_labelled(one, run) else []
    else:
        bare = await cluster.list("ConfigMap", run.namespace, selector=_selector(run), bare=True)
    read = await asyncio.gather(*(_config_map(cluster, item["metadata"], memory) for item in bare))
    memory.config_maps = {item["metadata"]["name"]: item for item in read if item is not None}
    return list(memory.config_maps.values())


async def _config_map(cluster: Cluster, meta: Manifest, memory: Memory) -> Manifest | None:
    known = memory.config_maps.get(meta["name"])
    if known is not None and known["metadata"]["resourceVersion"] == meta["resourceVersion"]:
        return known
    return await cluster.get("ConfigMap", meta["namespace"], meta["name"])


def forget_books(memory: Memory, run: ShadowRun) -> None:
    """What was read back is in `books`."""
    name = names.object_name(run.name, names.EVIDENCE)
    if name in memory.config_maps:
        memory.config_maps[name] = {**memory.config_maps[name], "binaryData": {}}


def sorted_out(found: Iterable[Manifest], run: ShadowRun) -> tuple[dict[tuple[str, str], Manifest], tuple[str, ...]]:
    """Ours, and what is on its way out or belongs to an earlier run of the same name.

    Ours says so by its owner; only objects of the customers' path have none, and the Service for a proxy's copies.
    """
    ours: dict[tuple[str, str], Manifest] = {}
    leftovers = []
    for item in found:
        meta = item["metadata"]
        owners = {owner["uid"] for owner in meta.get("ownerReferences", [])}
        in_path = not owners and meta["labels"].get(names.COMPONENT_LABEL) in _WITHOUT_OWNER
        if "deletionTimestamp" in meta or not (in_path or run.uid in owners):
            leftovers.append(f"{item['kind']} '{meta['name']}'")
        else:
            ours[item["kind"], meta["name"]] = item
    return ours, tuple(sorted(leftovers))


async def foreign(cluster: Cluster, run: ShadowRun, ours: dict[tuple[str, str], Manifest]) -> tuple[str, ...]:
    """Objects without our labels under names that the run needs, or that the controller of its arms would take."""
    capture = (names.CAPTURE,) if run.spec.capture.proxy is not None else ()
    parts = (*capture, names.MIRROR, *run.spec.made_arms)
    needed = [("Deployment", part) for part in parts]
    needed += [("Service", part) for part in parts if part != names.CAPTURE]
    needed += [("Secret", part) for part in (names.MIRROR, *capture)]
    needed += [("Service", names.MIRROR_PODS)] if run.spec.mirror.replicas > 1 else []
    needed += [("ConfigMap", names.EVIDENCE), ("ConfigMap", names.REPORT)]
    if run.spec.arms.template.grouped:
        arms = run.spec.made_arms
        needed += [(kind, groups.set_of(arm)) for arm in arms for kind in (groups.KIND, "StatefulSet", "Service")]
        needed += [("Deployment", groups.draft_of(arm, field)) for arm in arms for field in (LEADER, WORKER)]
    wanted = [(kind, names.object_name(run.name, part)) for kind, part in needed]
    missing = [key for key in wanted if key not in ours]
    found = await asyncio.gather(*(cluster.get(kind, run.namespace, name, bare=True) for kind, name in missing))
    return tuple(
        f"{kind} '{name}'"
        for (kind, name), item in zip(missing, found, strict=True)
        if item is not None and not _is_of(item, run)
    )


def _is_of(item: Manifest, run: ShadowRun) -> bool:
    """Whether a run of this name made it, or the controller of a LeaderWorkerSet did, whose name then tells."""
    owners = item["metadata"].get("ownerReferences", [])
    made_for = any(owner["kind"] == groups.KIND and owner["name"] == item["metadata"]["name"] for owner in owners)
    return made_for or item["metadata"].get("labels", {}).get(names.RUN_LABEL) == run.name


def _is_labelled(item: Manifest, run: ShadowRun) -> bool:
    """Whether `_selector` picks it."""
    wanted = {names.RUN_LABEL: run.name, names.MANAGED_BY_LABEL: names.MANAGED_BY}
    return bool(wanted.items() <= item["metadata"].get("labels", {}).items())


def _selector(run: ShadowRun) -> str:
    return f"{names.RUN_LABEL}={run.name},{names.MANAGED_BY_LABEL}={names.MANAGED_BY}"
