"""What goes over the wire to the API server, checked against a server that answers like one."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration
from shadowrun_operator.cluster import client
from shadowrun_operator.cluster.client import ApiRefusal, ApiUnreachable, Cluster

pytestmark = pytest.mark.operator


@dataclass
class Server:
    """Remembers requests; answers with what the test put in."""

    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    answers: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    delay: float = 0.0

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.requests.append(
            {
                "method": request.method,
                "path": request.path,
                "query": dict(request.query),
                "type": request.headers.get("Content-Type", ""),
                "auth": request.headers.get("Authorization", ""),
                "accept": request.headers.get("Accept", ""),
                "body": json.loads(body) if body else None,
            }
        )
        await asyncio.sleep(self.delay)
        status, answer = self.answers.pop(0) if self.answers else (200, {"metadata": {}, "items": []})
        return web.json_response(answer, status=status)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", found.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


@pytest.fixture
async def cluster(server: Server) -> AsyncIterator[Cluster]:
    configuration = Configuration(host=server.url)
    configuration.api_key = {"BearerToken": "Bearer secret"}
    found = Cluster(ApiClient(configuration=configuration))
    yield found
    await found.close()


MANIFEST = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n"}, "spec": {}}


async def test_apply_is_server_side_apply_under_our_name(server: Server, cluster: Cluster) -> None:
    await cluster.apply(MANIFEST)
    (request,) = server.requests
    assert (request["method"], request["path"]) == ("PATCH", "/apis/apps/v1/namespaces/n/deployments/a")
    assert request["type"] == "application/apply-patch+yaml"
    assert request["query"] == {"fieldManager": "shadowrun", "force": "true"}
    assert request["body"] == MANIFEST
    assert request["auth"] == "Bearer secret"


async def test_the_status_is_applied_to_its_own_subresource(server: Server, cluster: Cluster) -> None:
    run = {"apiVersion": "shadowrun.dev/v1alpha1", "kind": "ShadowRun", "metadata": {"name": "x", "namespace": "n"}}
    await cluster.apply_status({**run, "status": {"phase": "Pending"}})
    assert server.requests[0]["path"] == "/apis/shadowrun.dev/v1alpha1/namespaces/n/shadowruns/x/status"


async def test_the_patch_of_the_candidate_is_a_strategic_merge(server: Server, cluster: Cluster) -> None:
    await cluster.patch("Deployment", "n", "a", {"spec": {"replicas": 1}})
    assert server.requests[0]["type"] == "application/strategic-merge-patch+json"


async def test_deleting_takes_dependants_along_in_the_background(server: Server, cluster: Cluster) -> None:
    await cluster.delete("Secret", "n", "a")
    assert (server.requests[0]["method"], server.requests[0]["path"]) == ("DELETE", "/api/v1/namespaces/n/secrets/a")
    assert server.requests[0]["body"] == {"propagationPolicy": "Background"}


async def test_what_is_not_there_is_none_and_deleting_it_is_nothing(server: Server, cluster: Cluster) -> None:
    server.answers = [(404, {"reason": "NotFound", "message": "no"})] * 2
    assert await cluster.get("Service", "n", "a") is None
    await cluster.delete("Service", "n", "a")


async def test_creating_what_exists_changes_nothing(server: Server, cluster: Cluster) -> None:
    server.answers = [(409, {"reason": "AlreadyExists", "message": "there"})]
    assert await cluster.create(MANIFEST) is None


async def test_a_refusal_carries_the_server_s_own_words(server: Server, cluster: Cluster) -> None:
    server.answers = [(422, {"reason": "Invalid", "message": "spec.replicas: no"})]
    with pytest.raises(ApiRefusal) as caught:
        await cluster.apply(MANIFEST)
    assert (caught.value.status, caught.value.reason, caught.value.message) == (422, "Invalid", "spec.replicas: no")


async def test_of_an_object_all_is_given_but_who_wrote_which_field(server: Server, cluster: Cluster) -> None:
    written = {"manager": "shadowrun", "fieldsV1": {"f:data": {}}}
    meta: dict[str, Any] = {"name": "a", "labels": {"g": "h"}}
    parts: dict[str, Any] = {
        "data": {"a": "b"},
        "binaryData": {"c": "ZA=="},
        "type": "Opaque",
        "spec": {"e": None},
        "status": [1],
    }
    stored = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, **parts}
    given = {**stored, "metadata": {**meta, "managedFields": [written]}}
    server.answers = [(200, given), (200, {"metadata": {}, "items": [given]})]
    assert await cluster.get("Secret", "n", "a") == stored
    assert await cluster.list("Secret", "n") == [stored]


async def test_a_list_follows_its_pages_and_says_of_each_object_what_it_is(server: Server, cluster: Cluster) -> None:
    server.answers = [
        (200, {"metadata": {"continue": "more"}, "items": [{"metadata": {"name": "a"}}]}),
        (200, {"metadata": {}, "items": [{"metadata": {"name": "b"}}]}),
    ]
    found = await cluster.list("Pod", "n", selector="a=b")
    assert [(item["kind"], item["metadata"]["name"]) for item in found] == [("Pod", "a"), ("Pod", "b")]
    assert server.requests[0]["query"] == {"limit": "500", "labelSelector": "a=b"}
    assert server.requests[1]["query"]["continue"] == "more"


async def test_a_list_of_the_whole_cluster_names_no_namespace(server: Server, cluster: Cluster) -> None:
    await cluster.list("ShadowRun")
    assert server.requests[0]["path"] == "/apis/shadowrun.dev/v1alpha1/shadowruns"


async def test_no_call_waits_for_ever(server: Server, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TIMEOUT_S", 0.1)
    server.delay = 2.0
    with pytest.raises(ApiUnreachable):
        await cluster.get("Service", "n", "a")


async def test_an_absent_server_is_unreachable_and_not_a_crash() -> None:
    cluster = Cluster(ApiClient(configuration=Configuration(host="http://127.0.0.1:9")))
    with pytest.raises(ApiUnreachable):
        await cluster.get("Service", "n", "a")
    await cluster.close()


async def test_the_version_is_the_one_the_server_says(server: Server, cluster: Cluster) -> None:
    server.answers = [(200, {"major": "1", "gitVersion": "v1.35.1"}), (200, {})]
    assert [await cluster.version(), await cluster.version()] == ["v1.35.1", ""]
    assert (server.requests[0]["method"], server.requests[0]["path"]) == ("GET", "/version")


async def test_a_merge_patches_what_is_there_and_makes_what_is_not(server: Server, cluster: Cluster) -> None:
    manifest = {"kind": "ConfigMap", "metadata": {"name": "x", "namespace": "ns"}, "data": {"a": "1", "b": None}}
    await cluster.merge(manifest)
    (patch,) = server.requests
    assert (patch["method"], patch["path"]) == ("PATCH", "/api/v1/namespaces/ns/configmaps/x")
    assert patch["type"] == "application/merge-patch+json"
    assert patch["body"]["data"] == {"a": "1", "b": None}
    server.answers = [(404, {"reason": "NotFound"})]
    await cluster.merge(manifest)
    assert [r["method"] for r in server.requests] == ["PATCH", "PATCH", "POST"]
    assert server.requests[-1]["body"]["data"] == {"a": "1"}
    server.answers = [(404, {"reason": "NotFound"}), (409, {"reason": "AlreadyExists"})]
    await cluster.merge(manifest)
    assert [r["method"] for r in server.requests[3:]] == ["PATCH", "POST", "PATCH"]
    server.answers = [(403, {"reason": "Forbidden"})]
    with pytest.raises(ApiRefusal):
        await cluster.merge(manifest)


async def test_what_the_server_does_not_know_is_refused_where_dropping_it_would_go_unseen(
    server: Server, cluster: Cluster
) -> None:
    await cluster.patch("Deployment", "n", "a", {"spec": {"replicas": 1}})
    await cluster.create(MANIFEST)
    strict = {"fieldManager": "shadowrun", "fieldValidation": "Strict"}
    assert [(r["method"], r["query"]) for r in server.requests] == [("PATCH", strict), ("POST", strict)]


async def test_a_list_of_few_is_one_page_or_nothing(server: Server, cluster: Cluster) -> None:
    items = [{"metadata": {"name": name}} for name in "abc"]
    server.answers = [
        (200, {"metadata": {}, "items": items[:2]}),
        (200, {"metadata": {}, "items": items}),
        (200, {"metadata": {"continue": "more"}, "items": items[:2]}),
    ]
    assert await cluster.list_few("Node", 2, selector="pool=a") == items[:2]
    assert await cluster.list_few("Node", 2) is None
    assert await cluster.list_few("Node", 2) is None
    assert [r["query"] for r in server.requests] == [{"limit": "3", "labelSelector": "pool=a"}, *[{"limit": "3"}] * 2]


async def test_of_a_list_the_metadata_alone_may_be_asked_for_and_nothing_is_null(
    server: Server, cluster: Cluster
) -> None:
    one = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}}
    server.answers = [(200, {"metadata": {}, "items": [one]}), (200, {"metadata": {}, "items": None})]
    assert await cluster.list("ConfigMap", "n", bare=True) == [one | {"kind": "ConfigMap", "apiVersion": "v1"}]
    assert await cluster.list("ConfigMap", "n", bare=True) == []
    assert {request["accept"].partition(";")[2] for request in server.requests} == {
        "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    }


async def test_of_one_object_the_metadata_alone_may_be_asked_for(server: Server, cluster: Cluster) -> None:
    one = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}}
    server.answers = [(200, one), (404, {"reason": "NotFound", "message": "no"})]
    assert await cluster.get("ConfigMap", "n", "a", bare=True) == one
    assert await cluster.get("ConfigMap", "n", "a", bare=True) is None
    assert {request["accept"].partition(";")[2] for request in server.requests} == {
        "as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    }
