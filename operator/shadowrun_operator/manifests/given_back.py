"""The capture Service as it stays behind: the same Service, selecting the primary's own pods again. Pure.

Built from the Service itself, so that it works when the run, its record or the primary's Service is gone.
"""

import json

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest

_KEPT = (
    "type",
    "ports",
    "sessionAffinity",
    "sessionAffinityConfig",
    "internalTrafficPolicy",
    "ipFamilies",
    "ipFamilyPolicy",
)


def given_back(service: Manifest, now: float, *, fallback: dict[str, str] | None = None) -> Manifest | None:
    """The manifest to apply at `now` (UTC seconds).

    Where the Service does not say whose pods it stood for, those of the selector `fallback`; without one, None.
    """
    meta = service["metadata"]
    chosen = _said(meta.get("annotations", {}).get(names.PRIMARY_ANNOTATION, "")) or fallback
    if not chosen:
        return None
    spec = {key: value for key, value in service["spec"].items() if key in _KEPT}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": {key: meta.get("labels", {}).get(key, "") for key in _LABELS},
            "annotations": {
                names.PRIMARY_ANNOTATION: json.dumps(chosen, sort_keys=True),
                names.GIVEN_BACK_ANNOTATION: str(now),
            },
        },
        "spec": {**spec, "selector": chosen},
    }


def given_back_at(service: Manifest) -> float | None:
    """When the Service was given back at the end of a run, in UTC seconds; None where it was not."""
    written = service["metadata"].get("annotations", {}).get(names.GIVEN_BACK_ANNOTATION)
    return float(written) if written and is_given_back(service) else None


def is_given_back(service: Manifest) -> bool:
    """Whether it does not select capture's pods."""
    return bool(service["spec"].get("selector", {}).get(names.COMPONENT_LABEL) != names.CAPTURE)


def _said(written: str) -> dict[str, str]:
    """The selector that an annotation holds; none where somebody made it unreadable."""
    try:
        found = json.loads(written)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


_LABELS = (names.RUN_LABEL, names.COMPONENT_LABEL, names.MANAGED_BY_LABEL)
