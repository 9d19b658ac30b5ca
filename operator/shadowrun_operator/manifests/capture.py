"""Capture: the Envoy in the customers' path, its companion, the Service before it. Pure; when is not decided here.

None of these objects carries an ownerReference: deleting the ShadowRun must never take the customers' path away.
"""

import base64
import json
from dataclasses import dataclass
from typing import Literal

from shadowrun_mirror.capture.outcome_log import FLUSH_MS, OUTCOME_LOG, OUTCOMES_FOLDER, VOLUME_BYTES
from shadowrun_mirror.config import encode
from shadowrun_mirror.directive import CaptureDirective

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.bootstrap import (
    MI,
    ROUTES_FOLDER,
    CapturePorts,
    ShadowBaggage,
    capture_bootstrap,
    capture_ports,
    envoy_memory_bytes,
)
from shadowrun_operator.manifests.names import Manifest, RunRef

BOOTSTRAP_KEY = "bootstrap.yaml"
DIRECTIVE_KEY = "directive.json"
TOKEN_KEY = "token"  # noqa: S105  the key's name, not a token

_BOOT_FOLDER = "/etc/shadowrun"
_USER = 65532  # any unprivileged id; the image needs no entry for it
_FIRST_UNPRIVILEGED_PORT = 1024
_NO_CORE_DUMP = "ulimit -c 0"  # it would hold prompts
_COMPANION_FILES = 256
_COMPANION_DATA = 160 * MI  # of 256 Mi; about 35 are used
_SETTLE_S = 10  # until an endpoint that leaves has left everywhere
_IDLE_S = 15  # how long the drain waits for connections without a request
_MARGIN_S = 15


@dataclass(frozen=True, kw_only=True)
class PrimaryService:
    """The facts of the primary's Service, and of its one port that is captured.

    `target_port` is the number the primary's containers listen on; `target_port_name` is set where the Service refers
    to it by name.
    """

    name: str
    port: int
    target_port: int
    selector: dict[str, str]
    port_name: str = ""
    target_port_name: str = ""
    app_protocol: str = ""
    ip_families: tuple[str, ...] = ()
    ip_family_policy: str = ""


@dataclass(frozen=True, kw_only=True)
class CaptureInputs:
    """Everything the objects of one capture follow from. `longest_stream_s`: an answer may take that long."""

    run: RunRef
    service_name: str
    primary: PrimaryService
    directive: CaptureDirective
    token: str
    image: str
    replicas: int = 2
    longest_stream_s: int = 600
    concurrency: int = 2  # Envoy's worker threads
    mirrors: int = 1
    shadow_baggage: ShadowBaggage = "Strip"

    def __hash__(self) -> int:
        """Of what tells runs apart: some of the rest has no hash."""
        return hash((self.run, self.service_name, self.token))

    @property
    def primary_host(self) -> str:
        """DNS name of the primary's Service."""
        return self._host(self.primary.name)

    @property
    def mirror_host(self) -> str:
        """DNS name of the mirror's Service."""
        return self._host(names.object_name(self.run.name, names.MIRROR))

    @property
    def copies_host(self) -> str:
        """DNS name that copies and outcomes are sent to: of several mirrors each has to be known."""
        if self.mirrors == 1:
            return self.mirror_host
        return self._host(names.object_name(self.run.name, names.MIRROR_PODS))

    def _host(self, service: str) -> str:
        # Relative on purpose: a pod's search list ends it with the cluster's own domain, which nobody has to know.
        return f"{service}.{self.run.namespace}.svc"


def capture_secret(inputs: CaptureInputs) -> Manifest:
    """Envoy's bootstrap, the boot directive (not copying, whatever is given) and the token shared with the mirror."""
    primary, rules = inputs.primary, inputs.directive.rules
    bootstrap = capture_bootstrap(
        listen_port=primary.target_port,
        primary_host=inputs.primary_host,
        primary_port=primary.port,
        mirror_hosts=(inputs.copies_host,),
        mirror_port=names.DATA_PORT,
        mirrors=inputs.mirrors,
        key_headers=rules.sampling.key_headers,
        run_uid=inputs.directive.run_uid,
        shadow_baggage=inputs.shadow_baggage,
        guarded=rules.pauses is not None,
        max_body_bytes=rules.max_body_bytes,
        ports=capture_ports(primary.target_port),
        listen_address="::" if "IPv6" in primary.ip_families else "0.0.0.0",  # noqa: S104
    )
    boot = CaptureDirective(
        version=inputs.directive.version,
        run_uid=inputs.directive.run_uid,
        window=inputs.directive.window,
        copying=False,
        expiry=inputs.directive.expiry,
        lease_s=inputs.directive.lease_s,
        rules=rules,
    )
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": names.metadata(inputs.run, names.CAPTURE, owned=False),
        "data": {
            BOOTSTRAP_KEY: _base64(bootstrap.encode()),
            DIRECTIVE_KEY: _base64(encode(boot)),
            TOKEN_KEY: _base64(inputs.token.encode()),
        },
    }


def capture_deployment(inputs: CaptureInputs) -> Manifest:
    """The pods in the customers' path.

    Ready when Envoy serves and has an address of the primary; the companion never decides that, not even by dying.
    """
    pods: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _drain_s(inputs) + _MARGIN_S,
        "securityContext": _pod_security(inputs.primary.target_port),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": names.selector(inputs.run, names.CAPTURE)},
            }
            for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
        ],
        "initContainers": [_first_routes(inputs)],
        "containers": [_envoy(inputs), _companion(inputs)],
        "volumes": [
            {"name": "routes", "emptyDir": {"sizeLimit": "16Mi"}},
            # In memory, so that a full one says so at once and no disk is waited for. Counts as Envoy's memory.
            {"name": "outcomes", "emptyDir": {"medium": "Memory", "sizeLimit": f"{VOLUME_BYTES // MI}Mi"}},
            _files("bootstrap", inputs, BOOTSTRAP_KEY),
            _files("boot", inputs, DIRECTIVE_KEY, TOKEN_KEY),
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": names.metadata(inputs.run, names.CAPTURE, owned=False),
        "spec": {
            "replicas": inputs.replicas,
            "revisionHistoryLimit": 0,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "selector": {"matchLabels": names.selector(inputs.run, names.CAPTURE)},
            "template": {"metadata": names.counting_pods(inputs.run, names.CAPTURE, inputs.token), "spec": pods},
        },
    }


def capture_service(inputs: CaptureInputs, *, selects: Literal["primary", "capture"]) -> Manifest:
    """The Service customers talk to. A flip changes its selector only: Envoy listens where the primary does."""
    primary = inputs.primary
    port: Manifest = {
        "port": primary.port,
        "targetPort": primary.target_port_name or primary.target_port,
        "protocol": "TCP",
    }
    if primary.port_name:
        port["name"] = primary.port_name
    if primary.app_protocol:
        port["appProtocol"] = primary.app_protocol
    chosen = primary.selector if selects == "primary" else names.selector(inputs.run, names.CAPTURE)
    spec: Manifest = {"type": "ClusterIP", "selector": dict(chosen), "ports": [port]}
    if primary.ip_families:
        spec["ipFamilies"] = list(primary.ip_families)
    if primary.ip_family_policy:
        spec["ipFamilyPolicy"] = primary.ip_family_policy
    metadata = names.metadata(inputs.run, names.CAPTURE, name=inputs.service_name, owned=False)
    metadata["annotations"] = {
        names.PRIMARY_ANNOTATION: json.dumps(primary.selector, sort_keys=True),
        names.STANDS_FOR_ANNOTATION: f"{primary.name}:{primary.port}",
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def capture_pdb(inputs: CaptureInputs) -> Manifest:
    """At most one capture pod is evicted at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": names.metadata(inputs.run, names.CAPTURE, owned=False),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": names.selector(inputs.run, names.CAPTURE)}},
    }


def _first_routes(inputs: CaptureInputs) -> Manifest:
    return {
        "name": "first-routes",
        "image": inputs.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-m", "shadowrun_mirror.capture", "init", "--routes", ROUTES_FOLDER],
        "env": _python(),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": _container_security(),
        "volumeMounts": [{"name": "routes", "mountPath": ROUTES_FOLDER}],
    }


def _envoy(inputs: CaptureInputs) -> Manifest:
    target, ports = inputs.primary.target_port, capture_ports(inputs.primary.target_port)
    return {
        "name": "envoy",
        "image": inputs.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", envoy_command(f"{_BOOT_FOLDER}/{BOOTSTRAP_KEY}", inputs.concurrency)],
        "ports": [
            {"name": inputs.primary.target_port_name or "customers", "containerPort": target, "protocol": "TCP"},
            {"name": "readiness", "containerPort": ports.readiness, "protocol": "TCP"},
        ],
        "env": _python(),
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": ports.readiness},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        "lifecycle": {"preStop": {"exec": {"command": _drain_command(inputs, ports)}}},
        "resources": {
            "requests": {"cpu": "500m", "memory": "256Mi"},
            # No CPU limit: a throttled Envoy is a slow primary.
            "limits": {"memory": _envoy_memory(inputs)},
        },
        "securityContext": _container_security(),
        "volumeMounts": [
            {"name": "bootstrap", "mountPath": _BOOT_FOLDER, "readOnly": True},
            {"name": "routes", "mountPath": ROUTES_FOLDER, "readOnly": True},
            {"name": "outcomes", "mountPath": OUTCOMES_FOLDER},
        ],
    }


def envoy_command(bootstrap: str, concurrency: int, envoy: str = "envoy") -> str:
    """A shell command that becomes Envoy, with a new id at every start.

    Only its log reaches the container's: what Envoy writes to stderr when it crashes has headers and bodies of the
    requests at hand in it. Where the container's output cannot be opened there is no log, but Envoy starts.
    """
    log = "log=/dev/stdout; (: >>$log) 2>/dev/null || log=/dev/null"
    start = (
        f'exec {envoy} -c {bootstrap} --service-node "$(cat /proc/sys/kernel/random/uuid)" --concurrency {concurrency} '
        f"--disable-hot-restart --log-level warning --log-path $log --file-flush-interval-msec {FLUSH_MS} 2>/dev/null"
    )
    return f"{_NO_CORE_DUMP}; {log}; {start}"


def _envoy_memory(inputs: CaptureInputs) -> str:
    needed = envoy_memory_bytes(inputs.directive.rules.max_body_bytes) + VOLUME_BYTES
    return f"{-(-needed // MI)}Mi"


def _companion(inputs: CaptureInputs) -> Manifest:
    ports = capture_ports(inputs.primary.target_port)
    return {
        "name": "companion",
        "image": inputs.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", companion_command(ROUTES_FOLDER, _BOOT_FOLDER, OUTCOME_LOG, ports)],
        "ports": [{"name": "companion", "containerPort": ports.companion, "protocol": "TCP"}],
        "env": [
            *_python(),
            {"name": "MIRROR_URL", "value": f"http://{inputs.mirror_host}:{names.CONTROL_PORT}"},
            {"name": "MIRRORS_URL", "value": f"http://{inputs.copies_host}:{names.CONTROL_PORT}"},
            _downward("POD_NAME", "metadata.name"),
            _downward("POD_UID", "metadata.uid"),
        ],
        # Evidence stays readable until Envoy is done. No probes: either would take Envoy out of the endpoints too.
        "lifecycle": {"preStop": {"exec": {"command": _drain_command(inputs, ports)}}},
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": _container_security(),
        "volumeMounts": [
            {"name": "boot", "mountPath": _BOOT_FOLDER, "readOnly": True},
            {"name": "routes", "mountPath": ROUTES_FOLDER},
            {"name": "outcomes", "mountPath": OUTCOMES_FOLDER},
        ],
    }


def companion_command(
    routes_folder: str, boot_folder: str, outcome_log: str, ports: CapturePorts, python: str = "python"
) -> str:
    """A shell loop around the companion that puts the pass-through routes back before every start.

    A container that exits makes its whole pod unready, customers included; so the process may die, but its container
    stays. Its memory and its connections are limited well below the container's own, so that it is the process which
    meets a limit. And a companion that cannot even start leaves Envoy in pass-through.
    """
    limits = f"{_NO_CORE_DUMP}; ulimit -n {_COMPANION_FILES}; ulimit -d {_COMPANION_DATA >> 10}"
    run = (
        f"{python} -m shadowrun_mirror.capture run --routes {routes_folder} --boot {boot_folder} "
        f"--outcomes {outcome_log} --admin http://127.0.0.1:{ports.admin} --port {ports.companion}"
    )
    restore = (
        f"cp {routes_folder}/passing.json {routes_folder}/.next && mv {routes_folder}/.next {routes_folder}/routes.json"
    )
    return "\n".join(
        (
            limits,
            f"trap 'kill $child; {restore}; exit 0' TERM INT",
            f"while :; do {restore}; {run} & child=$!; wait $child; {restore}; sleep 1; done",
        )
    )


def _drain_command(inputs: CaptureInputs, ports: CapturePorts) -> list[str]:
    admin, settle, longest = f"http://127.0.0.1:{ports.admin}", str(_SETTLE_S), str(_drain_s(inputs))
    command = ["python", "-m", "shadowrun_mirror.capture", "drain", "--admin", admin]
    return [*command, "--settle-s", settle, "--timeout-s", longest]


def _drain_s(inputs: CaptureInputs) -> int:
    return _SETTLE_S + inputs.longest_stream_s + _IDLE_S


def _files(name: str, inputs: CaptureInputs, *keys: str) -> Manifest:
    items = [{"key": key, "path": key} for key in keys]
    secret = names.object_name(inputs.run.name, names.CAPTURE)
    return {"name": name, "secret": {"secretName": secret, "defaultMode": 0o440, "items": items}}


def _pod_security(target_port: int) -> Manifest:
    context: Manifest = {
        "runAsNonRoot": True,
        "runAsUser": _USER,
        "runAsGroup": _USER,
        "fsGroup": _USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if target_port < _FIRST_UNPRIVILEGED_PORT:
        # The pod's own network namespace only; the restricted profile allows this one.
        context["sysctls"] = [{"name": "net.ipv4.ip_unprivileged_port_start", "value": str(target_port)}]
    return context


def _container_security() -> Manifest:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _python() -> list[Manifest]:
    return [{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}]


def _downward(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
