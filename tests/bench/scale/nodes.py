"""Nodes that are objects only, and what their kubelets would say of the pods on them. Containers are never started.

The API server, the scheduler and the controllers are the real ones.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any

from kubernetes.aio import client
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from shadowrun_operator.cluster.client import Cluster as Client
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest

from tests.bench.scale.replicas import Replicas

POOL = {"bench.shadowrun.dev/pool": "simulated"}
NODES = 4
_LEASES = "kube-node-lease"
_HEARTBEAT_S = 10.0
_LOOK_S = 0.5
_ROOM = {"cpu": "1000", "memory": "4Ti", "pods": "1000"}


def node_names() -> list[str]:
    """Of all of them."""
    return [f"simulated-{number}" for number in range(1, NODES + 1)]


class Nodes:
    """Simulated nodes, and the pods of one namespace on them. `address` is what every pod says is its own."""

    def __init__(self, api: ApiClient, namespace: str, address: str, replicas: Replicas) -> None:
        self.replicas = replicas
        self.removing = False
        self._client = Client(api)
        self._core = client.CoreV1Api(api)
        self._leases = client.CoordinationV1Api(api)
        self._namespace, self._address = namespace, address

    async def create(self) -> None:
        """Ready, with room for everything."""
        for name in node_names():
            meta = {"name": name, "labels": {**POOL, "gpu": "simulated", "kubernetes.io/hostname": name}}
            body: Any = {"metadata": meta, "spec": {}}
            await self._core.create_node(body)
        await self._beat()

    async def delete(self) -> None:
        """And their leases go with them."""
        for name in node_names():
            await _allowing_404(self._core.delete_node(name))

    async def beat(self) -> None:
        """For ever: the nodes are alive."""
        while True:
            await self._beat()
            await asyncio.sleep(_HEARTBEAT_S)

    async def run_pods(self) -> None:
        """For ever: pods that have a node are ready soon; those that should go are gone soon, while `removing`.

        Few are asked for, and as plain JSON: what times the lags runs in the same loop.
        """
        while True:
            waiting = "" if self.removing else "status.phase=Pending"
            found = await self._client.list("Pod", self._namespace, fields=waiting)
            await asyncio.gather(*(self._attend(pod) for pod in found))
            await asyncio.sleep(_LOOK_S)

    async def _attend(self, pod: Manifest) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        if "deletionTimestamp" in meta:
            gone = self._core.delete_namespaced_pod(meta["name"], self._namespace, grace_period_seconds=0)
            await _allowing_404(gone)
        elif spec.get("nodeName") in node_names() and pod["status"]["phase"] == "Pending":
            labels = meta["labels"]
            self.replicas.pods[labels[names.RUN_LABEL], labels[names.COMPONENT_LABEL]] = meta["uid"]
            status = self._status([container["name"] for container in spec["containers"]])
            patched = self._core.patch_namespaced_pod_status(meta["name"], self._namespace, {"status": status})
            await _allowing_404(patched)

    def _status(self, containers: list[str]) -> dict[str, Any]:
        kinds = ("Initialized", "ContainersReady", "Ready")
        running = {"running": {"startedAt": _now()}}
        return {
            "phase": "Running",
            "podIP": self._address,
            "podIPs": [{"ip": self._address}],
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": _now()} for kind in kinds],
            "containerStatuses": [
                {"name": name, "image": "i:1", "imageID": "", "ready": True, "restartCount": 0, "state": running}
                for name in containers
            ],
        }

    async def _beat(self) -> None:
        for name in node_names():
            ready = {
                "type": "Ready",
                "status": "True",
                "reason": "Simulated",
                "message": "",
                "lastHeartbeatTime": _now(),
            }
            status = {"capacity": _ROOM, "allocatable": _ROOM, "conditions": [{**ready, "lastTransitionTime": _now()}]}
            await self._core.patch_node_status(name, {"status": status})
            spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now()}
            body: Any = {"metadata": {"name": name, "namespace": _LEASES}, "spec": spec}
            try:
                await self._leases.patch_namespaced_lease(name, _LEASES, body)
            except ApiException as refused:
                if refused.status != 404:
                    raise
                await self._leases.create_namespaced_lease(_LEASES, body)


async def _allowing_404(call: Any) -> None:
    try:
        await call
    except ApiException as refused:
        if refused.status not in (404, 409):
            raise


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
