"""Read the pods of a run and the nodes they are on, in the words of the cluster. Decides nothing."""

import asyncio
from collections.abc import Sequence

from shadowrun_operator.api.run import ShadowRun
from shadowrun_operator.cluster.client import Cluster
from shadowrun_operator.manifests import groups, names
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile.observation import Pod, Restart

_ENDED = ("Succeeded", "Failed")
"""Phases of pods in which no process runs any more, and never will."""
_ON_ITS_WAY = ("", "ContainerCreating", "PodInitializing")
"""Reasons to wait that say nothing."""


async def pods_of(cluster: Cluster, run: ShadowRun) -> tuple[Pod, ...]:
    """Those in which processes run, or will."""
    found = await cluster.list("Pod", run.namespace, selector=f"{names.RUN_LABEL}={run.name}")
    return tuple(_pod(pod) for pod in found if pod.get("status", {}).get("phase") not in _ENDED)


async def nodes_named(cluster: Cluster, nodes: Sequence[str]) -> dict[str, Manifest]:
    """By name; one that is gone is empty."""
    found = await asyncio.gather(*(cluster.get("Node", "", node) for node in nodes))
    return {node: item or {} for node, item in zip(nodes, found, strict=True)}


def lost(node: Manifest) -> str:
    """Why nothing on a node can be reached any more, in the cluster's own words; "" where it is well."""
    if not node:
        return "is gone"
    conditions = {c["type"]: c for c in node.get("status", {}).get("conditions", [])}
    ready = conditions.get("Ready", {"status": "True"})
    if ready["status"] == "True":
        return ""
    return f"is not ready: {ready.get('reason', '')} ({ready.get('message', '')})"[:200]


def _pod(pod: Manifest) -> Pod:
    status, meta = pod.get("status", {}), pod["metadata"]
    leaving = "deletionTimestamp" in meta
    conditions = {c["type"]: c for c in status.get("conditions", [])}
    statuses = status.get("containerStatuses", [])
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        component=meta.get("labels", {}).get(names.COMPONENT_LABEL, ""),
        address=status.get("podIP", ""),
        node=pod["spec"].get("nodeName", ""),
        ready=conditions.get("Ready", {}).get("status") == "True" and not leaving,
        leaving=leaving,
        follows=meta.get("labels", {}).get(groups.INDEX_LABEL, "0") != "0",
        waiting=_waiting(conditions, [*status.get("initContainerStatuses", []), *statuses]),
        images=tuple(_image(s) for s in statuses if s.get("image")),
        restarts=tuple(_restart(s) for s in statuses if s.get("restartCount")),
    )


def _restart(status: Manifest) -> Restart:
    """What the last process ended with is in the last state, or still in the present one."""
    ended = status.get("lastState", {}).get("terminated") or status.get("state", {}).get("terminated") or {}
    why = f"{ended.get('reason', 'for a reason that is not known')} (exit code {ended.get('exitCode', 'not known')})"
    return Restart(container=status["name"], count=status.get("restartCount", 0), why=why)


def _image(status: Manifest) -> str:
    """The image with its digest; a runtime that imported it gives the digest alone."""
    digest = status.get("imageID", "")
    return f"{status['image']}@{digest}" if digest.startswith("sha256:") else digest or status["image"]


def _waiting(conditions: dict[str, Manifest], statuses: list[Manifest]) -> str:
    """Why a pod is not ready, in the cluster's own words."""
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason', 'Unscheduled')}: {scheduled.get('message', '')}"[:200]
    for container in statuses:
        if container.get("ready"):
            continue
        waiting, before = container.get("state", {}).get("waiting") or {}, _restart(container)
        ended = f"started anew {before.count} times, last after {before.why}" if before.count else ""
        reason = waiting.get("reason", "")
        now = "" if reason in _ON_ITS_WAY else f"{reason} {waiting.get('message', '')}".strip()
        if ended or now:
            return f"{container['name']}: {'; '.join(part for part in (ended, now) if part)}"[:200]
    return ""
