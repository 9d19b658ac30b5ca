"""The arms: Deployments, Services and the network policy around them, made from the primary's pod template.

Pure. Nothing here ever names the primary's own objects as something to write, and no label of the template survives:
a pod of an arm that carried one could be picked by the primary's Service and answer customers.
"""

import copy
from typing import Any

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest, RunRef

_TOKEN_FIELDS = ("serviceAccountName", "serviceAccount", "automountServiceAccountToken")
_TOKEN_SOURCE = "serviceAccountToken"  # noqa: S105  a field's name
_REFUSED = {
    **dict.fromkeys(_TOKEN_FIELDS, "would give the candidate an API identity the baseline lacks"),
    "hostNetwork": "would take the candidate out of reach of its network policy",
    "hostPID": "would let the candidate see the processes of its node",
    "hostIPC": "would let the candidate share the memory of its node",
    "nodeName": "would put the candidate on a node past the scheduler",
}


def arm_deployment(
    run: RunRef,
    arm: str,
    source: Manifest,
    *,
    replicas: int,
    node_selector: dict[str, str] | None = None,
) -> Manifest:
    """Deployment of one arm, from the primary's Deployment `source`. Two arms differ in name and labels only.

    `node_selector` is laid over the template's own. Annotations of the template are not copied. The pods run without
    an API token, projected ones included, and under the namespace's default account.
    """
    spec: Manifest = copy.deepcopy(source["spec"]["template"]["spec"])
    for field in _TOKEN_FIELDS:
        spec.pop(field, None)
    spec["automountServiceAccountToken"] = False
    for volume in spec.get("volumes", []):
        if "projected" in volume:
            sources = volume["projected"].get("sources", [])
            volume["projected"]["sources"] = [source for source in sources if _TOKEN_SOURCE not in source]
    spec.pop("nodeName", None)
    if node_selector:
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **node_selector}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": names.metadata(run, arm),
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 0,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": names.selector(run, arm)},
            "template": {"metadata": {"labels": names.labels(run, arm)}, "spec": spec},
        },
    }


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


def arm_service(run: RunRef, arm: str, *, port: int, target_port: int | str, app_protocol: str = "") -> Manifest:
    """Service of one arm; its port is that of the primary's Service, so a named targetPort resolves the same."""
    entry: Manifest = {"name": "http", "port": port, "targetPort": target_port, "protocol": "TCP"}
    if app_protocol:
        entry["appProtocol"] = app_protocol
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": names.metadata(run, arm),
        "spec": {
            "selector": names.selector(run, arm),
            "ports": [entry],
        },
    }


def arm_network_policy(run: RunRef, arms: tuple[str, ...], *, egress: list[Manifest]) -> Manifest:
    """All arms: requests come from the mirror only, and nothing goes out but name look-ups and what the spec allows."""
    dns = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": names.metadata(run, names.ARMS),
        "spec": {
            "podSelector": {
                "matchLabels": {names.RUN_LABEL: run.name},
                "matchExpressions": [{"key": names.COMPONENT_LABEL, "operator": "In", "values": list(arms)}],
            },
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": names.selector(run, names.MIRROR)}}]}],
            "egress": [dns, *copy.deepcopy(egress)],
        },
    }


def patch_problem(
    patch: Any,
    source: Manifest,
    *,
    service_selector: dict[str, str],
) -> str | None:
    """What is wrong with the candidate's patch, as far as it shows without the API server: what, where, what to do."""
    where = "spec.arms.candidate.patch"
    if not isinstance(patch, dict):
        return f"{where} must be a mapping: a strategic-merge patch of a pod template."
    if isinstance(patch.get("spec"), dict) and "template" in patch["spec"]:
        return f"{where} is one of a Deployment, and only the pods may differ: write what is in its spec.template."
    unknown = sorted(set(patch) - {"metadata", "spec"})
    if unknown:
        return f"{where} has {unknown[0]!r}; a pod template has only metadata and spec: put the change there."
    meta, spec = patch.get("metadata", {}), patch.get("spec", {})
    if not isinstance(meta, dict) or not isinstance(spec, dict):
        return f"{where}.metadata and {where}.spec must be mappings."
    return (
        _label_problem(f"{where}.metadata.labels", meta.get("labels", {}), service_selector)
        or _directive_problem(f"{where}.metadata", meta)
        or _directive_problem(f"{where}.spec", spec)
        or _privilege_problem(f"{where}.spec", spec)
        or _container_problem(f"{where}.spec", "containers", spec, source)
        or _container_problem(f"{where}.spec", "initContainers", spec, source)
    )


def _label_problem(where: str, wanted: Any, service_selector: dict[str, str]) -> str | None:
    if not isinstance(wanted, dict):
        return f"{where} must be a mapping."
    ours = sorted({names.RUN_LABEL, names.COMPONENT_LABEL, names.MANAGED_BY_LABEL} & set(wanted))
    if ours:
        return f"{where} sets {ours[0]!r}, which the operator uses itself: leave it out."
    if service_selector and all(wanted.get(key) == value for key, value in service_selector.items()):
        pairs = ", ".join(f"{key}={value}" for key, value in sorted(service_selector.items()))
        return (
            f"{where} would make the primary's Service pick the candidate ({pairs}), which would then answer "
            "customers: use other labels."
        )
    return None


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
            return f"{where}.volumes[{index}] {_REFUSED[_TOKEN_FIELDS[0]]}: leave {_TOKEN_SOURCE} out."
    return None


def _projects_token(volume: Any) -> bool:
    projected = volume.get("projected") if isinstance(volume, dict) else None
    sources = projected.get("sources") if isinstance(projected, dict) else None
    return any(isinstance(source, dict) and _TOKEN_SOURCE in source for source in sources or [])


def _container_problem(where: str, kind: str, spec: Manifest, source: Manifest) -> str | None:
    patched = spec.get(kind, [])
    if not isinstance(patched, list):
        return f"{where}.{kind} must be a list."
    known = [c["name"] for c in source["spec"]["template"]["spec"].get(kind, [])]
    for index, container in enumerate(patched):
        if not isinstance(container, dict) or "name" not in container:
            if isinstance(container, dict) and "$patch" in container:
                continue
            return f"{where}.{kind}[{index}] needs a name: entries are matched with the template's by name."
        if container["name"] not in known:
            has = ", ".join(known) or "none"
            return f"{where}.{kind}[{index}] names {container['name']!r}, but the template's {kind} are: {has}."
    return None


def pod_spec_diff(baseline: Manifest, candidate: Manifest) -> list[str]:
    """Paths at which two Deployments' pods differ, names, labels and selectors apart; [] means the same pods.

    Entries of lists whose items have a name are matched by it: `spec.containers[engine].args`.
    """
    left, right = baseline["spec"], candidate["spec"]
    found = _differences("replicas", left.get("replicas"), right.get("replicas"))
    left_pods, right_pods = left["template"], right["template"]
    left_notes = left_pods.get("metadata", {}).get("annotations") or {}
    right_notes = right_pods.get("metadata", {}).get("annotations") or {}
    found += _differences("metadata.annotations", left_notes, right_notes)
    return sorted(found + _differences("spec", left_pods["spec"], right_pods["spec"]))


def _differences(path: str, left: Any, right: Any) -> list[str]:
    if left == right:
        return []
    if isinstance(left, dict) and isinstance(right, dict):
        keys = sorted(left.keys() | right.keys())
        return [p for key in keys for p in _differences(f"{path}.{key}", left.get(key), right.get(key))]
    mine, others = _by_name(left), _by_name(right)
    if mine is not None and others is not None:
        keys = sorted(mine.keys() | others.keys())
        found = [p for key in keys for p in _differences(f"{path}[{key}]", mine.get(key), others.get(key))]
        return found or [path]  # the same entries in another order
    return [path]


def _by_name(value: Any) -> dict[str, Manifest] | None:
    if not isinstance(value, list) or not all(isinstance(item, dict) and "name" in item for item in value):
        return None
    return {item["name"]: item for item in value}
