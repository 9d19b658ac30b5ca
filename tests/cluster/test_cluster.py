"""The cluster that every end-to-end test stands on: is it what those tests take it for? The same for every provider."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.base import Cluster
from tests.cluster.commands import ClusterError
from tests.cluster.topology import GPU_RESOURCE, H100, L40S, NODES

pytestmark = [pytest.mark.e2e, pytest.mark.surfaces]

NAMESPACE = "cluster-proof"
IMAGE = "shadowrun/cluster-proof:test"
ORDINARY = ("-l", "nvidia.com/gpu.product,topology.kubernetes.io/region=local")
"""A node that a test has added for itself is none of the topology's."""
SERVER = ["python3", "-u", "-m", "http.server", "8000"]


@pytest.fixture(scope="module")
def image(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    build(cluster, tmp_path_factory.mktemp("first"), "first")
    return IMAGE


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    cluster.kubectl("create", "namespace", NAMESPACE)
    yield NAMESPACE
    cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=60s")


@pytest.fixture(scope="module")
def web(cluster: Cluster, image: str, namespace: str) -> str:
    """Two replicas on two nodes, behind a Service."""
    apply(cluster, deployment("web", image, replicas=2), service("web"))
    cluster.kubectl("-n", namespace, "rollout", "status", "deployment/web", "--timeout=60s")
    return "web"


def test_every_node_is_ready_and_has_the_labels_and_gpus_of_its_pool(cluster: Cluster) -> None:
    nodes = get(cluster, "nodes", *ORDINARY)["items"]
    assert len(nodes) == len(NODES)
    products = sorted(node["metadata"]["labels"]["nvidia.com/gpu.product"] for node in nodes)
    assert products == sorted([H100.product, H100.product, L40S.product])
    for node in nodes:
        labels = node["metadata"]["labels"]
        pool = H100 if labels["nvidia.com/gpu.product"] == H100.product else L40S
        assert pool.labels().items() <= labels.items()
        assert {"topology.kubernetes.io/zone", "kubernetes.io/hostname", "kubernetes.io/arch"} <= labels.keys()
        assert node["status"]["allocatable"][GPU_RESOURCE] == str(pool.gpus)
        assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"


def test_creating_it_again_changes_nothing(cluster: Cluster) -> None:
    before = get(cluster, "nodes", *ORDINARY)["items"]
    assert cluster.create() is False
    assert [node["metadata"]["uid"] for node in get(cluster, "nodes", *ORDINARY)["items"]] == [
        node["metadata"]["uid"] for node in before
    ]


def test_replicas_spread_over_nodes(cluster: Cluster, web: str) -> None:
    pods = get(cluster, "pods", "-n", NAMESPACE, "-l", f"app={web}")["items"]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2


def test_a_service_is_reached_by_name_from_every_node(cluster: Cluster, web: str, image: str) -> None:
    code = f"import urllib.request as r; print([r.urlopen('http://{web}', timeout=5).status for _ in range(8)])"
    nodes = get(cluster, "nodes", *ORDINARY)["items"]
    asking = {f"ask-{node['metadata']['name']}": {"kubernetes.io/hostname": hostname(node)} for node in nodes}
    apply(cluster, *(pod(name, image, ["python3", "-c", code], selector) for name, selector in asking.items()))
    for name in asking:
        wait_for(cluster, name, "jsonpath={.status.phase}=Succeeded")
        assert cluster.kubectl("-n", NAMESPACE, "logs", name).strip() == str([200] * 8)


def test_exec_runs_in_a_container_and_logs_show_what_it_wrote(cluster: Cluster, web: str) -> None:
    target = f"deployment/{web}"
    assert cluster.kubectl("-n", NAMESPACE, "exec", target, "--", "cat", "/word") == "first"
    assert cluster.kubectl("-n", NAMESPACE, "logs", target).startswith("Serving HTTP")


def test_a_port_forward_leads_to_a_service(cluster: Cluster, web: str) -> None:
    with (
        cluster.port_forward(f"service/{web}", 80, "-n", NAMESPACE) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer,
    ):
        assert answer.status == 200


def test_a_port_forward_that_cannot_be_says_why(cluster: Cluster, namespace: str) -> None:
    with (
        pytest.raises(ClusterError, match="not found"),
        cluster.port_forward("service/absent", 80, "-n", namespace, retries=1),
    ):
        pass


def test_a_pod_that_asks_for_a_gpu_lands_in_the_pool_it_selects(cluster: Cluster, image: str, namespace: str) -> None:
    selector = {"nvidia.com/gpu.product": L40S.product}
    apply(cluster, pod("gpu", image, ["sleep", "1000"], selector, gpus=1))
    wait_for(cluster, "gpu", "condition=Ready")
    node = get(cluster, "node", get(cluster, "pod", "gpu", "-n", namespace)["spec"]["nodeName"])
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == L40S.product


def test_more_gpus_than_a_node_has_are_refused_by_the_scheduler(cluster: Cluster, image: str, namespace: str) -> None:
    apply(cluster, pod("greedy", image, ["sleep", "1000"], {}, gpus=H100.gpus + 1))
    wait_for(cluster, "greedy", "condition=PodScheduled=False")
    conditions = get(cluster, "pod", "greedy", "-n", namespace)["status"]["conditions"]
    assert f"Insufficient {GPU_RESOURCE}" in conditions[0]["message"]


def test_an_image_that_changed_is_built_and_loaded_again(cluster: Cluster, web: str, tmp_path: Path) -> None:
    build(cluster, tmp_path, "second")
    apply(cluster, pod("changed", IMAGE, ["cat", "/word"], {}))
    wait_for(cluster, "changed", "jsonpath={.status.phase}=Succeeded")
    assert cluster.kubectl("-n", NAMESPACE, "logs", "changed") == "second"


def test_what_kubectl_complains_about_is_in_the_error(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match='the server doesn\'t have a resource type "unicorns"'):
        cluster.kubectl("get", "unicorns")


# What the tests are made of --------------------------------------------------------------------------------------


def build(cluster: Cluster, context: Path, word: str) -> None:
    (context / "word").write_text(word)
    (context / "Dockerfile").write_text("FROM python:3.13-slim\nCOPY word /word\nUSER 65534\n")
    cluster.build_image(IMAGE, context / "Dockerfile", context)
    cluster.load_docker_image(IMAGE)


def container(image: str, command: list[str], gpus: int = 0) -> dict[str, Any]:
    limits = {"resources": {"limits": {GPU_RESOURCE: str(gpus)}}} if gpus else {}
    return {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "command": command} | limits


def pod(name: str, image: str, command: list[str], selector: dict[str, str], gpus: int = 0) -> dict[str, Any]:
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": selector,
        "containers": [container(image, command, gpus)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def deployment(name: str, image: str, replicas: int) -> dict[str, Any]:
    labels = {"app": name}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    probe = {"readinessProbe": {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1}}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "topologySpreadConstraints": [spread],
            "containers": [container(image, SERVER) | probe],
        },
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


def service(name: str) -> dict[str, Any]:
    spec = {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8000}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def apply(cluster: Cluster, *objects: dict[str, Any]) -> None:
    cluster.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def get(cluster: Cluster, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", *what, "-o", "json"))
    return found


def wait_for(cluster: Cluster, name: str, what: str) -> None:
    cluster.kubectl("-n", NAMESPACE, "wait", f"pod/{name}", f"--for={what}", "--timeout=60s")


def hostname(node: dict[str, Any]) -> str:
    return str(node["metadata"]["labels"]["kubernetes.io/hostname"])
