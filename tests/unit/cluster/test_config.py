"""The configuration files say what the cluster's programs must be told."""

import base64
import ipaddress
import json
import subprocess
from pathlib import Path

import pytest

from tests.cluster import config
from tests.cluster.topology import ALL_LANES_CIDR, LANES, NODES, SERVICE_CIDR

pytestmark = pytest.mark.surfaces

LANE = LANES[2]


def test_a_kubeconfig_is_complete_in_itself() -> None:
    written = json.loads(config.kubeconfig(LANE, "secret", b"certificate"))
    cluster = written["clusters"][0]["cluster"]
    assert cluster["server"] == "https://10.89.2.1:16443"
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"certificate"
    assert written["users"][0]["user"]["token"] == "secret"
    assert written["current-context"] == written["contexts"][0]["name"]


def test_no_two_addresses_on_a_machine_are_the_same() -> None:
    addresses = [lane.gateway for lane in LANES] + [lane.address(node) for lane in LANES for node in NODES]
    links = [link for lane in LANES for link in lane.links]
    groups = [lane.control_group for lane in LANES]
    for names in (addresses, links, groups, [lane.loopback for lane in LANES]):
        assert len(set(names)) == len(names)
    assert all(ipaddress.ip_address(address) in ipaddress.ip_network(ALL_LANES_CIDR) for address in addresses)
    assert all(len(link) <= 15 for link in links), "the kernel takes no longer name"


def test_ranges_of_pods_are_apart_and_inside_their_cluster() -> None:
    ranges = {lane: [ipaddress.ip_network(lane.pod_range(node)) for node in NODES] for lane in LANES}
    everything = [one for own in ranges.values() for one in own]
    assert not any(a.overlaps(b) for a in everything for b in everything if a is not b)
    for lane, own in ranges.items():
        whole = ipaddress.ip_network(lane.pod_cidr)
        assert isinstance(whole, ipaddress.IPv4Network)
        assert all(isinstance(one, ipaddress.IPv4Network) and one.subnet_of(whole) for one in own)
        assert not whole.overlaps(ipaddress.ip_network(SERVICE_CIDR))


def test_a_node_has_a_route_to_every_other_node() -> None:
    lines = config.node_network(LANE, NODES[0]).splitlines()
    assert "address replace 10.89.2.11/24 dev eth0" in lines
    assert "route replace default via 10.89.2.1" in lines
    assert [line for line in lines if "10.242" in line] == [
        "route replace 10.242.2.0/24 via 10.89.2.12",
        "route replace 10.242.3.0/24 via 10.89.2.13",
    ]


def test_pods_get_addresses_of_their_node() -> None:
    bridge, _ = json.loads(config.cni(LANE, NODES[1]))["plugins"]
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.242.2.0/24"}]]


def test_a_kubelet_stays_in_its_control_group_and_never_evicts_for_disk() -> None:
    written = json.loads(config.kubelet("/shadowrun/sr2/node1"))
    assert written["cgroupRoot"] == "/shadowrun/sr2/node1"
    assert written["evictionHard"]["nodefs.available"] == "0%"
    assert written["evictionHard"]["memory.available"] != "0"
    assert written["clusterDNS"] == ["10.96.0.10"]


def test_gpus_are_capacity_and_allocatable() -> None:
    status = json.loads(config.gpu_patch(8))["status"]
    assert status["capacity"] == status["allocatable"] == {"nvidia.com/gpu": "8"}


def test_dns_names_its_own_address() -> None:
    service, endpoints = json.loads(config.dns_objects(LANE))["items"]
    assert service["spec"]["clusterIP"] == "10.96.0.10"
    assert endpoints["endpoints"] == [{"addresses": ["10.89.2.1"]}]
    assert "bind 10.89.2.1" in config.corefile(LANE, Path("/state/kubeconfig"))


def test_the_nodes_first_script_is_a_shell_script_whatever_the_folder_is_called() -> None:
    script = config.node_setup(NODES[0], Path("/a folder/it's"), Path("/a folder/ready"))
    subprocess.run(["sh", "-n", "-c", script], check=True)
    assert "mount --bind '/a folder/it'\"'\"'s/kubelet' /var/lib/kubelet" in script


def test_both_pools_carry_every_label_a_match_may_name() -> None:
    keys = {"nvidia.com/gpu.product", "nvidia.com/gpu.memory", "nvidia.com/gpu.count"}
    keys |= {"node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"}
    assert all(keys <= node.labels().keys() for node in NODES)
    products = [node.pool.product for node in NODES]
    assert products == ["NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S"]
