"""The cluster's control plane and DNS, as plain processes on the machine, reachable on the bridge's address only."""

import secrets
import socket
import struct
from pathlib import Path

from . import config
from .commands import run, wait_until
from .gotools import path_of
from .kubectl import run_client
from .paths import State
from .processes import Spawned, spawn
from .topology import (
    API_PORT,
    CONTROLLER_MANAGER_PORT,
    DNS_SERVICE_IP,
    ETCD_PEER_PORT,
    ETCD_PORT,
    SCHEDULER_PORT,
    SERVICE_CIDR,
    Lane,
)

PROCESSES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns")
START_TIMEOUT = 120.0
CALL_TIMEOUT = 60.0


def start_api(state: State, lane: Lane) -> None:
    """etcd and the API server; returns when the API is ready and `kubeconfig` is written."""
    folder = state.control_plane
    folder.mkdir(parents=True)
    _start_etcd(state, lane)
    key = folder / "service-accounts.key"
    run(["openssl", "genrsa", "-out", key, "2048"])
    token = secrets.token_hex(16)
    _write_private(folder / "tokens.csv", config.token_file(token))
    server = _start_apiserver(state, lane, key)
    certificate = folder / "pki" / "apiserver.crt"
    # It writes its certificate and then listens; a file that merely exists may be half written.
    server.wait_until(lambda: _listens(lane.gateway, API_PORT), "it listens", START_TIMEOUT, poll=0.05)
    _write_private(state.kubeconfig, config.kubeconfig(lane, token, certificate.read_bytes()))
    server.wait_until(lambda: kubectl(state, "get", "--raw", "/readyz") == "ok", "it is ready", START_TIMEOUT)


def _listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def etcd_url(lane: Lane) -> str:
    return f"http://{lane.loopback}:{ETCD_PORT}"


def _start_etcd(state: State, lane: Lane) -> None:
    argv: list[str | Path] = [
        path_of("etcd"),
        f"--data-dir={state.control_plane / 'etcd'}",
        "--unsafe-no-fsync",  # the data lives as long as the test
        f"--listen-client-urls={etcd_url(lane)}",
        f"--advertise-client-urls={etcd_url(lane)}",
        f"--listen-peer-urls=http://{lane.loopback}:{ETCD_PEER_PORT}",
    ]
    spawn("etcd", argv, state)


def _start_apiserver(state: State, lane: Lane, key: Path) -> Spawned:
    folder = state.control_plane
    argv: list[str | Path] = [
        path_of("kube-apiserver"),
        f"--etcd-servers={etcd_url(lane)}",
        f"--secure-port={API_PORT}",
        f"--bind-address={lane.gateway}",
        f"--advertise-address={lane.gateway}",
        f"--cert-dir={folder / 'pki'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--allow-privileged=true",
        # The API server is outside the pod network's Services, so it calls webhooks at their pods.
        "--enable-aggregator-routing=true",
        # Node names resolve nowhere; without this exec and logs would try to.
        "--kubelet-preferred-address-types=InternalIP",
    ]
    return spawn("kube-apiserver", argv, state)


def start_controllers(state: State, lane: Lane) -> None:
    folder = state.control_plane
    controllers: list[str | Path] = [
        path_of("kube-controller-manager"),
        f"--kubeconfig={state.kubeconfig}",
        f"--service-account-private-key-file={folder / 'service-accounts.key'}",
        f"--root-ca-file={folder / 'pki' / 'apiserver.crt'}",
        "--leader-elect=false",
        # Each node's range is fixed by its number, whatever the order in which nodes register.
        "--allocate-node-cidrs=false",
        f"--bind-address={lane.loopback}",
        f"--secure-port={CONTROLLER_MANAGER_PORT}",
    ]
    scheduler: list[str | Path] = [
        path_of("kube-scheduler"),
        f"--kubeconfig={state.kubeconfig}",
        "--leader-elect=false",
        f"--bind-address={lane.loopback}",
        f"--secure-port={SCHEDULER_PORT}",
    ]
    spawn("kube-controller-manager", controllers, state)
    spawn("kube-scheduler", scheduler, state)


def start_dns(state: State, lane: Lane) -> None:
    """CoreDNS and the Service that pods ask; returns when it answers."""
    corefile = state.control_plane / "Corefile"
    corefile.write_text(config.corefile(lane, state.kubeconfig))
    coredns = spawn("coredns", [path_of("coredns"), "-conf", corefile], state)
    objects = state.control_plane / "dns.json"
    objects.write_text(config.dns_objects(lane))
    # kube-system appears a moment after the API is ready.
    wait_until(lambda: bool(kubectl(state, "apply", "-f", str(objects))), "the DNS Service is made", START_TIMEOUT)
    name = "kube-dns.kube-system.svc.cluster.local"
    coredns.wait_until(lambda: resolve(name, lane.gateway) == DNS_SERVICE_IP, f"it knows {name}", START_TIMEOUT)


def resolve(name: str, server: str) -> str | None:
    """The first address a DNS server gives for a name, asked directly: the machine's own resolver must not answer."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    query = struct.pack(">HHHHHH", 1, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(1.0)
        try:
            asking.sendto(query, (server, 53))
            answer = asking.recv(512)
        except OSError:
            return None
    answers = struct.unpack(">H", answer[6:8])[0]
    return socket.inet_ntoa(answer[-4:]) if answers else None


def kubectl(state: State, *args: str) -> str:
    return run_client("kubectl", state.kubeconfig, *args, timeout=CALL_TIMEOUT)


def _write_private(path: Path, text: str) -> None:
    path.touch(0o600)
    path.write_text(text)
