"""The mirror filter in a rule of a user's HTTPRoute: put in, known again, taken out; all else stays as it is. Pure.

A filter is ours when it sends copies to a Service that a run made for that purpose and for no other. `edits` is what
may be asked of the API server: it names the version it was made from, so that it never undoes somebody else's edit.
"""

import copy
from math import gcd
from typing import Any

from shadowrun_operator.api.quantities import MILLION
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest, RunRef

MAX_FILTERS = 16
"""Most filters of a rule, by the definition of HTTPRoute."""
_SHARE = ("percent", "fraction")


def copied_share(spec: Spec) -> int:
    """Which share of a rule's requests the gateway copies, in millionths: all, unless every request is drawn by itself.

    A gateway draws at random, request by request, so a part of a conversation would be worth nothing. With rates of
    classes it is the highest of them.
    """
    sampling = spec.sampling
    if spec.capture.mode != "HTTPRoute" or sampling.unit != "Request":
        return MILLION
    return max(sampling.rate.millionths, *(r.rate.millionths for r in sampling.class_rates), 1)


def mirror_filter(service: str, share: int) -> Manifest:
    """The filter that sends a share (millionths) of a rule's requests to a Service; without a share it is all."""
    mirror: Manifest = {"backendRef": {"name": service, "port": names.DATA_PORT}}
    if share < MILLION and share % (MILLION // 100) == 0:
        mirror["percent"] = share // (MILLION // 100)
    elif share < MILLION:
        common = gcd(share, MILLION)
        mirror["fraction"] = {"numerator": share // common, "denominator": MILLION // common}
    return {"type": "RequestMirror", "requestMirror": mirror}


def is_ours(found: Manifest, service: str) -> bool:
    """Whether a filter sends copies to that Service of the route's own namespace."""
    backend = (found.get("requestMirror") or {}).get("backendRef") or {}
    return (
        found.get("type") == "RequestMirror"
        and backend.get("name") == service
        and backend.get("kind", "Service") == "Service"
        and not backend.get("group")
        and "namespace" not in backend
    )


def named_rules(route: Manifest, rule: str) -> list[int]:
    """Places of the rules of a name: one, if the route has it."""
    return [place for place, found in enumerate(_rules(route)) if found.get("name") == rule]


def filters_of(route: Manifest, service: str) -> list[Manifest]:
    """The filters of a route, in whichever rule, that send copies to a Service."""
    return [f for rule in _rules(route) for f in rule.get("filters") or [] if is_ours(f, service)]


def says_the_same(found: Manifest, wanted: Manifest) -> bool:
    """Whether a filter in the cluster, with its defaults filled in, sends the same share to the same port."""
    one, other = found["requestMirror"], wanted["requestMirror"]
    same_port = one["backendRef"].get("port") == other["backendRef"].get("port")
    return same_port and all(one.get(key) == other.get(key) for key in _SHARE)


def with_filter(route: Manifest, rule: str, wanted: Manifest) -> Manifest:
    """The route with this filter of ours and no other one for its Service: where it is already, else in the rule.

    A route without the rule, or with two of the name, stays as it is.
    """
    service = wanted["requestMirror"]["backendRef"]["name"]
    present, places = filters_of(route, service), named_rules(route, rule)
    if len(present) == 1:
        return route if says_the_same(present[0], wanted) else _replaced(route, service, [wanted])
    if len(places) != 1:
        return without_filter(route, service)
    changed = copy.deepcopy(without_filter(route, service))
    _rules(changed)[places[0]].setdefault("filters", []).append(copy.deepcopy(wanted))
    return changed


def without_filter(route: Manifest, service: str) -> Manifest:
    """The route without any filter for that Service."""
    return _replaced(route, service, []) if filters_of(route, service) else route


def edits(route: Manifest, rule: str, service: str, wanted: Manifest | None) -> list[Manifest]:
    """JSON patch that brings our filter about, or takes it out where `wanted` is None; empty where nothing is to do.

    Its first operation makes the API server refuse it (409) once the route is another version than this one.
    """
    after = without_filter(route, service) if wanted is None else with_filter(route, rule, wanted)
    changes = [
        _change(place, now.get("filters"), then.get("filters"))
        for place, (now, then) in enumerate(zip(_rules(route), _rules(after), strict=True))
        if now != then
    ]
    version = route["metadata"]["resourceVersion"]
    return [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, *changes] if changes else []


def claim_of(service: Manifest) -> str:
    """The route that a Service for copies says may hold a filter of ours; "" where it says none."""
    return str(service["metadata"].get("annotations", {}).get(names.ROUTE_ANNOTATION, ""))


def routed_service(run: RunRef, name: str, *, route: str) -> Manifest:
    """The Service that our filter names. It says so before the filter is there, and until it is gone.

    Without an ownerReference, and it stays when the run goes: a gateway may answer 500 to customers of a rule whose
    filter names a Service that does not exist, and somebody may bring an old version of the route back.
    """
    meta = names.metadata(run, names.ROUTED, name=name, owned=False)
    return _service({**meta, "annotations": {names.ROUTE_ANNOTATION: route}}, names.selector(run, names.MIRROR))


def released(service: Manifest, now: float) -> Manifest:
    """The Service as it stays behind, once its route holds no filter of ours: without the claim, and since when."""
    meta = service["metadata"]
    kept = {"name": meta["name"], "namespace": meta["namespace"], "labels": dict(meta["labels"])}
    said = {names.GIVEN_BACK_ANNOTATION: str(now)}
    return _service({**kept, "annotations": said}, service["spec"].get("selector", {}))


def _service(meta: Manifest, selector: dict[str, str]) -> Manifest:
    port = {"name": "data", "port": names.DATA_PORT, "targetPort": "data", "protocol": "TCP"}
    spec = {"type": "ClusterIP", "selector": selector, "ports": [port]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


def _rules(route: Manifest) -> list[Manifest]:
    rules: list[Manifest] = route.get("spec", {}).get("rules") or []
    return rules


def _replaced(route: Manifest, service: str, instead: list[Manifest]) -> Manifest:
    """The route with `instead` in the place of each filter for a Service; a list that becomes empty goes too."""
    changed = copy.deepcopy(route)
    for rule in _rules(changed):
        before = rule.get("filters") or []
        if not any(is_ours(f, service) for f in before):
            continue
        rule["filters"] = [new for f in before for new in (copy.deepcopy(instead) if is_ours(f, service) else [f])]
        if not rule["filters"]:
            del rule["filters"]
    return changed


def _change(place: int, now: Any, then: Any) -> Manifest:
    path = f"/spec/rules/{place}/filters"
    if then is None:
        return {"op": "remove", "path": path}
    return {"op": "add" if now is None else "replace", "path": path, "value": then}
