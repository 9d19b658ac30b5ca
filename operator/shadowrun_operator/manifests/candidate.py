"""What is under test: the change that makes an arm the candidate, and what is wrong with it as far as it shows here.

Pure. The change is one strategic-merge patch of our own candidate, made of the spec's patch and its shortcuts.
"""

import copy
from typing import Any

from shadowrun_operator.api.arms import Candidate
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.arms import TOKEN_FIELDS, TOKEN_SOURCE
from shadowrun_operator.manifests.groups import is_group_label
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.template import is_written
from shadowrun_operator.manifests.workload import containers_of, is_grouped, parts_of

_PATCH = "spec.arms.candidate.patch"
_REFUSED = {
    **dict.fromkeys(TOKEN_FIELDS, "would give the candidate an API identity the baseline lacks"),
    "hostNetwork": "would take the candidate out of reach of its network policy",
    "hostPID": "would let the candidate see the processes of its node",
    "hostIPC": "would let the candidate share the memory of its node",
    "nodeName": "would put the candidate on a node past the scheduler",
}

_OF_WORKLOADS = frozenset({"template", "leaderWorkerTemplate"})


def change_of(candidate: Candidate, source: Manifest) -> Manifest:
    """Patch and shortcuts as one strategic-merge patch of a pod template; call it only where nothing is wrong."""
    short = _shortcuts(candidate)
    if not short:
        return candidate.patch
    change = copy.deepcopy(candidate.patch)
    containers = change.setdefault("spec", {}).setdefault("containers", [])
    name = _serving(candidate, source)
    entry = _entry(containers, name)
    if entry is None:
        entry = {"name": name}
        containers.append(entry)
    env = [*entry.get("env", []), *short.pop("env", [])]
    entry |= short | ({"env": env} if env else {})
    return change


def candidate_patch(patch: Manifest, *, replicas: int, spec_hash: str) -> Manifest:
    """The one strategic-merge patch of our own, still empty candidate: the user's change and its replicas."""
    return {
        "metadata": {"annotations": {names.PATCHED_ANNOTATION: spec_hash}},
        "spec": {"replicas": replicas, "template": patch},
    }


def carries_patch(candidate: Manifest, spec_hash: str) -> bool:
    """Whether this candidate already has the patch of this spec."""
    annotations = candidate["metadata"].get("annotations", {})
    return bool(annotations.get(names.PATCHED_ANNOTATION) == spec_hash)


def change_problem(candidate: Candidate, source: Manifest, *, selectors: tuple[dict[str, str], ...]) -> str | None:
    """What is wrong with the candidate's change, as far as it shows without the API server: what, where, what to do.

    `selectors` are those of the Service and the workload of the primary, which must not pick the candidate.
    """
    problem = patch_problem(candidate.patch, source, selectors=selectors)
    return problem if problem is not None else _shortcut_problem(candidate, source)


def _shortcut_problem(candidate: Candidate, source: Manifest) -> str | None:
    """A field has one place: what a shortcut sets is not patched too."""
    short, name = _shortcuts(candidate), _serving(candidate, source)
    if not short:
        return None
    unnamed = _unnamed_problem(candidate, source)
    if unnamed is not None:
        return unnamed
    known = containers_of(source)
    if name not in known:
        return f"spec.arms.candidate.container is {name!r}, but the template's containers are: {', '.join(known)}."
    containers = (candidate.patch.get("spec") or {}).get("containers") or []
    entry = _entry(containers, name) or {}
    directive = next((key for key in entry if key.startswith("$")), None)
    if directive is not None or any("$patch" in c and "name" not in c for c in containers):
        return f"{_PATCH} has a directive for container {name!r}, whose image, args or env are set beside it: use one."
    both = sorted(entry.keys() & short.keys() - {"env"})
    if both:
        return f"spec.arms.candidate.{both[0]} and {_PATCH} both set {both[0]} of container {name!r}: use one of them."
    patched = entry.get("env", [])
    if not isinstance(patched, list) or any("name" not in e for e in patched if isinstance(e, dict)):
        return f"spec.arms.candidate.env needs {_PATCH} to list the env of container {name!r} by name, or not at all."
    twice = sorted({e.name for e in candidate.env} & {e["name"] for e in patched if isinstance(e, dict)})
    if twice:
        return f"spec.arms.candidate.env and {_PATCH} both set {twice[0]!r} of container {name!r}: use one of them."
    return None


def _shortcuts(candidate: Candidate) -> Manifest:
    """The fields of a container that shortcuts set; a variable loses whatever else the template took its value from."""
    env = [{"name": e.name, "value": e.value, "valueFrom": None} for e in candidate.env]
    fields = {
        "image": candidate.image,
        "args": None if candidate.args is None else list(candidate.args),
        "env": env or None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _serving(candidate: Candidate, source: Manifest) -> str:
    return candidate.container or containers_of(source)[0]


def _unnamed_problem(candidate: Candidate, source: Manifest) -> str | None:
    """Where leaders and workers begin with different containers, a change of the leader's alone would be a trap."""
    first = {str(part.template["spec"]["containers"][0]["name"]): part.field for part in parts_of(source)}
    if candidate.container is not None or len(first) == 1:
        return None
    said = " and ".join(f"{name!r} of its {field}" for name, field in first.items())
    return (
        f"spec.arms.candidate sets image, args or env without a container, which may be {said}: name one in container,"
        f" or both in {_PATCH}."
    )


def _entry(containers: list[Any], name: str) -> Manifest | None:
    return next((c for c in containers if isinstance(c, dict) and c.get("name") == name), None)


def patch_problem(patch: Any, source: Manifest, *, selectors: tuple[dict[str, str], ...]) -> str | None:
    """What is wrong with the patch alone."""
    where = _PATCH
    if not isinstance(patch, dict):
        return f"{where} must be a mapping: a strategic-merge patch of a pod template."
    if isinstance(patch.get("spec"), dict) and not _OF_WORKLOADS.isdisjoint(patch["spec"]):
        return f"{where} is one of a whole workload, and only the pods may differ: write what is in a pod template."
    unknown = sorted(set(patch) - {"metadata", "spec"})
    if unknown:
        return f"{where} has {unknown[0]!r}; a pod template has only metadata and spec: put the change there."
    meta, spec = patch.get("metadata", {}), patch.get("spec", {})
    if not isinstance(meta, dict) or not isinstance(spec, dict):
        return f"{where}.metadata and {where}.spec must be mappings."
    return (
        _label_problem(f"{where}.metadata.labels", meta.get("labels", {}), selectors)
        or _group_label_problem(f"{where}.metadata.labels", meta.get("labels", {}), source)
        or _directive_problem(f"{where}.metadata", meta)
        or _directive_problem(f"{where}.spec", spec)
        or _privilege_problem(f"{where}.spec", spec)
        or _container_problem(f"{where}.spec", "containers", spec, source)
        or _container_problem(f"{where}.spec", "initContainers", spec, source)
    )


def _label_problem(where: str, wanted: Any, selectors: tuple[dict[str, str], ...]) -> str | None:
    if not isinstance(wanted, dict):
        return f"{where} must be a mapping."
    ours = sorted({names.RUN_LABEL, names.COMPONENT_LABEL, names.MANAGED_BY_LABEL} & set(wanted))
    if ours:
        return f"{where} sets {ours[0]!r}, which the operator uses itself: leave it out."
    for selector in selectors:
        if selector and all(wanted.get(key) == value for key, value in selector.items()):
            pairs = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
            return (
                f"{where} would make the primary's Service or autoscaler take the candidate for one of its pods"
                f" ({pairs}): use other labels."
            )
    return None


def _group_label_problem(where: str, wanted: Manifest, source: Manifest) -> str | None:
    found = sorted(key for key in wanted if is_group_label(key))
    if not found or not is_grouped(source):
        return None
    return f"{where} sets {found[0]!r}, which the controller of LeaderWorkerSets sets itself: leave it out."


def _directive_problem(where: str, block: Manifest) -> str | None:
    """A directive here would replace what makes the candidate an arm: labels, accounts, what was taken out."""
    found = sorted(key for key in block if key.startswith("$"))
    if not found:
        return None
    return f"{where} has the directive {found[0]!r}, which would do away with the operator's own fields: leave it out."


def _privilege_problem(where: str, spec: Manifest) -> str | None:
    found = next((field for field in _REFUSED if field in spec), None)
    if found is not None:
        return f"{where}.{found} {_REFUSED[found]}: leave it out."
    volumes = spec.get("volumes") or []
    if not isinstance(volumes, list):
        return f"{where}.volumes must be a list."
    for index, volume in enumerate(volumes):
        if _projects_token(volume):
            return f"{where}.volumes[{index}] {_REFUSED[TOKEN_FIELDS[0]]}: leave {TOKEN_SOURCE} out."
        if is_written(volume):
            return f"{where}.volumes[{index}] is a claim that the candidate could write to: set its readOnly."
    return None


def _projects_token(volume: Any) -> bool:
    projected = volume.get("projected") if isinstance(volume, dict) else None
    sources = projected.get("sources") if isinstance(projected, dict) else None
    return any(isinstance(source, dict) and TOKEN_SOURCE in source for source in sources or [])


def _container_problem(where: str, kind: str, spec: Manifest, source: Manifest) -> str | None:
    patched = spec.get(kind, [])
    if not isinstance(patched, list):
        return f"{where}.{kind} must be a list."
    known = containers_of(source, kind)
    for index, container in enumerate(patched):
        if not isinstance(container, dict) or "name" not in container:
            if isinstance(container, dict) and "$patch" in container:
                continue
            return f"{where}.{kind}[{index}] needs a name: entries are matched with the template's by name."
        if container["name"] not in known:
            has = ", ".join(known) or "none"
            return f"{where}.{kind}[{index}] names {container['name']!r}, but the template's {kind} are: {has}."
    return None
