"""On a real API server: what a run leaves to customers follows the primary, and only what is meant is ever deleted."""

import uuid
from collections.abc import Iterator

import pytest
from shadowrun_operator.cluster.client import ApiRefusal, Cluster
from shadowrun_operator.manifests.given_back import followed, given_back
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile.plan import Apply
from shadowrun_operator.reconcile.reconcile import reconcile

from tests.integration.api.conftest import HasApi
from tests.unit.reconcile.world import World

pytestmark = [pytest.mark.operator, pytest.mark.e2e]


@pytest.fixture
def namespace(cluster: HasApi) -> Iterator[str]:
    name = f"shadowrun-left-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def _capture_service() -> Manifest:
    """As a run applies it while it copies."""
    world = World.with_spec()
    while True:
        for step in reconcile(world.observe()).steps:
            if isinstance(step, Apply) and step.manifest["kind"] == "Service":
                meta = step.manifest["metadata"]
                if meta["name"] == "chat-shadowed" and "shadowrun.dev/run" in step.manifest["spec"]["selector"]:
                    return step.manifest
        world.turn()


async def test_the_service_left_behind_follows_and_a_newer_version_of_it_is_not_overwritten(
    api: Cluster, namespace: str
) -> None:
    primary = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat", "namespace": namespace},
        "spec": {"selector": {"app": "chat"}, "ports": [{"name": "http", "port": 8000, "targetPort": "http"}]},
    }
    assert await api.create(primary) is not None
    captured = _capture_service()
    left = given_back(await api.apply({**captured, "metadata": {**captured["metadata"], "namespace": namespace}}), 5.0)
    assert left is not None
    await api.apply(left)
    switched = {"selector": {"app": "chat", "color": "green"}, "ports": [{"port": 8000, "targetPort": 9000}]}
    await api.patch("Service", namespace, "chat", {"spec": switched})
    service, primary_now = await _both(api, namespace)
    manifest = followed(service, primary_now)
    assert manifest is not None
    await api.apply(manifest)
    service, primary_now = await _both(api, namespace)
    assert service["spec"]["selector"] == {"app": "chat", "color": "green"}
    assert [(p["port"], p["targetPort"]) for p in service["spec"]["ports"]] == [(8000, 9000)]
    assert followed(service, primary_now) is None, "and then nothing more"
    with pytest.raises(ApiRefusal) as refused:
        await api.apply(manifest)
    assert refused.value.status == 409


async def _both(api: Cluster, namespace: str) -> tuple[Manifest, Manifest]:
    service, primary = await api.get("Service", namespace, "chat-shadowed"), await api.get("Service", namespace, "chat")
    assert service is not None
    assert primary is not None
    return service, primary


async def test_with_a_uid_nothing_but_that_very_object_is_deleted(api: Cluster, namespace: str) -> None:
    made = await api.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": namespace}, "data": {}}
    )
    assert made is not None
    await api.delete("ConfigMap", namespace, "x", uid=str(uuid.uuid4()))
    assert await api.get("ConfigMap", namespace, "x") is not None
    await api.delete("ConfigMap", namespace, "x", uid=made["metadata"]["uid"])
    assert await api.get("ConfigMap", namespace, "x") is None
    await api.delete("ConfigMap", namespace, "x", uid=made["metadata"]["uid"])
