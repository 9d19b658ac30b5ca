"""Where pods of arms that change places may stand: each on a node of its own, and in the second half on named ones.

Pure. Both are said in the pods' affinity, beside whatever the template says there. A pin to nodes differs between any
two arms by its purpose, so what compares arms leaves it out (`unpinned`).
"""

import copy
from collections.abc import Sequence
from typing import Any

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest, RunRef

_HOST = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NAME = "metadata.name"


def apart(affinity: Manifest | None, run: RunRef, arms: Sequence[str]) -> Manifest:
    """The affinity of a pod that shares its node with no pod of these arms of the run."""
    found = copy.deepcopy(affinity) or {}
    away = found.setdefault("podAntiAffinity", {})
    selector = {
        "matchLabels": {names.RUN_LABEL: run.name},
        "matchExpressions": [{"key": names.COMPONENT_LABEL, "operator": "In", "values": list(arms)}],
    }
    away[_REQUIRED] = [*(away.get(_REQUIRED) or []), {"labelSelector": selector, "topologyKey": _HOST}]
    return found


def pinned(affinity: Manifest | None, nodes: Sequence[str]) -> Manifest:
    """The affinity of a pod that goes to one of these nodes. Terms are alternatives, so each is there for each node."""
    found = copy.deepcopy(affinity) or {}
    required = found.setdefault("nodeAffinity", {}).setdefault(_REQUIRED, {})
    required["nodeSelectorTerms"] = [
        {**term, "matchFields": [*term.get("matchFields", []), {"key": _NAME, "operator": "In", "values": [node]}]}
        for term in required.get("nodeSelectorTerms") or [{}]
        for node in nodes
    ]
    return found


def pinned_to(pod_spec: Manifest) -> frozenset[str]:
    """The nodes that pods are pinned to; none where they are not."""
    fields = (field for term in _terms(pod_spec) for field in term.get("matchFields", []) if field["key"] == _NAME)
    return frozenset(node for field in fields for node in field["values"])


def unpinned(pod_spec: Manifest) -> Manifest:
    """The same pods without a pin; the very same object where there is none."""
    if not pinned_to(pod_spec):
        return pod_spec
    found = copy.deepcopy(pod_spec)
    terms: list[Manifest] = []
    for term in _terms(found):
        fields = [field for field in term.pop("matchFields", []) if field["key"] != _NAME]
        left = {**term, **({"matchFields": fields} if fields else {})}
        if left and left not in terms:
            terms.append(left)
    of_nodes = found["affinity"]["nodeAffinity"]
    if terms:
        of_nodes[_REQUIRED]["nodeSelectorTerms"] = terms
    else:
        del of_nodes[_REQUIRED]
    if not of_nodes:
        del found["affinity"]["nodeAffinity"]
    return found


def _terms(pod_spec: Manifest) -> list[Any]:
    required = ((pod_spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    return required.get("nodeSelectorTerms") or []
