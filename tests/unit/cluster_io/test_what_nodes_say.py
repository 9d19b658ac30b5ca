"""What the cluster says of nodes, containers and pods it could not make, read as it comes from the API server."""

from typing import Any

import pytest
from shadowrun_operator.cluster.memory import Memory
from shadowrun_operator.cluster.observe import observe
from shadowrun_operator.cluster.pods import lost

from tests.unit.cluster_io.fake_cluster import FakeCluster
from tests.unit.cluster_io.test_modes import SETTINGS, cluster_with, run
from tests.unit.cluster_io.wire import answering, nobody

pytestmark = pytest.mark.operator

WELL = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
SILENT = {
    "type": "Ready",
    "status": "Unknown",
    "reason": "NodeStatusUnknown",
    "message": "Kubelet stopped posting node status.",
}
PRESSED = {"type": "MemoryPressure", "status": "True", "reason": "KubeletHasInsufficientMemory"}


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({}, "is gone"),
        ({"metadata": {"name": "n"}}, ""),
        ({"metadata": {}, "status": {"conditions": [PRESSED, WELL]}}, ""),
        ({"metadata": {}, "status": {"conditions": [SILENT]}}, "is not ready: NodeStatusUnknown (Kubelet stopped"),
        ({"metadata": {}, "status": {"conditions": [{**SILENT, "status": "False"}]}}, "is not ready: NodeStatus"),
    ],
)
def test_a_node_is_lost_when_the_cluster_says_so(node: dict[str, Any], says: str) -> None:
    assert lost(node).startswith(says)
    assert bool(lost(node)) == bool(says)


def pod(**status: Any) -> dict[str, Any]:
    labels = {"shadowrun.dev/run": "x", "shadowrun.dev/component": "candidate"}
    metadata = {"name": "x-candidate-1", "namespace": "inference", "labels": labels}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n"}, "status": status}


async def seen(cluster: FakeCluster) -> Any:
    (body,) = [item for (kind, _, _), item in cluster.objects.items() if kind == "ShadowRun"]
    return await observe(cluster, answering(nobody), SETTINGS, body, Memory())  # type: ignore[arg-type]


async def test_the_nodes_of_arms_are_looked_at() -> None:
    cluster = cluster_with(run())
    cluster.put(pod())
    assert (await seen(cluster)).lost_nodes == {"n": "is gone"}
    cluster.put({"kind": "Node", "metadata": {"name": "n", "namespace": "", "labels": {"gpu": "H200"}}, "status": {}})
    found = await seen(cluster)
    assert (found.lost_nodes, found.node_labels) == ({}, {"n": {"gpu": "H200"}})


KILLED = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"lastState": KILLED, "state": {"running": {}}}, "OOMKilled (exit code 137)"),
        ({"lastState": {}, "state": KILLED}, "OOMKilled (exit code 137)"),
        ({"state": {"running": {}}}, "for a reason that is not known (exit code not known)"),
    ],
)
async def test_a_container_that_was_started_anew_says_what_it_ended_with(status: dict[str, Any], why: str) -> None:
    cluster = cluster_with(run())
    quiet = {"name": "beside", "restartCount": 0, "state": {"running": {}}}
    cluster.put(pod(containerStatuses=[{"name": "engine", "restartCount": 3, **status}, quiet]))
    (found,) = (await seen(cluster)).pods
    assert [(r.container, r.count, r.why) for r in found.restarts] == [("engine", 3, why)]


async def test_pods_that_could_not_be_made_say_why() -> None:
    labels = {"shadowrun.dev/run": "x", "app.kubernetes.io/managed-by": "shadowrun"}
    owner = {"uid": run()["metadata"]["uid"]}
    refused = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": 'pods "x-candidate-" is forbidden: exceeded quota: few',
    }
    cluster = cluster_with(run())
    cluster.put(
        {
            "kind": "Deployment",
            "metadata": {
                "name": "x-candidate",
                "namespace": "inference",
                "labels": labels,
                "ownerReferences": [owner],
            },
            "spec": {"replicas": 1, "template": {"spec": {"containers": []}}},
            "status": {"conditions": [refused]},
        }
    )
    found = await seen(cluster)
    assert found.why_waiting("candidate") == f"FailedCreate {refused['message']}"
    assert found.why_waiting("baseline") == ""
    cluster.put(pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]))
    assert (await seen(cluster)).why_waiting("candidate").startswith("Unschedulable"), "a pod knows better"


BACKING_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}
FAILED = {"terminated": {"reason": "Error", "exitCode": 2}}
STARTING = {"waiting": {"reason": "ContainerCreating"}}


@pytest.mark.parametrize(
    ("container", "says"),
    [
        ({"ready": True, "state": {"running": {}}}, ""),
        ({"ready": False, "state": STARTING}, ""),
        ({"ready": False, "state": {"running": {}}}, ""),
        ({"ready": True, "state": {"running": {}}, "restartCount": 2, "lastState": FAILED}, ""),
        (
            {"ready": False, "state": {"running": {}}, "restartCount": 2, "lastState": FAILED},
            "engine: started anew 2 times, last after Error (exit code 2)",
        ),
        (
            {"ready": False, "state": BACKING_OFF, "restartCount": 2, "lastState": FAILED},
            "engine: started anew 2 times, last after Error (exit code 2); CrashLoopBackOff back-off 40s",
        ),
        (
            {"ready": False, "state": {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}},
            "engine: ErrImagePull no such host",
        ),
    ],
)
async def test_a_container_that_is_not_ready_says_why_also_between_two_starts(
    container: dict[str, Any], says: str
) -> None:
    cluster = cluster_with(run())
    cluster.put(pod(containerStatuses=[{"name": "engine", "restartCount": 0, **container}]))
    (found,) = (await seen(cluster)).pods
    assert found.waiting == says
