"""HTTPRoutes as users have them, and what an API server makes of an edit of one."""

import copy
from collections.abc import Sequence
from typing import Any

from shadowrun_operator.reconcile.gateway import MIRROR, PERCENTAGE, GatewaySeen

ROUTED = {
    "mode": "HTTPRoute",
    "proxy": None,
    "httpRoute": {"name": "front", "rule": "chat", "serviceName": "chat-copies"},
}
FEATURES = frozenset({MIRROR, PERCENTAGE})
ATTACHED = GatewaySeen(name="infra/public", features=FEATURES)


def rule(name: str, *filters: dict[str, Any]) -> dict[str, Any]:
    """A rule to Service `chat`, with these filters."""
    built: dict[str, Any] = {"name": name, "backendRefs": [{"name": "chat", "port": 8000, "weight": 1}]}
    return built | ({"filters": list(filters)} if filters else {})


def accepted(*more: dict[str, Any], status: str = "True") -> dict[str, Any]:
    """What a gateway says of a route."""
    condition = {"type": "Accepted", "status": status, "reason": "Accepted" if status == "True" else "NoMatchingParent"}
    parent = {"parentRef": {"name": "public", "namespace": "infra"}, "conditions": [condition, *more]}
    return {"parents": [parent]}


def route(*rules: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The HTTPRoute `front`."""
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "front", "namespace": "inference", "resourceVersion": "7", "labels": {"team": "x"}},
        "spec": {"hostnames": ["chat.example"], "rules": list(rules) or [rule("health"), rule("chat")]},
        "status": accepted(),
    } | changes


def patched(document: dict[str, Any], patch: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A JSON patch as the API server applies it: another version than the patch's is a conflict."""
    if not patch:
        return document
    changed = copy.deepcopy(document)
    for operation in patch:
        *way, last = operation["path"].removeprefix("/").split("/")
        place: Any = changed
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        if operation["op"] != "add":
            assert last in place, f"nothing to {operation['op']} at {operation['path']}"
        if operation["op"] == "remove":
            del place[last]
        else:
            place[last] = copy.deepcopy(operation["value"])
    assert changed["metadata"]["resourceVersion"] == document["metadata"]["resourceVersion"], "a conflict"
    changed["metadata"]["resourceVersion"] = str(int(document["metadata"]["resourceVersion"]) + 1)
    return changed
