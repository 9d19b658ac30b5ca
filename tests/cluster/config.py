"""Renders the configuration files of the cluster's programs. Pure: topology and paths in, text out."""

import base64
import json
import shlex
from pathlib import Path
from typing import Any

from .topology import DNS_SERVICE_IP, GPU_RESOURCE, NODES, Lane, Node

PAUSE_IMAGE = "localhost/pause:1"

# Folders that are the node's own although programs name them absolutely. /run is a tmpfs.
NODE_FOLDERS = {
    "/var/lib/cni": "cni-state",
    "/var/lib/containerd": "containerd",
    "/var/lib/kubelet": "kubelet",
    "/var/log": "log",
}


def kubeconfig(lane: Lane, token: str, certificate_authority: bytes) -> str:
    """Complete in itself. JSON is YAML, so every reader of kubeconfig files takes it."""
    trusted = base64.b64encode(certificate_authority).decode()
    return _json(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": {"server": lane.api_url, "certificate-authority-data": trusted}}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
            "current-context": "local",
        }
    )


def token_file(token: str) -> str:
    return f"{token},admin,admin,system:masters\n"


def cni(lane: Lane, node: Node) -> str:
    """A bridge per node, addresses from the node's own range; the routes between nodes are in `node_network`."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": lane.pod_range(node)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return _json({"cniVersion": "1.0.0", "name": "podnet", "plugins": [bridge, portmap]})


def containerd(cni_folder: Path) -> str:
    """Paths are containerd's own defaults: inside its node they are the node's alone.

    restrict_oom_score_adj: without CAP_SYS_RESOURCE runc may not lower a score, and no container would start.
    """
    return f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = {json.dumps(str(cni_folder))}
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{PAUSE_IMAGE}"
"""


def kubelet(cgroup: str) -> str:
    """A kubelet that shares its machine with two others: its own cgroup, and no opinion about disk space."""
    return _json(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": cgroup,
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "failSwapOn": False,
            "serializeImagePulls": False,
            "clusterDNS": [DNS_SERVICE_IP],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            # "0%" switches a threshold off; memory refuses 0.
            "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "memory.available": "10Mi"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "readOnlyPort": 0,
            "healthzPort": 0,
        }
    )


def kube_proxy(lane: Lane, node: Node, kubeconfig_path: Path) -> str:
    return _json(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": str(kubeconfig_path)},
            "clusterCIDR": lane.pod_cidr,
            "hostnameOverride": node.name,
            # 0 leaves the machine's connection tracking as it is.
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }
    )


def corefile(lane: Lane, kubeconfig_path: Path) -> str:
    return f"""\
.:53 {{
  bind {lane.gateway}
  errors
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig_path} local
  }}
  cache 5
}}
"""


def dns_objects(lane: Lane) -> str:
    """CoreDNS runs on the machine, so its Service has no selector and names the address itself."""
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {"clusterIP": DNS_SERVICE_IP, "ports": ports},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns-1",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": [{"addresses": [lane.gateway]}],
    }
    return _json({"apiVersion": "v1", "kind": "List", "items": [service, endpoints]})


def gpu_patch(gpus: int) -> str:
    """An extended resource as Kubernetes defines it: capacity that somebody adds to the node's status.

    The kubelet keeps resources it does not know and derives allocatable from them; setting both saves waiting for that.
    """
    quantity = {GPU_RESOURCE: str(gpus)}
    return json.dumps({"status": {"capacity": quantity, "allocatable": quantity}})


def node_setup(node: Node, folder: Path, ready: Path) -> str:
    """The script of a node's first process: give the node folders of its own, then stay and reap orphans.

    Mounts made here are seen by the node's other processes and by no one else; they end with the node.
    """
    binds = "\n".join(
        f"mount --bind {shlex.quote(str(folder / name))} {target}" for target, name in NODE_FOLDERS.items()
    )
    return f"""\
set -e
mount --make-rshared /
{binds}
mount -t tmpfs -o mode=755 tmpfs /run
hostname {node.name}
: > {shlex.quote(str(ready))}
sleep infinity &
wait
"""


def node_network(lane: Lane, node: Node) -> str:
    """Input of `ip -batch` inside the node."""
    lines = [
        "link set lo up",
        f"address replace {lane.address(node)}/24 dev eth0",
        "link set eth0 up",
        f"route replace default via {lane.gateway}",
    ]
    lines += [f"route replace {lane.pod_range(other)} via {lane.address(other)}" for other in NODES if other != node]
    return "\n".join(lines) + "\n"


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
