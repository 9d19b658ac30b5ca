"""How two arms differ: paths into their pods' templates, and which of them a patch accounts for. Pure.

Entries of lists that the API server merges are matched by its keys: `spec.containers[engine].args`. Names, selectors
and our own labels differ between any two arms and are left out. Paths of a LeaderWorkerSet begin with the template.
"""

from typing import Any

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.placement import unpinned
from shadowrun_operator.manifests.workload import beside_templates, part_of_change, parts_of

_KEYS = {
    **dict.fromkeys(
        ("containers", "initContainers", "ephemeralContainers", "volumes", "env", "imagePullSecrets", "resourceClaims"),
        "name",
    ),
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "hostAliases": "ip",
}
"""Lists that are merged, and by which field of their entries; any other list is one value."""
_OURS = (names.RUN_LABEL, names.COMPONENT_LABEL, names.MANAGED_BY_LABEL)


def pod_spec_diff(baseline: Manifest, candidate: Manifest) -> list[str]:
    """Paths at which the pods of two workloads or their number differ, for people; [] means the same pods."""
    return _all(baseline, candidate, exact=False)


def beyond(baseline: Manifest, candidate: Manifest, patch: Manifest) -> list[str]:
    """Paths at which two workloads differ and the patch of the second says nothing: somebody else changed them.

    Defaults that the API server adds below what the patch puts in belong to the patch.
    """
    declared = [
        path
        for part in parts_of(baseline)
        for path in _declared(part.field, part_of_change(patch, part, baseline), _cleared(part.template))
    ]
    return [path for path in _all(baseline, candidate, exact=True) if not any(_covers(d, path) for d in declared)]


def _covers(declared: str, path: str) -> bool:
    """Whether a difference lies at or below a declared path, or is the order of a list that the patch has a part in."""
    return path == declared or path.startswith((f"{declared}.", f"{declared}[")) or declared.startswith(f"{path}[")


def _all(left: Manifest, right: Manifest, *, exact: bool) -> list[str]:
    mine, others = _compared(left), _compared(right)
    keys = sorted(mine.keys() | others.keys())
    return sorted(p for key in keys for p in _differences(key, mine.get(key), others.get(key), exact))


def _compared(workload: Manifest) -> Manifest:
    """What may differ, by the beginnings of its paths."""
    found = beside_templates(workload)
    for part in parts_of(workload):
        cleared = _cleared(part.template)
        found |= {part.field: cleared} if part.field else cleared
    return found


def _cleared(template: Manifest) -> Manifest:
    """The pod template without what differs between any two arms, or has to where they change places."""
    meta = template.get("metadata", {})
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key not in _OURS}
    annotations = meta.get("annotations") or {}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": unpinned(template["spec"])}


def _differences(path: str, left: Any, right: Any, exact: bool) -> list[str]:
    """`exact` follows what only one side has down to its single values; without it the topmost path is enough."""
    if left == right:
        return []
    if exact:
        left, right = _or_empty(left, right), _or_empty(right, left)
    if isinstance(left, dict) and isinstance(right, dict):
        keys = sorted(left.keys() | right.keys())
        found = [p for key in keys for p in _differences(f"{path}.{key}", left.get(key), right.get(key), exact)]
        return found or [path]
    mine, others = _by_key(path, left), _by_key(path, right)
    if mine is not None and others is not None:
        keys = sorted(mine.keys() | others.keys())
        found = [p for key in keys for p in _differences(f"{path}[{key}]", mine.get(key), others.get(key), exact)]
        return found or [path]  # the same entries in another order
    return [path]


def _or_empty(value: Any, other: Any) -> Any:
    return type(other)() if value is None and isinstance(other, dict | list) else value


def _by_key(path: str, value: Any) -> dict[str, Any] | None:
    """Entries of a merged list by their key; None for any other value, and where a key is missing or not alone."""
    key = _KEYS.get(path.rsplit(".", 1)[-1])
    if key is None or not isinstance(value, list) or not all(isinstance(item, dict) and key in item for item in value):
        return None
    found = {str(item[key]): item for item in value}
    return found if len(found) == len(value) else None


def _declared(path: str, patch: Any, current: Any) -> list[str]:
    """What a strategic-merge patch may change: the topmost paths it names that are not there yet, or are values."""
    if isinstance(patch, dict) and isinstance(current, dict) and not any(key.startswith("$") for key in patch):
        below = f"{path}." if path else ""
        return [p for key in sorted(patch) for p in _declared(f"{below}{key}", patch[key], current.get(key))]
    entries, known = _by_key(path, patch), _by_key(path, current if current is not None else [])
    if entries is None or known is None:
        return [path]
    return [p for key, item in entries.items() for p in _declared(f"{path}[{key}]", item, known.get(key))]
