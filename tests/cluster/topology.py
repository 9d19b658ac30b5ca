"""The shape of the test cluster: its nodes, their GPU pools, and the addresses of a cluster on this machine. No I/O."""

from dataclasses import dataclass

SERVICE_CIDR = "10.96.0.0/16"
DNS_SERVICE_IP = "10.96.0.10"
API_PORT = 16443
ETCD_PORT = 12379
ETCD_PEER_PORT = 12380
CONTROLLER_MANAGER_PORT = 16444
SCHEDULER_PORT = 16445

CONTROL_GROUPS = "/shadowrun"

GPU_RESOURCE = "nvidia.com/gpu"


@dataclass(frozen=True)
class GpuPool:
    """Nodes with the same accelerator, labelled the way NVIDIA's feature discovery labels them."""

    product: str
    memory_mib: int
    instance_type: str
    gpus: int = 8

    def labels(self) -> dict[str, str]:
        return {
            "nvidia.com/gpu.product": self.product,
            "nvidia.com/gpu.memory": str(self.memory_mib),
            "nvidia.com/gpu.count": str(self.gpus),
            "node.kubernetes.io/instance-type": self.instance_type,
        }


@dataclass(frozen=True)
class Node:
    """One node of the cluster, wherever it runs."""

    number: int
    pool: GpuPool
    zone: str
    region: str = "local"
    taint: str = ""  # what its kubelet registers it with

    @property
    def name(self) -> str:
        return f"node{self.number}"

    def labels(self) -> dict[str, str]:
        place = {"topology.kubernetes.io/region": self.region, "topology.kubernetes.io/zone": self.zone}
        return self.pool.labels() | place


H100 = GpuPool("NVIDIA-H100-80GB-HBM3", 81559, "gpu-h100-8x")
L40S = GpuPool("NVIDIA-L40S", 46068, "gpu-l40s-8x")

# Two alike and one different, so that a hardware match and a mismatch are both real.
NODES = (Node(1, H100, "zone-a"), Node(2, H100, "zone-b"), Node(3, L40S, "zone-a"))


@dataclass(frozen=True)
class Lane:
    """The addresses and names one local cluster uses, so that several checkouts' clusters fit on one machine."""

    number: int

    @property
    def bridge(self) -> str:
        return f"sr{self.number}"

    @property
    def gateway(self) -> str:
        """The machine's address on the bridge: where the control plane and DNS are reached."""
        return f"10.89.{self.number}.1"

    @property
    def loopback(self) -> str:
        """What only the control plane itself may reach. All of 127/8 leads to the machine."""
        return f"127.89.{self.number}.1"

    @property
    def api_url(self) -> str:
        return f"https://{self.gateway}:{API_PORT}"

    @property
    def pod_cidr(self) -> str:
        return f"10.{244 - self.number}.0.0/16"

    def pod_range(self, node: Node) -> str:
        return f"10.{244 - self.number}.{node.number}.0/24"

    def address(self, node: Node) -> str:
        return f"10.89.{self.number}.{10 + node.number}"

    def link(self, node: Node) -> str:
        """The machine's end of the node's cable."""
        return f"{self.bridge}-{node.name}"

    @property
    def links(self) -> list[str]:
        return [*(self.link(node) for node in NODES), self.bridge]

    @property
    def control_group(self) -> str:
        """As the kubelet names it, below each hierarchy; every node has one below this."""
        return f"{CONTROL_GROUPS}/{self.bridge}"


LANES = tuple(Lane(number) for number in range(8))
ALL_LANES_CIDR = "10.89.0.0/16"
