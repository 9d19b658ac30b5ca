"""Whether a run may begin: a chain of checks, each with one reason; the first that is violated is reported. Pure.

Nothing is created before every check has passed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shadowrun_operator.api import accept
from shadowrun_operator.api.arms import ExternalArms
from shadowrun_operator.api.conditions import ConditionType, Reason, condition
from shadowrun_operator.manifests import groups, names
from shadowrun_operator.manifests.arms import host_and_port, service_in
from shadowrun_operator.manifests.candidate import change_problem
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.route import claim_of, copied_share
from shadowrun_operator.manifests.template import named, template_problem, wanted_source
from shadowrun_operator.reconcile.difference import difference
from shadowrun_operator.reconcile.gateway import missing, unfit
from shadowrun_operator.reconcile.observation import API_REFUSED, NO_EFFECT, Observation, OtherRun
from shadowrun_operator.reconcile.primary import primary_port, service_port


@dataclass(frozen=True)
class Violation:
    """Why the run is not accepted: a machine word, and what is wrong, where, and what to do."""

    reason: str
    message: str


Check = Callable[[Observation], Violation | None]


def not_implemented(seen: Observation) -> Violation | None:
    """Nothing is asked for that this version cannot do."""
    found = accept.not_implemented(seen.run.spec)
    return Violation(Reason.NOT_IMPLEMENTED, " ".join(found)) if found else None


def primary_not_found(seen: Observation) -> Violation | None:
    """The primary's Service exists and has the port."""
    wanted = seen.run.spec.primary.service
    if seen.primary is None:
        return Violation(
            Reason.PRIMARY_NOT_FOUND,
            f"Service {wanted.name!r} of spec.primary does not exist in namespace {seen.run.namespace!r}.",
        )
    if service_port(seen.primary, wanted.port) is None:
        has = ", ".join(str(p["port"]) for p in seen.primary["spec"].get("ports", [])) or "none"
        return Violation(
            Reason.PRIMARY_NOT_FOUND, f"Service {wanted.name!r} has no port {wanted.port}; its ports are: {has}."
        )
    return None


def primary_unsuitable(seen: Observation) -> Violation | None:
    """Traffic can go through capture pods and back as it goes now, and the primary is not captured itself.

    Where nothing of ours stands before it, only the arms have to be able to speak as it does.
    """
    if seen.primary is None:
        return None
    wanted = seen.run.spec.primary.service
    if not seen.external:
        problem = _path_problem(seen.primary, wanted.port)
        said = f"Service {wanted.name!r} {problem}; mode Proxy cannot capture it."
    else:
        problem = "serves TLS as its port says" if _speaks_tls(seen.primary, wanted.port) else ""
        said = f"Service {wanted.name!r} {problem}, but the arms are asked in plain HTTP."
    return Violation(Reason.PRIMARY_UNSUITABLE, said) if problem else None


def _path_problem(service: Manifest, port: int) -> str:
    spec, problem = service["spec"], ""
    if spec.get("type") == "ExternalName":
        problem = "is an ExternalName: it has no pods that traffic could be given back to"
    elif spec.get("clusterIP") == "None":
        problem = "is headless: clients choose among its pods themselves"
    elif not spec.get("selector"):
        problem = "has no selector: the pods behind it cannot be picked by another Service"
    elif spec.get("internalTrafficPolicy") == "Local":
        problem = "has internalTrafficPolicy Local: a node without a capture pod would have no endpoint at all"
    elif spec.get("sessionAffinity") == "ClientIP":
        problem = "has sessionAffinity ClientIP: every client would come from the addresses of the capture pods"
    elif _speaks_tls(service, port):
        problem = "serves TLS as its port says: capture speaks plain HTTP to clients and would break every connection"
    elif service["metadata"].get("labels", {}).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY:
        problem = "was made by a ShadowRun: name the Service of your own that it stands for"
    return problem


def _speaks_tls(service: Manifest, port: int) -> bool:
    """What the port says of itself, by the words of Kubernetes and of common gateways; nothing is connected to."""
    entry = service_port(service, port) or {}
    said = {str(entry.get("appProtocol", "")).lower(), str(entry.get("name", "")).lower().split("-")[0]}
    return port == 443 or not said.isdisjoint({"https", "tls", "wss", "grpcs", "kubernetes.io/wss"})


def source_not_found(seen: Observation) -> Violation | None:
    """The workload that the arms are copied from exists, where one is named."""
    wanted = wanted_source(seen.run.spec.arms.template)
    if seen.source is not None or wanted is None:
        return None
    kind, name = wanted
    reason = _NOT_FOUND[kind]
    if not seen.groups_served:
        said = f"This cluster has no {groups.API_VERSION}: install LeaderWorkerSet, or name another spec.arms.template."
        return Violation(reason, said)
    return Violation(
        reason, f"{kind} {name!r} of spec.arms.template does not exist in namespace {seen.run.namespace!r}."
    )


_NOT_FOUND = {
    "Deployment": Reason.DEPLOYMENT_NOT_FOUND,
    "StatefulSet": Reason.STATEFUL_SET_NOT_FOUND,
    groups.KIND: Reason.LEADER_WORKER_SET_NOT_FOUND,
}


def arms_picked(seen: Observation) -> Violation | None:
    """No label that a LeaderWorkerSet gives to its pods by itself makes the primary's Service pick those of arms."""
    selector = _selectors(seen)[0]
    if not seen.grouped or not selector or _told_apart(seen, selector):
        return None
    pairs = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
    return Violation(
        Reason.PRIMARY_UNSUITABLE,
        f"Service {seen.run.spec.primary.service.name!r} selects by labels that pods of any LeaderWorkerSet may have"
        f" ({pairs}), and would send customers to the arms: add {groups.NAME_LABEL} with the name of your set.",
    )


def _selectors(seen: Observation) -> tuple[dict[str, str], dict[str, str]]:
    """Of the primary's Service and of its workload."""
    service, source = seen.primary or {"spec": {}}, seen.source or {"spec": {}}
    return service["spec"].get("selector") or {}, (source["spec"].get("selector") or {}).get("matchLabels") or {}


def _told_apart(seen: Observation, selector: dict[str, str]) -> dict[str, str]:
    """What of a selector pods of arms do not fulfil by being what they are."""
    sets = tuple(names.object_name(seen.run.name, groups.set_of(arm)) for arm in seen.run.spec.made_arms)
    return groups.told_apart(selector, sets) if seen.grouped else selector


def template_unsuitable(seen: Observation) -> Violation | None:
    """Two arms beside the primary can have what the template asks for, or stand elsewhere than it."""
    external = seen.run.spec.arms.template.external
    if external is not None:
        problem = _loop_problem(seen, external)
    else:
        problem = None if seen.source is None else template_problem(seen.source)
    return Violation(Reason.TEMPLATE_UNSUITABLE, problem) if problem else None


def _loop_problem(seen: Observation, external: ExternalArms) -> str | None:
    """Copies must not go to those who answer customers, as far as names, addresses and selectors of Services tell."""
    spec, space = seen.run.spec, seen.run.namespace
    found = {spec.primary.service.name: seen.primary, spec.capture.service_name: seen.capture_service}
    for name, service in found.items():
        address = None if service is None else service["spec"].get("clusterIP")
        for field, url in external.urls.items():
            if name and (service_in(url, space) == name or host_and_port(url)[0] == address):
                return _looped(field, name, "which customers' requests go to")
    for field, url in external.urls.items():
        service = seen.arm_services.get(service_in(url, space))
        said = None if service is None else _leads_back(service, seen.primary)
        if service is not None and said is not None:
            return _looped(field, service["metadata"]["name"], said)
    return None


def _looped(field: str, name: str, said: str) -> str:
    return f"spec.arms.template.external.{field} is Service {name!r}, {said}: name a server of its own."


def _leads_back(service: Manifest, primary: Manifest | None) -> str | None:
    """Why what is sent to this Service would reach the primary or a mirror; None where nothing says so.

    One selector that holds the other: every pod of the narrower one is a pod of the wider one too.
    """
    meta = service["metadata"]
    component = meta.get("labels", {}).get(names.COMPONENT_LABEL, "")
    if component in _IN_PATH or names.STANDS_FOR_ANNOTATION in meta.get("annotations", {}):
        return "which a ShadowRun made for customers' requests or their copies"
    mine = service["spec"].get("selector") or {}
    others = (primary or {"spec": {}})["spec"].get("selector") or {}
    if mine and others and (mine.items() <= others.items() or others.items() <= mine.items()):
        return "whose selector picks pods of the primary"
    return None


_IN_PATH = (names.CAPTURE, names.COPIES, names.ROUTED, names.MIRROR, names.MIRROR_PODS)


def port_not_found(seen: Observation) -> Violation | None:
    """The primary's targetPort is a number, or a port that the template names."""
    if seen.primary is None or seen.source is None:
        return None
    wanted = seen.run.spec.primary.service
    if primary_port(seen.primary, seen.source, wanted.port) is not None:
        return None
    entry = service_port(seen.primary, wanted.port) or {}
    return Violation(
        Reason.PORT_NOT_FOUND,
        f"Port {wanted.port} of Service {wanted.name!r} goes to the port named {entry.get('targetPort')!r}, which no "
        f"container of {named(seen.source)} has: name it there, or use a number.",
    )


def route_not_found(seen: Observation) -> Violation | None:
    """The HTTPRoute exists, may be read, and has the rule."""
    wanted = seen.run.spec.capture.http_route
    if wanted is None or seen.route is None:
        return None
    said = missing(seen.route, wanted, seen.run.namespace)
    return Violation(Reason.ROUTE_NOT_FOUND, said) if said else None


def route_unsuitable(seen: Observation) -> Violation | None:
    """The gateways of the route serve, and say nothing against copying the rule's requests."""
    wanted = seen.run.spec.capture.http_route
    if wanted is None or seen.route is None:
        return None
    said = unfit(seen.route, wanted, copied_share(seen.run.spec))
    return Violation(Reason.ROUTE_UNSUITABLE, said) if said else None


def secret_not_found(seen: Observation) -> Violation | None:
    """The arms' credential exists where one is asked for."""
    ref = seen.run.spec.arms.credentials_secret_ref
    if ref is None or seen.credential_found:
        return None
    return Violation(
        Reason.SECRET_NOT_FOUND,
        f"Secret {ref.name!r} with the key {ref.key!r} of spec.arms.credentialsSecretRef does not exist.",
    )


def patch_invalid(seen: Observation) -> Violation | None:
    """The candidate's change is sound as far as it shows here, and was not refused by the API server."""
    if seen.source is None or seen.primary is None:
        return None
    candidate = seen.run.spec.arms.candidate
    if seen.run.spec.arms.template.external is not None:
        said = "spec.arms.candidate.patch changes nothing at arms behind URLs: change them where they run."
        return Violation(Reason.PATCH_INVALID, said) if candidate.patch else None
    of_service, of_source = (_told_apart(seen, selector) for selector in _selectors(seen))
    selectors = (of_service, of_source)
    problem = change_problem(candidate, seen.source, selectors=selectors) or _place_problem(seen)
    return Violation(Reason.PATCH_INVALID, problem) if problem else refused_patch(seen) or refused_before(seen)


def _place_problem(seen: Observation) -> str | None:
    """Where arms change places, none says by itself where it goes."""
    if not seen.run.spec.hardware.changes_places:
        return None
    patched = seen.run.spec.arms.candidate.patch.get("spec", {})
    found = next((field for field in ("affinity", "nodeSelector") if field in patched), None)
    if found is None:
        return None
    return (
        f"spec.arms.candidate.patch.spec.{found} says where the candidate goes, and with hardware.crossover it goes"
        " where the baseline was too: leave one of them out."
    )


def refused_patch(seen: Observation) -> Violation | None:
    """What the API server has just said to the patch, if it refused it."""
    if not seen.refusal:
        return None
    return Violation(Reason.PATCH_INVALID, f"{API_REFUSED} spec.arms.candidate.patch: {seen.refusal}")


def without_effect(seen: Observation) -> Violation | None:
    """A change was asked for, and the API server made the same pods of it: what compares equal would say nothing."""
    candidate = seen.run.spec.arms.candidate
    declared = candidate.patch or candidate.image or candidate.args is not None or candidate.env
    if not declared or difference(seen) != ():
        return None
    said = "the candidate's pods are the same as the baseline's. Correct it, or leave it out to compare equal arms."
    return Violation(Reason.PATCH_INVALID, f"{NO_EFFECT}: {said}")


def refused_before(seen: Observation) -> Violation | None:
    """A change that only the API server could judge is not tried again until the spec is another one."""
    known = condition(seen.run.status.conditions, ConditionType.ACCEPTED)
    if (
        known is not None
        and known.reason == Reason.PATCH_INVALID
        and str(known.message).startswith((API_REFUSED, NO_EFFECT))
        and known.observed_generation == seen.run.metadata.generation
    ):
        return Violation(known.reason, known.message)
    return None


def capture_in_use(seen: Observation) -> Violation | None:
    """No other active run stands before the same primary or uses the same Service."""
    return _in_use(seen, seen.others)


def must_yield(seen: Observation) -> Violation | None:
    """Whether an older run was accepted at the same time: both looked before either was, and one has to go back."""
    return _in_use(seen, tuple(other for other in seen.others if other.older))


def _in_use(seen: Observation, others: tuple[OtherRun, ...]) -> Violation | None:
    capture, primary = seen.run.spec.capture, seen.run.spec.primary.service.name
    service, rule = capture.service_name, capture.rule_name
    for other in others:
        if other.primary == primary and not seen.external:
            return Violation(
                Reason.CAPTURE_IN_USE,
                f"ShadowRun {other.name!r} captures Service {primary!r}: wait until it is complete.",
            )
        if other.rule and other.rule == rule:
            return Violation(
                Reason.CAPTURE_IN_USE,
                f"ShadowRun {other.name!r} has rule {rule!r} copied too: wait until it is complete.",
            )
        if service and other.service_name == service:
            return Violation(
                Reason.CAPTURE_IN_USE,
                f"ShadowRun {other.name!r} uses the Service {service!r} too: wait until it is complete.",
            )
    return None


def service_name_taken(seen: Observation) -> Violation | None:
    """The Service's name is free, or belongs to a run of the same mode that has ended."""
    service = seen.capture_service
    block, use = _USES[seen.run.spec.capture.mode]
    if service is None or (_is_left_behind(service, use) and not _is_claimed(seen, service)):
        return None
    field = f"spec.capture.{block}.serviceName"
    return Violation(
        Reason.SERVICE_NAME_TAKEN,
        f"Service {service['metadata']['name']!r} exists and no ShadowRun made it for the same use: choose another "
        f"{field}, or delete that Service.",
    )


_USES = {
    "Proxy": ("proxy", names.CAPTURE),
    "External": ("external", names.COPIES),
    "HTTPRoute": ("httpRoute", names.ROUTED),
}
"""Of each mode: its block in spec.capture, and what its Service is marked as."""


def _is_claimed(seen: Observation, service: Manifest) -> bool:
    """Whether another route may still hold a filter for the Service: its copies would come to this run too."""
    route = seen.run.spec.capture.http_route
    return route is not None and claim_of(service) not in ("", route.name)


def _is_left_behind(service: Manifest, use: str) -> bool:
    """Whether a Service was made by a run for this use; an arm's or a mirror's is its run's own.

    The uses are never exchanged: customers must not be led to a mirror, nor copies to the primary.
    """
    meta = service["metadata"]
    wanted = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.COMPONENT_LABEL: use}
    return wanted.items() <= meta.get("labels", {}).items() and not meta.get("ownerReferences")


def name_in_use(seen: Observation) -> Violation | None:
    """No object that is not ours has a name the run needs."""
    if not seen.foreign:
        return None
    return Violation(
        Reason.NAME_IN_USE,
        f"{seen.foreign[0]} exists and does not belong to this run: delete it, or create the run under another name.",
    )


CHAIN: tuple[Check, ...] = (
    not_implemented,
    primary_not_found,
    primary_unsuitable,
    route_not_found,
    route_unsuitable,
    source_not_found,
    arms_picked,
    template_unsuitable,
    port_not_found,
    secret_not_found,
    patch_invalid,
    capture_in_use,
    service_name_taken,
    name_in_use,
)
"""In the order in which a user would want to be told."""


def violation(seen: Observation) -> Violation | None:
    """The first check that is violated."""
    return next((found for check in CHAIN if (found := check(seen)) is not None), None)
