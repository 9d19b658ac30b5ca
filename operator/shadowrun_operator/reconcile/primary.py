"""What the primary's Service says: which of its ports is meant, and which container port that is. Pure."""

from dataclasses import dataclass

from shadowrun_operator.api.spec import Spec
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.workload import serving_template

_ANY = 8080


@dataclass(frozen=True)
class PrimaryPort:
    """`target` is the targetPort as written (a name or a number), `number` the container port it stands for."""

    port: int
    target: int | str
    number: int


def service_port(service: Manifest, port: int) -> Manifest | None:
    """The entry of a Service's ports with this number."""
    entries: list[Manifest] = service["spec"].get("ports", [])
    return next((entry for entry in entries if entry["port"] == port), None)


def primary_port(service: Manifest, source: Manifest, port: int) -> PrimaryPort | None:
    """The primary's port resolved through the pod template; None where Service or template lack it.

    Without a template a name stands for any number: only pods of ours that carry the same name listen there.
    """
    entry = service_port(service, port)
    if entry is None:
        return None
    target: int | str = entry.get("targetPort", port)
    number = target if isinstance(target, int) else _named(source, target)
    return None if number is None else PrimaryPort(port=port, target=target, number=number)


def speaks_h2c(service: Manifest, port: int) -> bool:
    """Whether the port says that it takes HTTP/2 with prior knowledge, without TLS."""
    entry = service_port(service, port) or {}
    return bool(entry.get("appProtocol") == "kubernetes.io/h2c")


def arm_target(spec: Spec, resolved: PrimaryPort) -> int | str:
    """Port of the arms' containers that requests go to."""
    return spec.arms.port if spec.arms.port is not None else resolved.target


def _named(source: Manifest, name: str) -> int | None:
    containers = serving_template(source).get("spec", {}).get("containers")
    if containers is None:
        return _ANY
    for container in containers:
        for entry in container.get("ports") or []:
            if entry.get("name") == name:
                return int(entry["containerPort"])
    return None
