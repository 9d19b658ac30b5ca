"""The capture Service as it stays behind: the same Service, selecting the primary's own pods again. Pure.

Built from the Service itself, so that it works when the run, its record or the primary's Service is gone. From then on
it follows the primary's Service: a changed selector or port there must not leave customers on the old pods.
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
    return _left(service, chosen, {names.GIVEN_BACK_ANNOTATION: str(now)})


def stands_for(service: Manifest) -> tuple[str, int] | None:
    """Name and port of the primary's Service that a given-back Service stands for; None where it doesn't say so."""
    name, _, port = service["metadata"].get("annotations", {}).get(names.STANDS_FOR_ANNOTATION, "").rpartition(":")
    return (name, int(port)) if name and port.isdecimal() and is_given_back(service) else None


def followed(service: Manifest, primary: Manifest | None) -> Manifest | None:
    """The manifest to apply so that a given-back Service leads where the primary's Service leads now; None: it does.

    Nothing happens either where that is gone, has lost the port, or could not be stood for any more. The manifest holds
    the version of the Service it was made from, so that a run which takes the Service over is not disturbed.
    """
    known = stands_for(service)
    if known is None or primary is None or _is_ours(primary):
        return None
    chosen = primary["spec"].get("selector")
    port = next((_port(entry) for entry in primary["spec"].get("ports", []) if entry["port"] == known[1]), None)
    if not chosen or port is None or primary["spec"].get("type") == "ExternalName":
        return None
    if service["spec"].get("selector") == chosen and [_port(p) for p in service["spec"].get("ports", [])] == [port]:
        return None
    annotations = service["metadata"].get("annotations", {})
    since = {key: annotations[key] for key in (names.GIVEN_BACK_ANNOTATION,) if key in annotations}
    left = _left(service, chosen, since)
    left["metadata"]["resourceVersion"] = service["metadata"].get("resourceVersion", "")
    left["spec"]["ports"] = [port]
    return left


def _left(service: Manifest, chosen: dict[str, str], annotations: dict[str, str]) -> Manifest:
    meta = service["metadata"]
    stands = meta.get("annotations", {}).get(names.STANDS_FOR_ANNOTATION)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": {key: meta.get("labels", {}).get(key, "") for key in _LABELS},
            "annotations": {
                names.PRIMARY_ANNOTATION: json.dumps(chosen, sort_keys=True),
                **({names.STANDS_FOR_ANNOTATION: stands} if stands else {}),
                **annotations,
            },
        },
        "spec": {**{key: value for key, value in service["spec"].items() if key in _KEPT}, "selector": dict(chosen)},
    }


def _is_ours(service: Manifest) -> bool:
    return bool(service["metadata"].get("labels", {}).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY)


def _port(entry: Manifest) -> Manifest:
    """A port of the primary's Service as the capture Service has it: without the number that a node listens on."""
    said = {key: entry[key] for key in ("name", "appProtocol") if entry.get(key)}
    target, protocol = entry.get("targetPort", entry["port"]), entry.get("protocol", "TCP")
    return {"port": entry["port"], "targetPort": target, "protocol": protocol, **said}


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
