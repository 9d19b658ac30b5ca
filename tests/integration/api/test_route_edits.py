"""Edits of a user's HTTPRoute on a real API server: nobody's other edit is lost, and a stale one is made anew."""

import asyncio
import copy
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
from shadowrun_operator.cluster.client import ApiRefusal, Cluster
from shadowrun_operator.manifests.route import edits, filters_of, mirror_filter, says_the_same

from tests.cluster import gatewayapi
from tests.cluster.base import Cluster as TestCluster
from tests.integration.api.connection import connected
from tests.unit.reconcile.routes import route, rule

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

SERVICE = "chat-copies"
REWRITE = {"type": "URLRewrite", "urlRewrite": {"hostname": "engine.example"}}


@pytest.fixture(scope="module")
def namespace(cluster: TestCluster) -> Iterator[str]:
    """A namespace on an API server that knows HTTPRoutes."""
    gatewayapi.install_definitions(cluster)
    name = f"routes-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
async def ours(cluster: TestCluster) -> AsyncIterator[Cluster]:
    """The operator's own client."""
    client = Cluster(await connected(cluster.kubeconfig_path))
    yield client
    await client.close()


@pytest.fixture
async def stored(ours: Cluster, namespace: str) -> AsyncIterator[dict[str, Any]]:
    """A user's route as the API server has it."""
    document = route(rule("health"), rule("chat", REWRITE))
    del document["metadata"]["resourceVersion"]
    document["metadata"]["namespace"] = namespace
    await ours.create(document)
    yield await found(ours, namespace)
    await ours.delete("HTTPRoute", namespace, "front")


async def found(ours: Cluster, namespace: str) -> dict[str, Any]:
    """The route now."""
    document = await ours.get("HTTPRoute", namespace, "front")
    assert document is not None
    return document


@pytest.mark.parametrize("share", [1_000_000, 250_000, 12_345])
async def test_the_filter_goes_in_once_and_out_and_the_spec_is_byte_for_byte_what_it_was(
    ours: Cluster, namespace: str, stored: dict[str, Any], share: int
) -> None:
    wanted = mirror_filter(SERVICE, share)
    put_in = partial(edits, rule="chat", service=SERVICE, wanted=wanted)
    await ours.edit("HTTPRoute", namespace, "front", put_in)
    within = await found(ours, namespace)
    (held,) = filters_of(within, SERVICE)
    assert says_the_same(held, wanted)
    assert within["spec"]["rules"][1]["filters"][0] == REWRITE
    await ours.edit("HTTPRoute", namespace, "front", put_in)
    assert (await found(ours, namespace))["metadata"]["resourceVersion"] == within["metadata"]["resourceVersion"]
    await ours.edit("HTTPRoute", namespace, "front", partial(edits, rule="chat", service=SERVICE, wanted=None))
    after = await found(ours, namespace)
    assert json.dumps(after["spec"]) == json.dumps(stored["spec"])
    assert after["metadata"]["labels"] == stored["metadata"]["labels"]


class WhileAUserEdits(Cluster):
    """Between the first reading and its use, somebody else changes the route."""

    readings = 0

    async def get(self, kind: str, namespace: str, name: str, *, bare: bool = False) -> dict[str, Any] | None:
        """What was there before that change, the first time."""
        document = await super().get(kind, namespace, name, bare=bare)
        self.readings += 1
        if self.readings == 1 and document is not None:
            changed = copy.deepcopy(document)
            changed["spec"]["hostnames"] = ["new.example"]
            changed["spec"]["rules"].insert(0, rule("first"))
            await self.merge({"kind": "HTTPRoute", "metadata": changed["metadata"], "spec": changed["spec"]})
        return document


async def test_an_edit_of_somebody_else_at_the_same_moment_is_kept(
    cluster: TestCluster, ours: Cluster, namespace: str, stored: dict[str, Any]
) -> None:
    disturbed = WhileAUserEdits(await connected(cluster.kubeconfig_path))
    wanted = mirror_filter(SERVICE, 1_000_000)
    await disturbed.edit("HTTPRoute", namespace, "front", partial(edits, rule="chat", service=SERVICE, wanted=wanted))
    await disturbed.close()
    assert disturbed.readings == 2, "what was made from the first reading was refused as stale"
    after = await found(ours, namespace)
    assert after["spec"]["hostnames"] == ["new.example"]
    assert [r["name"] for r in after["spec"]["rules"]] == ["first", "health", "chat"]
    assert len(filters_of(after, SERVICE)) == 1


async def test_a_rule_that_leads_to_an_inference_pool_still_does(
    ours: Cluster, namespace: str, stored: dict[str, Any]
) -> None:
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "chat", "weight": 1}
    changed = copy.deepcopy(stored)
    changed["spec"]["rules"][1]["backendRefs"] = [pool]
    await ours.merge({"kind": "HTTPRoute", "metadata": stored["metadata"], "spec": changed["spec"]})
    before = await found(ours, namespace)
    for wanted in (mirror_filter(SERVICE, 100_000), None):
        await ours.edit("HTTPRoute", namespace, "front", partial(edits, rule="chat", service=SERVICE, wanted=wanted))
        after = await found(ours, namespace)
        assert after["spec"]["rules"][1]["backendRefs"] == [pool]
    assert json.dumps(after["spec"]) == json.dumps(before["spec"])


async def test_a_share_that_the_server_does_not_know_is_refused_and_never_read_as_all(
    ours: Cluster, namespace: str, stored: dict[str, Any]
) -> None:
    wanted = mirror_filter(SERVICE, 1_000_000)
    wanted["requestMirror"]["shareOfAnotherVersion"] = 1
    with pytest.raises(ApiRefusal, match="shareOfAnotherVersion"):
        await ours.edit("HTTPRoute", namespace, "front", partial(edits, rule="chat", service=SERVICE, wanted=wanted))
    assert filters_of(await found(ours, namespace), SERVICE) == []


async def test_many_hands_at_once_lose_nothing(ours: Cluster, namespace: str, stored: dict[str, Any]) -> None:
    async def user() -> None:
        for number in range(10):
            await ours.merge(
                {
                    "kind": "HTTPRoute",
                    "metadata": {"name": "front", "namespace": namespace, "annotations": {f"n{number}": "x"}},
                }
            )

    async def run(name: str) -> None:
        for wanted in (mirror_filter(name, 500_000), mirror_filter(name, 1_000_000), None, mirror_filter(name, 1)):
            await ours.edit("HTTPRoute", namespace, "front", partial(edits, rule="chat", service=name, wanted=wanted))

    await asyncio.gather(user(), run("a-copies"), run("b-copies"))
    after = await found(ours, namespace)
    assert {f"n{number}" for number in range(10)} <= after["metadata"]["annotations"].keys()
    assert [len(filters_of(after, name)) for name in ("a-copies", "b-copies")] == [1, 1]
    assert after["spec"]["rules"][1]["filters"][0] == REWRITE


async def test_a_route_that_is_gone_needs_no_edit(ours: Cluster, namespace: str) -> None:
    nothing = partial(edits, rule="chat", service=SERVICE, wanted=None)
    await ours.edit("HTTPRoute", namespace, "nobody", nothing)
