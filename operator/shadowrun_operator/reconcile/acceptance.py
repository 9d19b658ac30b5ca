"""Whether a run may begin: a chain of checks, each with one reason; the first that is violated is reported. Pure.

Nothing is created before every check has passed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shadowrun_operator.api import accept
from shadowrun_operator.api.conditions import ConditionType, Reason, condition
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.arms import patch_problem
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile.observation import API_REFUSED, Observation, OtherRun
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


def deployment_not_found(seen: Observation) -> Violation | None:
    """The Deployment that the arms are copied from exists."""
    if seen.source is not None:
        return None
    name = seen.run.spec.arms.template.deployment_ref.name
    return Violation(
        Reason.DEPLOYMENT_NOT_FOUND,
        f"Deployment {name!r} of spec.arms.template.deploymentRef does not exist in namespace {seen.run.namespace!r}.",
    )


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
        f"container of Deployment {seen.source['metadata']['name']!r} has: name it there, or use a number.",
    )


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
    """The candidate's patch is sound as far as it shows here, and was not refused by the API server."""
    if seen.source is None or seen.primary is None:
        return None
    problem = patch_problem(
        seen.run.spec.arms.candidate.patch,
        seen.source,
        service_selector=seen.primary["spec"].get("selector") or {},
    )
    return Violation(Reason.PATCH_INVALID, problem) if problem else refused_patch(seen) or _refused_before(seen)


def refused_patch(seen: Observation) -> Violation | None:
    """What the API server has just said to the patch, if it refused it."""
    if not seen.refusal:
        return None
    return Violation(Reason.PATCH_INVALID, f"{API_REFUSED} spec.arms.candidate.patch: {seen.refusal}")


def _refused_before(seen: Observation) -> Violation | None:
    """A patch that the API server refused is not tried again until the spec is another one."""
    known = condition(seen.run.status.conditions, ConditionType.ACCEPTED)
    if (
        known is not None
        and known.reason == Reason.PATCH_INVALID
        and str(known.message).startswith(API_REFUSED)
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
    service, primary = seen.run.spec.capture.service_name, seen.run.spec.primary.service.name
    for other in others:
        if other.primary == primary and not seen.external:
            return Violation(
                Reason.CAPTURE_IN_USE,
                f"ShadowRun {other.name!r} captures Service {primary!r}: wait until it is complete.",
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
    if service is None or _is_left_behind(service, names.COPIES if seen.external else names.CAPTURE):
        return None
    field = f"spec.capture.{'external' if seen.external else 'proxy'}.serviceName"
    return Violation(
        Reason.SERVICE_NAME_TAKEN,
        f"Service {service['metadata']['name']!r} exists and no ShadowRun made it for the same use: choose another "
        f"{field}, or delete that Service.",
    )


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
    deployment_not_found,
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
