"""Capture: the Envoy in the customers' path, its companion, the Service before it. Pure; when is not decided here.

None of these objects carries an ownerReference: deleting the ShadowRun must never take the customers' path away.
"""

import base64
import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Literal

import jinja2
from shadowrun_mirror.capture.outcome_log import LOG_PORT, LOG_TAG, log_record
from shadowrun_mirror.config import REQUEST_ID, encode
from shadowrun_mirror.directive import CaptureDirective

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest, RunRef

ShadowBaggage = Literal["Strip", "Trust"]
"""What happens to entries `shadow` and `shadow.run` of clients' baggage. Neither kind of request is copied."""

BOOTSTRAP_KEY = "bootstrap.yaml"
DIRECTIVE_KEY = "directive.json"
TOKEN_KEY = "token"  # noqa: S105  the key's name, not a token

_BOOT_FOLDER = "/etc/shadowrun"
_ROUTES_FOLDER = "/var/run/shadowrun"
_USER = 65532  # any unprivileged id; the image needs no entry for it
_FIRST_UNPRIVILEGED_PORT = 1024
_MI = 1 << 20
_COPY_BUDGET = 64 * _MI
_COPY_COST = 2  # a copy is held about twice: while it is buffered and while it is sent on
_NO_CORE_DUMP = "ulimit -c 0"  # it would hold prompts
_COMPANION_FILES = 256
_COMPANION_DATA = 160 * _MI  # of 256 Mi; about 35 are used
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
        """DNS name that copies are sent to: where there are several mirrors, Envoy has to know each of them."""
        if self.mirrors == 1:
            return self.mirror_host
        return self._host(names.object_name(self.run.name, names.MIRROR_PODS))

    def _host(self, service: str) -> str:
        # Relative on purpose: a pod's search list ends it with the cluster's own domain, which nobody has to know.
        return f"{service}.{self.run.namespace}.svc"


@dataclass(frozen=True, kw_only=True)
class CapturePorts:
    """Ports of a capture pod beside the customers' one. Admin is on the loopback address only."""

    admin: int
    readiness: int
    companion: int


def capture_ports(target_port: int) -> CapturePorts:
    """The usual ports, each ten thousand higher where the primary's own port is the same number."""
    admin, readiness, companion = (
        usual if usual != target_port else usual + 10_000 for usual in (9901, 9902, names.COMPANION_PORT)
    )
    return CapturePorts(admin=admin, readiness=readiness, companion=companion)


def max_copies(max_body_bytes: int) -> int:
    """Copies one Envoy holds at a time: as many as fit a fixed memory budget, between 4 and 256."""
    return max(4, min(256, _COPY_BUDGET // max(1, max_body_bytes)))


def envoy_memory_bytes(max_body_bytes: int, mirrors: int = 1) -> int:
    """Memory limit of the Envoy container: 1 GiB for customers, and what the copies may take on top."""
    cost = _COPY_COST if mirrors == 1 else _COPY_COST + 1  # kept once more, for another mirror
    return 1024 * _MI + cost * max_copies(max_body_bytes) * max_body_bytes


def capture_bootstrap(
    *,
    listen_port: int,
    primary_host: str,
    primary_port: int,
    mirror_hosts: tuple[str, ...],
    mirror_port: int,
    max_body_bytes: int,
    ports: CapturePorts,
    run_uid: str,
    log_port: int = LOG_PORT,
    mirrors: int = 1,
    key_headers: tuple[str, ...] = (),
    shadow_baggage: ShadowBaggage = "Strip",
    routes_folder: str = _ROUTES_FOLDER,
    listen_address: str = "0.0.0.0",  # noqa: S104  the customers' port
) -> str:
    """Envoy's static configuration as YAML; the routes come from `routes_folder` while it runs.

    `mirrors` is how many there are behind `mirror_hosts`; more than one and copies are spread by `key_headers`, then by
    request id.
    """
    return _bootstrap_template().render(
        listen_address=listen_address,
        listen_port=listen_port,
        primary_host=primary_host,
        primary_port=primary_port,
        mirror_hosts=mirror_hosts,
        mirror_port=mirror_port,
        mirrors=mirrors,
        hash_headers=tuple(dict.fromkeys((*key_headers, REQUEST_ID))),
        log_port=log_port,
        log_tag=LOG_TAG,
        log_record=log_record(run_uid),
        baggage_script=_baggage_script() if shadow_baggage == "Strip" else "",
        max_body_bytes=max_body_bytes,
        max_copies=max_copies(max_body_bytes),
        max_heap_bytes=envoy_memory_bytes(max_body_bytes, mirrors),
        admin_port=ports.admin,
        readiness_port=ports.readiness,
        routes_folder=routes_folder,
    )


@functools.cache
def _baggage_script() -> str:
    return resources.files(__package__).joinpath("baggage.lua").read_text()


@functools.cache  # compiled once: the objects are built anew at every look at a run
def _bootstrap_template() -> jinja2.Template:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701  YAML, by tojson
    return environment.from_string(resources.files(__package__).joinpath("envoy.yaml.j2").read_text())


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
    metadata["annotations"] = {names.PRIMARY_ANNOTATION: json.dumps(primary.selector, sort_keys=True)}
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
        "command": ["python", "-m", "shadowrun_mirror.capture", "init", "--routes", _ROUTES_FOLDER],
        "env": _python(),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": _container_security(),
        "volumeMounts": [{"name": "routes", "mountPath": _ROUTES_FOLDER}],
    }


def _envoy(inputs: CaptureInputs) -> Manifest:
    target, ports = inputs.primary.target_port, capture_ports(inputs.primary.target_port)
    start = (
        f"{_NO_CORE_DUMP}; exec envoy -c {_BOOT_FOLDER}/{BOOTSTRAP_KEY} "
        '--service-node "$(cat /proc/sys/kernel/random/uuid)" '
        f"--concurrency {inputs.concurrency} --disable-hot-restart --log-level warning"
    )
    return {
        "name": "envoy",
        "image": inputs.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", start],
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
            "limits": {"memory": f"{-(-envoy_memory_bytes(inputs.directive.rules.max_body_bytes, inputs.mirrors) // _MI)}Mi"},
        },
        "securityContext": _container_security(),
        "volumeMounts": [
            {"name": "bootstrap", "mountPath": _BOOT_FOLDER, "readOnly": True},
            {"name": "routes", "mountPath": _ROUTES_FOLDER, "readOnly": True},
        ],
    }


def _companion(inputs: CaptureInputs) -> Manifest:
    ports = capture_ports(inputs.primary.target_port)
    return {
        "name": "companion",
        "image": inputs.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", companion_command(_ROUTES_FOLDER, _BOOT_FOLDER, ports)],
        "ports": [{"name": "companion", "containerPort": ports.companion, "protocol": "TCP"}],
        "env": [
            *_python(),
            {"name": "MIRROR_URL", "value": f"http://{inputs.mirror_host}:{names.CONTROL_PORT}"},
            _downward("POD_NAME", "metadata.name"),
            _downward("POD_UID", "metadata.uid"),
        ],
        # Evidence stays readable until Envoy is done. No probes: either would take Envoy out of the endpoints too.
        "lifecycle": {"preStop": {"exec": {"command": _drain_command(inputs, ports)}}},
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": _container_security(),
        "volumeMounts": [
            {"name": "boot", "mountPath": _BOOT_FOLDER, "readOnly": True},
            {"name": "routes", "mountPath": _ROUTES_FOLDER},
        ],
    }


def companion_command(routes_folder: str, boot_folder: str, ports: CapturePorts, python: str = "python") -> str:
    """A shell loop around the companion that puts the pass-through routes back before every start.

    A container that exits makes its whole pod unready, customers included; so the process may die, but its container
    stays. Its memory and its connections are limited well below the container's own, so that it is the process which
    meets a limit. And a companion that cannot even start leaves Envoy in pass-through.
    """
    limits = f"{_NO_CORE_DUMP}; ulimit -n {_COMPANION_FILES}; ulimit -d {_COMPANION_DATA >> 10}"
    run = (
        f"{python} -m shadowrun_mirror.capture run --routes {routes_folder} --boot {boot_folder} "
        f"--admin http://127.0.0.1:{ports.admin} --port {ports.companion}"
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
