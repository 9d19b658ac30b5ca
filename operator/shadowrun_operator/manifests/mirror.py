"""The mirror: its Secret, Deployment, Service and network policy. Pure; what is configured is not decided here."""

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
    credentials_secret: str = "",
    credentials_key: str = "token",
) -> Manifest:
    """One mirror pod. It may end what is in flight before it is killed; it has no API token."""
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
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": names.metadata(run, names.MIRROR),
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 0,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": names.selector(run, names.MIRROR)},
            "template": {"metadata": names.counting_pods(run, names.MIRROR, token), "spec": pods},
        },
    }


def mirror_service(run: RunRef) -> Manifest:
    """Where capture sends copies and asks for its directive."""
    ports = (("data", names.DATA_PORT), ("control", names.CONTROL_PORT))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": names.metadata(run, names.MIRROR),
        "spec": {
            "selector": names.selector(run, names.MIRROR),
            "ports": [{"name": n, "port": p, "targetPort": n, "protocol": "TCP"} for n, p in ports],
        },
    }


def mirror_network_policy(run: RunRef, *, operator_namespace: str) -> Manifest:
    """Copies and directives: from capture pods only; evidence and configuration: from the operator's namespace too.

    An empty `operator_namespace` (an operator outside the cluster) leaves the control port open to the network; the
    token still protects it.
    """
    capture = {"podSelector": {"matchLabels": names.selector(run, names.CAPTURE)}}
    control: Manifest = {"ports": [{"protocol": "TCP", "port": names.CONTROL_PORT}]}
    if operator_namespace:
        operator = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": operator_namespace}}}
        control["from"] = [capture, operator]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": names.metadata(run, names.MIRROR),
        "spec": {
            "podSelector": {"matchLabels": names.selector(run, names.MIRROR)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [capture], "ports": [{"protocol": "TCP", "port": names.DATA_PORT}]}, control],
        },
    }


def _downward(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
