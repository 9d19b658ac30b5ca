"""The mirror: its Secret, Deployment, Services and network policy. Pure; what is configured is not decided here."""

import base64

from shadowrun_mirror.config import MirrorConfig, encode

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest, RunRef

CONFIG_KEY = "config.json"
TOKEN_KEY = "token"  # noqa: S105  the key's name, not a token
BOOT_FOLDER = "/etc/shadowrun"
CREDENTIALS_FOLDER = "/etc/shadowrun-credentials"
CREDENTIAL_FILE = f"{CREDENTIALS_FOLDER}/token"

# Enough for the default request timeout, a last reading and some to spare. Not made from the timeout, which may change
# while the run is active: that would start the pod anew. What still is in flight then is lost and counted.
_GRACE_S = 120
_USER = 65532  # any unprivileged id; the image needs no entry for it


def mirror_secret(run: RunRef, config: MirrorConfig, token: str) -> Manifest:
    """Boot copy of the configuration, and the token that protects the control port."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": names.metadata(run, names.MIRROR),
        "data": {CONFIG_KEY: _base64(encode(config)), TOKEN_KEY: _base64(token.encode())},
    }


def mirror_deployment(
    run: RunRef,
    *,
    image: str,
    token: str,
    replicas: int = 1,
    credentials_secret: str = "",
    credentials_key: str = "token",
) -> Manifest:
    """The mirror's pods. One may end what is in flight before it is killed; it has no API token.

    A single one is never doubled, and of several one at a time is replaced: a new pod begins with nothing remembered.
    """
    volumes: list[Manifest] = [{"name": "boot", "secret": {"secretName": names.object_name(run.name, names.MIRROR)}}]
    mounts: list[Manifest] = [{"name": "boot", "mountPath": BOOT_FOLDER, "readOnly": True}]
    if credentials_secret:
        items = [{"key": credentials_key, "path": CREDENTIAL_FILE.rsplit("/", 1)[-1]}]
        volumes.append({"name": "credentials", "secret": {"secretName": credentials_secret, "items": items}})
        mounts.append({"name": "credentials", "mountPath": CREDENTIALS_FOLDER, "readOnly": True})
    probe = {"httpGet": {"path": "/healthz", "port": "control"}}
    container: Manifest = {
        "name": "mirror",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-m", "shadowrun_mirror"],
        "ports": [
            {"name": "data", "containerPort": names.DATA_PORT, "protocol": "TCP"},
            {"name": "control", "containerPort": names.CONTROL_PORT, "protocol": "TCP"},
        ],
        "env": [_downward("POD_NAME", "metadata.name"), _downward("POD_UID", "metadata.uid")],
        "readinessProbe": {**probe, "periodSeconds": 2},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 6, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    pods: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }
    strategy: Manifest = {"type": "Recreate"}
    if replicas > 1:
        pods["affinity"] = {"podAntiAffinity": _apart(run)}
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": names.metadata(run, names.MIRROR),
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 0,
            "strategy": strategy,
            "selector": {"matchLabels": names.selector(run, names.MIRROR)},
            "template": {"metadata": names.counting_pods(run, names.MIRROR, token), "spec": pods},
        },
    }


def mirror_service(run: RunRef) -> Manifest:
    """Where capture asks for its directive: any of the mirror's pods."""
    spec = {"selector": names.selector(run, names.MIRROR), "ports": _ports(*_PORTS)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": names.metadata(run, names.MIRROR), "spec": spec}


def mirror_pods_service(run: RunRef) -> Manifest:
    """The name under which capture finds every pod of the mirror, to keep what belongs together at one of them."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": names.metadata(run, names.MIRROR, name=names.object_name(run.name, names.MIRROR_PODS)),
        "spec": {"clusterIP": "None", "selector": names.selector(run, names.MIRROR), "ports": _ports(*_PORTS)},
    }


def copies_service(run: RunRef, name: str) -> Manifest:
    """Where a proxy that is not ours sends copies.

    Without an ownerReference: it stays when the run goes, without endpoints, so that copies are refused at once and
    the proxy's configuration keeps naming a host that exists.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": names.metadata(run, names.COPIES, name=name, owned=False),
        "spec": {
            "type": "ClusterIP",
            "selector": names.selector(run, names.MIRROR),
            "ports": _ports(("data", names.DATA_PORT)),
        },
    }


def mirror_pdb(run: RunRef) -> Manifest:
    """Of several mirror pods at most one is evicted at a time. A single one may always be: it is off the path."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": names.metadata(run, names.MIRROR),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": names.selector(run, names.MIRROR)}},
    }


def mirror_network_policy(run: RunRef, *, operator_namespace: str, external: bool = False) -> Manifest:
    """Copies: from capture pods only; the control port: from them, who ask for directives and tell outcomes, and from
    the operator's namespace.

    An empty `operator_namespace` (an operator outside the cluster) leaves the control port open to the network; the
    token still protects it. `external`: there is no capture, and copies come from anywhere.
    """
    if external:
        return _policy(run, [{"ports": _numbers(names.DATA_PORT)}, _control(operator_namespace)])
    capture = {"podSelector": {"matchLabels": names.selector(run, names.CAPTURE)}}
    copies = {"from": [capture], "ports": _numbers(names.DATA_PORT)}
    return _policy(run, [copies, _control(operator_namespace, capture)])


def _control(operator_namespace: str, *others: Manifest) -> Manifest:
    control: Manifest = {"ports": _numbers(names.CONTROL_PORT)}
    if operator_namespace:
        operator = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": operator_namespace}}}
        control["from"] = [*others, operator]
    return control


def _policy(run: RunRef, ingress: list[Manifest]) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": names.metadata(run, names.MIRROR),
        "spec": {
            "podSelector": {"matchLabels": names.selector(run, names.MIRROR)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }


_PORTS = (("data", names.DATA_PORT), ("control", names.CONTROL_PORT))


def _ports(*named: tuple[str, int]) -> list[Manifest]:
    return [{"name": name, "port": port, "targetPort": name, "protocol": "TCP"} for name, port in named]


def _numbers(*ports: int) -> list[Manifest]:
    return [{"protocol": "TCP", "port": port} for port in ports]


def _apart(run: RunRef) -> Manifest:
    """Preferred, not required: a cluster of one node still runs them all."""
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": names.selector(run, names.MIRROR)},
    }
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}


def _downward(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
