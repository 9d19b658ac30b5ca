"""What is seen of a user's HTTPRoute and of the gateways that serve it, and why a run cannot use them. Pure.

Read by the words of the Gateway API alone, whichever gateway it is. Whether copies really come shows in the warm-up.
"""

from dataclasses import dataclass

from shadowrun_operator.api.quantities import MILLION
from shadowrun_operator.api.traffic import CaptureHTTPRoute
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.route import MAX_FILTERS, filters_of, named_rules

MIRROR = "HTTPRouteRequestMirror"
PERCENTAGE = "HTTPRouteRequestPercentageMirror"
_NO_ADDRESS = ("AddressNotAssigned", "AddressNotUsable")
"""Reasons for which a Gateway is not Programmed although its proxies may serve."""


@dataclass(frozen=True, kw_only=True)
class GatewaySeen:
    """A Gateway that a route belongs to. `features` is what its class says it supports; None where it says nothing."""

    name: str  # namespace/name
    problem: str = ""  # why it serves nothing, in its own words
    features: frozenset[str] | None = None


@dataclass(frozen=True, kw_only=True)
class RouteSeen:
    """The HTTPRoute that spec.capture names. `refused`: why it could not be read. Gateways: before acceptance only."""

    route: Manifest | None = None
    refused: str = ""
    gateways: tuple[GatewaySeen, ...] = ()


def missing(seen: RouteSeen, wanted: CaptureHTTPRoute, namespace: str) -> str:
    """Why there is no such rule, as a sentence; "" where there is one."""
    if seen.refused:
        return seen.refused
    if seen.route is None:
        return (
            f"HTTPRoute {wanted.name!r} does not exist in namespace {namespace!r}, or this cluster does not have the"
            " Gateway API."
        )
    if not named_rules(seen.route, wanted.rule):
        rules = seen.route.get("spec", {}).get("rules") or []
        has = ", ".join(rule.get("name") or "(unnamed)" for rule in rules) or "none"
        return f"HTTPRoute {wanted.name!r} has no rule named {wanted.rule!r}; its rules are: {has}."
    return ""


def unfit(seen: RouteSeen, wanted: CaptureHTTPRoute, share: int) -> str:
    """Why the rule's requests can't be copied, as a sentence; "" where nothing speaks against it.

    `share` is what the gateway would have to copy, in millionths.
    """
    if seen.route is None:
        return ""
    problem = _rule_problem(seen.route, wanted) or _parent_problem(seen.route)
    if problem:
        return f"HTTPRoute {wanted.name!r}: {problem}."
    for gateway in seen.gateways:
        problem = gateway.problem or _lacks(gateway.features, share)
        if problem:
            return f"Gateway {gateway.name!r} of HTTPRoute {wanted.name!r} {problem}."
    return ""


def route_trouble(route: Manifest) -> str:
    """What a gateway says is wrong with the route as it is now; "" where it says nothing."""
    for condition in _conditions(route):
        if condition.get("type") in ("Accepted", "ResolvedRefs") and condition.get("status") == "False":
            return f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")
    return ""


def gateway_seen(name: str, gateway: Manifest | None, gateway_class: Manifest | None) -> GatewaySeen:
    """From a Gateway and its class, each None where it can't be read."""
    return GatewaySeen(name=name, problem=_not_serving(gateway), features=_features(gateway_class))


def parents_of(route: Manifest) -> list[tuple[str, str]]:
    """Namespace and name of every Gateway that has accepted the route."""
    found = []
    for parent in _parents(route):
        ref = parent.get("parentRef", {})
        if ref.get("kind", "Gateway") == "Gateway" and _accepted(parent):
            found.append((ref.get("namespace", route["metadata"]["namespace"]), ref["name"]))
    return list(dict.fromkeys(found))


def _rule_problem(route: Manifest, wanted: CaptureHTTPRoute) -> str:
    places = named_rules(route, wanted.rule)
    if len(places) != 1:
        return f"{len(places)} rules are named {wanted.rule!r}"
    filters = route["spec"]["rules"][places[0]].get("filters") or []
    if any(f.get("type") == "RequestRedirect" for f in filters):
        return f"rule {wanted.rule!r} redirects its requests, so there is nothing to copy"
    if len(filters) >= MAX_FILTERS and not filters_of(route, wanted.service_name):
        return f"rule {wanted.rule!r} has {len(filters)} filters already, as many as there may be"
    return ""


def _parent_problem(route: Manifest) -> str:
    if any(_accepted(parent) for parent in _parents(route)):
        return ""
    said = route_trouble(route)
    return f"no gateway has accepted it ({said})" if said else "no gateway has accepted it"


def _lacks(features: frozenset[str] | None, share: int) -> str:
    """A list that leaves something out is believed. Many a class has none, though it can do both."""
    if features is None:
        return ""
    if MIRROR not in features:
        return f"cannot copy requests: its GatewayClass does not list {MIRROR} among its supportedFeatures"
    if share < MILLION and PERCENTAGE not in features:
        return (
            f"cannot copy a share of the requests: its GatewayClass does not list {PERCENTAGE} among its"
            " supportedFeatures; use unit Key or Conversation, for which it copies all and the mirror selects, or rate"
            " 100%"
        )
    return ""


def _not_serving(gateway: Manifest | None) -> str:
    for condition in (gateway or {}).get("status", {}).get("conditions") or []:
        kind, reason = condition.get("type"), condition.get("reason", "")
        if condition.get("status") == "False" and kind in ("Accepted", "Programmed") and reason not in _NO_ADDRESS:
            return f"is not {kind} ({reason}: {condition.get('message', '')})"
    return ""


def _features(gateway_class: Manifest | None) -> frozenset[str] | None:
    """Names as a list of objects, or of texts as before Gateway API 1.3."""
    listed = (gateway_class or {}).get("status", {}).get("supportedFeatures")
    if not listed:
        return None
    return frozenset(item["name"] if isinstance(item, dict) else item for item in listed)


def _parents(route: Manifest) -> list[Manifest]:
    found: list[Manifest] = route.get("status", {}).get("parents") or []
    return found


def _conditions(route: Manifest) -> list[Manifest]:
    return [condition for parent in _parents(route) for condition in parent.get("conditions") or []]


def _accepted(parent: Manifest) -> bool:
    return any(c.get("type") == "Accepted" and c.get("status") == "True" for c in parent.get("conditions") or [])
