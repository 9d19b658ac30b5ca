"""The arms: Deployments, Services and the network policy around them, made from the template's pods.

Pure. Nothing here ever names the primary's own objects as something to write, and no label of the template survives:
a pod of an arm that carried one could be picked by the primary's Service and answer customers.
"""

import copy
from collections.abc import Mapping, Sequence

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest, RunRef
from shadowrun_operator.manifests.placement import apart, pinned

TOKEN_FIELDS = ("serviceAccountName", "serviceAccount", "automountServiceAccountToken")
TOKEN_SOURCE = "serviceAccountToken"  # noqa: S105  a field's name


def arm_deployment(
    run: RunRef,
    arm: str,
    source: Manifest,
    *,
    replicas: int,
    node_selector: dict[str, str] | None = None,
    apart_from: Sequence[str] = (),
    nodes: Sequence[str] = (),
) -> Manifest:
    """Deployment of one arm, from a source's pod template (`template`). Two arms differ in name and labels only.

    `node_selector` is laid over the template's own. No pod shares its node with one of the arms `apart_from`, and with
    `nodes` each goes to one of those. Annotations of the template are not copied. The pods run without
    an API token, projected ones included, and under the namespace's default account.
    """
    spec: Manifest = copy.deepcopy(source["spec"]["template"]["spec"])
    for field in TOKEN_FIELDS:
        spec.pop(field, None)
    spec["automountServiceAccountToken"] = False
    for volume in spec.get("volumes") or []:
        if isinstance(volume.get("projected"), dict):
            sources = volume["projected"].get("sources") or []
            volume["projected"]["sources"] = [source for source in sources if TOKEN_SOURCE not in source]
    spec.pop("nodeName", None)
    if node_selector:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **node_selector}
    if apart_from:
        spec["affinity"] = apart(spec.get("affinity"), run, apart_from)
    if nodes:
        spec["affinity"] = pinned(spec.get("affinity"), nodes)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": names.metadata(run, arm),
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 0,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": names.selector(run, arm)},
            "template": {"metadata": {"labels": names.labels(run, arm)}, "spec": spec},
        },
    }


def arm_service(
    run: RunRef,
    arm: str,
    *,
    port: int,
    target_port: int | str,
    app_protocol: str = "",
    keyed: bool = False,
    among: Mapping[str, str] | None = None,
) -> Manifest:
    """Service of one arm; its port is that of the primary's Service, so a named targetPort resolves the same.

    `keyed`: its name stands for the addresses of the pods themselves, among which the mirror chooses. `among` are
    labels of those pods of the arm that take requests, where not all do.
    """
    entry: Manifest = {"name": "http", "port": port, "targetPort": target_port, "protocol": "TCP"}
    if app_protocol:
        entry["appProtocol"] = app_protocol
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": names.metadata(run, arm),
        "spec": {
            **({"clusterIP": "None"} if keyed else {}),
            "selector": {**names.selector(run, arm), **(among or {})},
            "ports": [entry],
        },
    }


def host_and_port(url: str) -> tuple[str, int]:
    """Where an arm behind a URL of the spec listens."""
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port or 80)


def service_in(url: str, namespace: str) -> str:
    """Which Service of this namespace a URL of the spec names, if it is written as one; "" otherwise."""
    host, _ = host_and_port(url)
    name, _, rest = host.partition(".")
    return name if rest in ("", namespace, f"{namespace}.svc", f"{namespace}.svc.cluster.local") else ""


def arm_network_policy(run: RunRef, arms: tuple[str, ...], *, egress: list[Manifest]) -> Manifest:
    """All arms: requests come from the mirror only, and nothing goes out but name look-ups and what the spec allows."""
    dns = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": names.metadata(run, names.ARMS),
        "spec": {
            "podSelector": {
                "matchLabels": {names.RUN_LABEL: run.name},
                "matchExpressions": [{"key": names.COMPONENT_LABEL, "operator": "In", "values": list(arms)}],
            },
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": names.selector(run, names.MIRROR)}}]}],
            "egress": [dns, *copy.deepcopy(egress)],
        },
    }
