"""A namespace on a real API server with the generated CRD, and one way to ask it for an opinion.

The definition is served under a group of the tests' own: an operator or a chart on the same cluster neither sees these
objects nor is disturbed.
"""

import json
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Protocol, cast

import pytest
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from shadowrun_operator.api.crd import custom_resource_definition
from shadowrun_operator.api.run import PLURAL, VERSION
from shadowrun_operator.cluster.client import Cluster

from tests.integration.api.connection import connected
from tests.integration.api.manifest import GROUP

NAMESPACE = f"shadowrun-api-{uuid.uuid4().hex[:8]}"
SECONDS = 10


class HasApi(Protocol):
    """What these tests need of a cluster: no nodes, only its API server."""

    kubeconfig_path: Path

    def kubectl(self, *args: str, input: str | None = None, timeout: float | None = None) -> str:  # noqa: A002
        """What kubectl prints."""


class Runs:
    """ShadowRuns in one namespace; a refusal is returned as the server's message."""

    def __init__(self, objects: client.CustomObjectsApi) -> None:
        self._objects = objects

    def refusal(self, document: dict[str, Any]) -> str | None:
        """Why the server would not create this object, or None; nothing is stored."""
        return self._message(
            self._objects.create_namespaced_custom_object,
            *(GROUP, VERSION, NAMESPACE, PLURAL, document),
            dry_run="All",
            field_validation="Strict",
        )

    def create(self, document: dict[str, Any]) -> dict[str, Any]:
        """Store an object."""
        stored = self._objects.create_namespaced_custom_object(
            GROUP, VERSION, NAMESPACE, PLURAL, document, _request_timeout=SECONDS
        )
        return cast(dict[str, Any], stored)

    def read(self, name: str) -> dict[str, Any]:
        """A stored object."""
        stored = self._objects.get_namespaced_custom_object(
            GROUP, VERSION, NAMESPACE, PLURAL, name, _request_timeout=SECONDS
        )
        return cast(dict[str, Any], stored)

    def update_refusal(self, document: dict[str, Any]) -> str | None:
        """Why the server would not replace the stored object by this one, or None; nothing is stored."""
        name = document["metadata"]["name"]
        return self._message(
            self._objects.replace_namespaced_custom_object,
            *(GROUP, VERSION, NAMESPACE, PLURAL, name, document),
            dry_run="All",
        )

    def status_refusal(self, document: dict[str, Any]) -> str | None:
        """Why the server would not take this object's status, or None; nothing is stored."""
        name = document["metadata"]["name"]
        return self._message(
            self._objects.replace_namespaced_custom_object_status,
            *(GROUP, VERSION, NAMESPACE, PLURAL, name, document),
            dry_run="All",
        )

    def write_status(self, name: str, status: dict[str, Any]) -> dict[str, Any]:
        """Replace the status of a stored object."""
        document = self.read(name) | {"status": status}
        stored = self._objects.replace_namespaced_custom_object_status(
            GROUP, VERSION, NAMESPACE, PLURAL, name, document, _request_timeout=SECONDS
        )
        return cast(dict[str, Any], stored)

    def delete(self, name: str) -> None:
        """Remove a stored object."""
        self._objects.delete_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, name, _request_timeout=SECONDS)

    @staticmethod
    def _message(call: Any, *args: Any, **kwargs: Any) -> str | None:
        try:
            call(*args, **kwargs, _request_timeout=SECONDS)
        except ApiException as refused:
            if refused.status not in (400, 422):
                raise
            return str(json.loads(refused.body or "{}")["message"])
        return None


def _is_established(definition: dict[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _until_established(cluster: HasApi, name: str) -> None:
    """Neither `kubectl wait` nor a JSONPath: both take a definition whose status has no conditions yet for an error."""
    deadline = time.monotonic() + 60
    while not _is_established(json.loads(cluster.kubectl("get", "crd", name, "-o", "json", timeout=30))):
        assert time.monotonic() < deadline, f"{name} is not served after 60 s"
        time.sleep(0.2)


@pytest.fixture
async def api(cluster: HasApi) -> AsyncIterator[Cluster]:
    """The operator's own client."""
    one = Cluster(await connected(cluster.kubeconfig_path))
    yield one
    await one.close()


@pytest.fixture(scope="session")
def server(cluster: HasApi) -> Iterator[HasApi]:
    """The cluster, with the CRD as the models generate it but for its group."""
    crd, name = custom_resource_definition(), f"{PLURAL}.{GROUP}"
    crd["metadata"]["name"], crd["spec"]["group"] = name, GROUP
    cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump(crd))
    _until_established(cluster, name)
    yield cluster
    cluster.kubectl("delete", "crd", name, "--wait=false")


@pytest.fixture(scope="session")
def runs(server: HasApi) -> Iterator[Runs]:
    """ShadowRuns in a namespace that lasts as long as the tests."""
    settings = client.Configuration()
    config.load_kube_config(  # type: ignore[no-untyped-call]
        str(server.kubeconfig_path), client_configuration=settings
    )
    settings.proxy = None  # a proxy of the machine must not be asked for a local cluster
    with client.ApiClient(settings) as api:
        server.kubectl("create", "namespace", NAMESPACE)
        yield Runs(client.CustomObjectsApi(api))
    server.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
