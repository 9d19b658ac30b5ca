"""Names, labels and ownership of everything a ShadowRun makes. No other module spells any of them."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]
"""A Kubernetes object as JSON."""

API_GROUP = "shadowrun.dev"
API_VERSION = "shadowrun.dev/v1alpha1"
KIND = "ShadowRun"

FINALIZER = "shadowrun.dev/teardown"
"""On a ShadowRun: it stays until everything that was made for it is taken down."""

RUN_LABEL = "shadowrun.dev/run"
COMPONENT_LABEL = "shadowrun.dev/component"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "shadowrun"

MANIFEST_ANNOTATION = "shadowrun.dev/manifest"
"""Hash of the manifest an object was last applied from: an unchanged one needs no write."""
PATCHED_ANNOTATION = "shadowrun.dev/patched"
"""On the candidate: hash of the spec whose patch it carries. Without it the patch has not been applied yet."""
PRIMARY_ANNOTATION = "shadowrun.dev/primary"
"""On the capture Service: the selector of the primary's pods as JSON, so that it can be put back without the run."""
STANDS_FOR_ANNOTATION = "shadowrun.dev/stands-for"
"""On the capture Service: name and port of the primary's Service, so that it can be followed without the run."""
BOOT_ANNOTATION = "shadowrun.dev/boot"
"""On pods that count: hash of run and token, so that no pod of an earlier run of the name is taken for this one's."""
GIVEN_BACK_ANNOTATION = "shadowrun.dev/given-back"
"""On the Service of a run: since when customers' requests go their way without the run, in UTC seconds."""
ROUTE_ANNOTATION = "shadowrun.dev/route"
"""On the Service that a filter of ours names: the HTTPRoute that may hold the filter."""

CAPTURE = "capture"
MIRROR = "mirror"
COPIES = "copies"
ROUTED = "routed-copies"  # sent by a filter of ours in a user's HTTPRoute
MIRROR_PODS = "mirror-pods"  # headless: each of several mirrors has its own address
BASELINE = "baseline"
CANDIDATE = "candidate"
CONTROL = "control"
ARMS = "arms"
EVIDENCE = "evidence"
REPORT = "report"

DATA_PORT = 8080
CONTROL_PORT = 9090
COMPANION_PORT = 9091


@dataclass(frozen=True, kw_only=True)
class RunRef:
    """Which ShadowRun an object belongs to."""

    name: str
    namespace: str
    uid: str


def object_name(run: str, component: str) -> str:
    """`<run>-<component>`; always fits, since the API server refuses a run's name of more than 40 characters."""
    return f"{run}-{component}"


def labels(run: RunRef, component: str) -> dict[str, str]:
    """Labels of an object and of its pods."""
    return {RUN_LABEL: run.name, COMPONENT_LABEL: component, MANAGED_BY_LABEL: MANAGED_BY}


def selector(run: RunRef, component: str) -> dict[str, str]:
    """The labels that pick exactly this component's pods."""
    return {RUN_LABEL: run.name, COMPONENT_LABEL: component}


def owner_reference(run: RunRef) -> Manifest:
    """Makes an object go when its ShadowRun goes. Never put on the objects of the customers' path."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": run.name,
        "uid": run.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def metadata(run: RunRef, component: str, *, name: str = "", owned: bool = True) -> Manifest:
    """Object metadata; `owned` adds the ownerReference."""
    built: Manifest = {
        "name": name or object_name(run.name, component),
        "namespace": run.namespace,
        "labels": labels(run, component),
    }
    if owned:
        built["ownerReferences"] = [owner_reference(run)]
    return built


def content_hash(value: object) -> str:
    """Sixteen hexadecimal digits that follow from a JSON value and from nothing else."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def counting_pods(run: RunRef, component: str, token: str) -> Manifest:
    """Metadata of pods that count for one run under one token: another run or token means other pods."""
    return {"labels": labels(run, component), "annotations": {BOOT_ANNOTATION: content_hash([run.uid, token])}}


def stamped(manifest: Manifest) -> Manifest:
    """The same manifest with the hash of its own content as an annotation."""
    meta = manifest["metadata"]
    annotations = {**meta.get("annotations", {}), MANIFEST_ANNOTATION: content_hash(manifest)}
    return {**manifest, "metadata": {**meta, "annotations": annotations}}


def is_current(manifest: Manifest, observed: Manifest | None) -> bool:
    """Whether the object in the cluster was applied from this very (stamped) manifest."""
    if observed is None:
        return False
    wanted = manifest["metadata"]["annotations"][MANIFEST_ANNOTATION]
    return bool(observed["metadata"].get("annotations", {}).get(MANIFEST_ANNOTATION) == wanted)


def of_version(manifest: Manifest, seen: Manifest) -> Manifest:
    """The manifest, to be refused (409) once the object is another version than the one that was seen."""
    version = seen["metadata"].get("resourceVersion")
    return {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": version}} if version else manifest
