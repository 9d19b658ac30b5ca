"""The pod template that arms start from: where it comes from, and what in it two arms cannot have. Pure.

A source is a workload: a Deployment, a StatefulSet, a LeaderWorkerSet, or what stands in for a Deployment where the
spec says it itself.
"""

from typing import Any

from shadowrun_operator.api.arms import ArmTemplate
from shadowrun_operator.manifests import groups
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.shape import misshapen, without_null
from shadowrun_operator.manifests.workload import is_grouped, parts_of

INLINE = "PodTemplate"
"""Kind of the source that the spec writes out."""
_HOST = {
    "hostNetwork": "would take the arms out of reach of their network policy, and give two pods one port",
    "hostPID": "would let the arms see the processes of their nodes",
    "hostIPC": "would let the arms share the memory of their nodes",
}


def wanted_source(template: ArmTemplate) -> tuple[str, str] | None:
    """Kind and name of the object to read, or None where the spec needs none."""
    if template.deployment_ref is not None:
        return "Deployment", template.deployment_ref.name
    if template.stateful_set_ref is not None:
        return "StatefulSet", template.stateful_set_ref.name
    if template.leader_worker_set_ref is not None:
        return groups.KIND, template.leader_worker_set_ref.name
    return None


def inline_source(template: ArmTemplate) -> Manifest:
    """What the spec says itself; without a container where no pods are made."""
    given = without_null(template.pod_template) if template.pod_template is not None else {}
    return {"kind": INLINE, "metadata": {"name": "podTemplate"}, "spec": {"template": given}}


def named(source: Manifest) -> str:
    """A source for people."""
    if source["kind"] == INLINE:
        return "spec.arms.template.podTemplate"
    return f"{source['kind']} {source['metadata']['name']!r}"


def template_problem(source: Manifest) -> str | None:
    """Why arms cannot start from this source: what, where, what to do."""
    problem = _shape_problem(source["spec"]["template"]) if source["kind"] == INLINE else None
    if problem is None:
        problem = _claim_problem(source)
    if problem is not None:
        return f"{named(source)} {problem}"
    for part in parts_of(source):
        spec, other = part.template["spec"], _other(source)
        problem = _host_problem(spec, other) or _volume_problem(spec, other) or _device_problem(spec, other)
        if problem is not None:
            return f"{f'The {part.field} of ' if part.field else ''}{named(source)} {problem}"
    return None


def _shape_problem(template: Manifest) -> str | None:
    """What is wrong with a template that no API server has seen yet, as far as anything here rests on it."""
    unknown = sorted(set(template) - {"metadata", "spec"})
    if unknown:
        return f"has {unknown[0]!r}; a pod template has only metadata and spec."
    if not isinstance(template.get("metadata", {}), dict) or not isinstance(template.get("spec"), dict):
        return "needs a mapping spec, and metadata must be one too."
    found = misshapen(template["spec"])
    if found is not None:
        return f"needs {found}."
    return None if template["spec"].get("containers") else "has no container."


def _other(source: Manifest) -> str:
    """What to do instead of naming this source."""
    if is_grouped(source):
        return "name another LeaderWorkerSet, which may have no replicas,"
    return "write a template into spec.arms.template.podTemplate"


def _host_problem(spec: Manifest, other: str) -> str | None:
    found = next((field for field in _HOST if spec.get(field)), None)
    return None if found is None else f"has {found}, which {_HOST[found]}: {other} without it."


def _claim_problem(source: Manifest) -> str | None:
    """Claims of each pod's own are left out; a volume of that name in the template takes its place."""
    of = source["spec"].get("leaderWorkerTemplate") or source["spec"]
    claimed = [claim["metadata"]["name"] for claim in of.get("volumeClaimTemplates") or []]
    volumes = [{v["name"] for v in part.template["spec"].get("volumes") or []} for part in parts_of(source)]
    lacking = [name for name in claimed if not all(name in known for known in volumes)]
    if not lacking:
        return None
    return (
        f"gives each pod a claim from volumeClaimTemplates ({', '.join(lacking)}), and arms have none:"
        f" {_other(source)} with another volume of that name, such as an emptyDir or a claim that is only read."
    )


def _volume_problem(spec: Manifest, other: str) -> str | None:
    """Two arms and the primary would write into one volume."""
    shared = {v["name"]: v["persistentVolumeClaim"]["claimName"] for v in spec.get("volumes") or [] if is_written(v)}
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        mounts = [m for m in container.get("volumeMounts") or [] if not m.get("readOnly")]
        for mount in [*mounts, *(container.get("volumeDevices") or [])]:
            if mount.get("name") in shared:
                return (
                    f"lets container {container['name']!r} write to the claim {shared[mount['name']]!r}, and all arms"
                    f" and the primary would write to one volume: mount it with readOnly, or {other.removesuffix(',')}."
                )
    return None


def is_written(volume: Any) -> bool:
    """Whether a volume is a claim that its pods may write to."""
    claim = volume.get("persistentVolumeClaim") if isinstance(volume, dict) else None
    return isinstance(claim, dict) and not claim.get("readOnly")


def _device_problem(spec: Manifest, other: str) -> str | None:
    """A claim for devices by its name is one claim: every pod that names it gets the same devices."""
    for claim in spec.get("resourceClaims") or []:
        if claim.get("resourceClaimName"):
            return (
                f"names the ResourceClaim {claim['resourceClaimName']!r}, whose devices all arms and the primary would"
                f" share: {other} with a resourceClaimTemplateName."
            )
    return None
