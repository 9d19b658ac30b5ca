"""Arms whose replicas are groups of pods that serve together: LeaderWorkerSets, and what else they need. Pure.

The API server lays a strategic-merge patch over objects of its own kinds only. So every pod template of such an arm
begins as a draft: a Deployment without pods, which the API server patches, judges and fills with its defaults. The
LeaderWorkerSet is made of its drafts, and they go.
"""

import copy
from collections.abc import Mapping

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest, RunRef
from shadowrun_operator.manifests.workload import LEADER, WORKER, is_grouped

KIND = "LeaderWorkerSet"
API_VERSION = "leaderworkerset.x-k8s.io/v1"
_PREFIX = "leaderworkerset.sigs.k8s.io/"
NAME_LABEL = f"{_PREFIX}name"
INDEX_LABEL = f"{_PREFIX}worker-index"
LEADS = {INDEX_LABEL: "0"}
"""The label of leaders: those that requests go to."""

_DRAFTS = {"": "", LEADER: "-leader", WORKER: "-worker"}
_NOT_TAKEN = ("replicas", "rolloutStrategy", "leaderWorkerTemplate")
_CLAIMS = ("volumeClaimTemplates", "persistentVolumeClaimRetentionPolicy")


def set_of(arm: str) -> str:
    """What an arm's LeaderWorkerSet is called after: its controller makes a Service of the very same name."""
    return f"{arm}-set"


def draft_of(arm: str, field: str) -> str:
    """What the Deployment is called after in which the template of a part is made; of a Deployment that is the arm."""
    return f"{arm}{_DRAFTS[field]}"


def objects_of(arm: str) -> tuple[tuple[str, str], ...]:
    """Kind, and what it is called after, of all that an arm may consist of, whatever its workload."""
    deployments = (("Deployment", draft_of(arm, field)) for field in _DRAFTS)
    return *deployments, ("Service", arm), (KIND, set_of(arm)), ("NetworkPolicy", set_of(arm))


def taken(source: Manifest) -> Manifest:
    """What arms take of a LeaderWorkerSet; {} of any other workload.

    All of its spec but how many replicas there are, how they are rolled out, and claims; and its own annotations, which
    say how groups are placed.
    """
    if not is_grouped(source):
        return {}
    spec = source["spec"]
    group = {key: value for key, value in spec["leaderWorkerTemplate"].items() if key not in _CLAIMS}
    annotations = source["metadata"].get("annotations") or {}
    return {
        "annotations": {key: value for key, value in annotations.items() if key.startswith(_PREFIX)},
        "spec": {key: value for key, value in spec.items() if key not in _NOT_TAKEN} | {"leaderWorkerTemplate": group},
    }


def arm_set(
    run: RunRef,
    arm: str,
    source: Manifest,
    drafts: Mapping[str, Manifest],
    *,
    replicas: int,
    patched: str = "",
) -> Manifest:
    """LeaderWorkerSet of one arm: `drafts` has one for each part, by field.

    `patched` is the hash of the spec whose patch they carry.
    """
    of_source = copy.deepcopy(taken(source))
    templates = {field: _template(run, arm, draft) for field, draft in drafts.items()}
    group = of_source["spec"]["leaderWorkerTemplate"] | templates
    meta = names.metadata(run, arm, name=names.object_name(run.name, set_of(arm)))
    annotations = of_source["annotations"] | ({names.PATCHED_ANNOTATION: patched} if patched else {})
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": meta | ({"annotations": annotations} if annotations else {}),
        "spec": of_source["spec"] | {"replicas": replicas, "leaderWorkerTemplate": group},
    }


def arm_group_policy(run: RunRef, arm: str) -> Manifest:
    """Beside the policy of all arms: the pods of this one reach each other, and nobody else's."""
    own = [{"podSelector": {"matchLabels": names.selector(run, arm)}}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": names.metadata(run, arm, name=names.object_name(run.name, set_of(arm))),
        "spec": {
            "podSelector": {"matchLabels": names.selector(run, arm)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": own}],
            "egress": [{"to": copy.deepcopy(own)}],
        },
    }


def is_group_label(key: str) -> bool:
    """Whether a label is one that the controller of LeaderWorkerSets puts on pods itself."""
    return key.startswith(_PREFIX)


def told_apart(selector: Mapping[str, str], sets: tuple[str, ...]) -> dict[str, str]:
    """What of a selector the pods of LeaderWorkerSets of these names do not fulfil by belonging to one."""
    return {
        key: value
        for key, value in selector.items()
        if not is_group_label(key) or (key == NAME_LABEL and value not in sets)
    }


def _template(run: RunRef, arm: str, draft: Manifest) -> Manifest:
    """Of a draft's pods, with the labels of the arm instead of its own."""
    template = copy.deepcopy(draft["spec"]["template"])
    meta = template.get("metadata") or {}
    annotations = meta.get("annotations") or {}
    labels = {**(meta.get("labels") or {}), **names.labels(run, arm)}
    return {
        "metadata": {"labels": labels} | ({"annotations": annotations} if annotations else {}),
        "spec": template["spec"],
    }
