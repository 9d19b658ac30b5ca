"""Passes and sweeps over runs in mode HTTPRoute: what is read, what is not allowed, what a dead run left behind."""

import copy
from typing import Any

import pytest
from shadowrun_operator.cluster.client import ApiRefusal
from shadowrun_operator.cluster.memory import Memory
from shadowrun_operator.cluster.observe import observe
from shadowrun_operator.cluster.runs import Runs
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.route import claim_of, filters_of
from shadowrun_operator.reconcile.gateway import MIRROR, PERCENTAGE

from tests.unit.cluster_io.fake_cluster import FakeCluster
from tests.unit.cluster_io.test_modes import SETTINGS, cluster_with, passed, run, status
from tests.unit.cluster_io.wire import answering, nobody
from tests.unit.reconcile.routes import ROUTED, route

pytestmark = pytest.mark.operator

SERVICE = "chat-copies"
FORBIDDEN = ApiRefusal(403, "Forbidden", "no")


def gateway() -> dict[str, Any]:
    """The Gateway of the route, in a namespace of its own."""
    return {
        "kind": "Gateway",
        "metadata": {"name": "public", "namespace": "infra"},
        "spec": {"gatewayClassName": "tests"},
        "status": {"conditions": [{"type": "Accepted", "status": "True"}]},
    }


def gateway_class(*features: str) -> dict[str, Any]:
    """Its class, with what it supports."""
    listed = [{"name": feature} for feature in features]
    return {
        "kind": "GatewayClass",
        "metadata": {"name": "tests", "namespace": ""},
        "status": {"supportedFeatures": listed},
    }


def with_gateway() -> FakeCluster:
    """The user's objects, a gateway that can do all, and a run."""
    cluster = cluster_with(run(capture=ROUTED))
    for item in (route(), gateway(), gateway_class(MIRROR, PERCENTAGE)):
        cluster.put(item)
    return cluster


def filters(cluster: FakeCluster) -> int:
    """How many filters of ours the route holds."""
    return len(filters_of(cluster.objects["HTTPRoute", "inference", "front"], SERVICE))


def service(cluster: FakeCluster) -> dict[str, Any]:
    return cluster.objects["Service", "inference", SERVICE]


def runs_on(cluster: FakeCluster) -> Runs:
    return Runs(cluster, answering(nobody), SETTINGS, instance="test")  # type: ignore[arg-type]


async def test_a_run_puts_its_filter_in_once_and_writes_nothing_more() -> None:
    cluster = with_gateway()
    runs = runs_on(cluster)
    await passed(cluster, runs, 7)
    assert status(cluster)["phase"] == "WarmingUp"
    assert cluster.names("Deployment") == ["chat", "x-baseline", "x-candidate", "x-mirror"]
    assert filters(cluster) == 1
    assert [call for call in cluster.calls if call[0] == "edit"] == [("edit", "HTTPRoute", "front")]
    cluster.calls.clear()
    await runs.pass_once("inference", "x")
    assert cluster.calls == []
    await runs.close()


@pytest.mark.parametrize("features", [("HTTPRoute",), (MIRROR,)])
async def test_what_the_class_says_is_read_from_the_gateway_of_the_route(features: tuple[str, ...]) -> None:
    cluster = with_gateway()
    cluster.put(gateway_class(*features))
    runs = runs_on(cluster)
    await passed(cluster, runs, 1)
    (accepted,) = (c for c in status(cluster)["conditions"] if c["type"] == "Accepted")
    assert accepted["reason"] == "RouteUnsuitable"
    assert "infra/public" in accepted["message"]
    await runs.close()


async def test_a_cluster_without_the_gateway_api_says_so_and_goes_on() -> None:
    cluster = cluster_with(run(capture=ROUTED))
    runs = runs_on(cluster)
    await passed(cluster, runs, 1)
    (accepted,) = (c for c in status(cluster)["conditions"] if c["type"] == "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "RouteNotFound")
    await runs.sweep()
    await runs.close()


async def test_an_operator_without_the_right_says_which_value_gives_it() -> None:
    cluster = with_gateway()
    cluster.refusals["get", "HTTPRoute"] = FORBIDDEN
    runs = runs_on(cluster)
    await passed(cluster, runs, 1)
    (accepted,) = (c for c in status(cluster)["conditions"] if c["type"] == "Accepted")
    assert accepted["reason"] == "RouteNotFound"
    assert "gatewayAPI.enabled" in accepted["message"]
    await runs.close()


@pytest.mark.parametrize("kind", ["Gateway", "GatewayClass"])
async def test_a_gateway_that_may_not_be_read_is_a_gateway_that_says_nothing(kind: str) -> None:
    cluster = with_gateway()
    cluster.refusals["get", kind] = FORBIDDEN
    body = cluster.objects[names.KIND, "inference", "x"]
    seen = await observe(cluster, answering(nobody), SETTINGS, body, Memory())  # type: ignore[arg-type]
    assert seen.route is not None
    assert [g.features for g in seen.route.gateways] == [None]


@pytest.mark.parametrize("kind", ["HTTPRoute", "Gateway"])
async def test_any_other_refusal_fails_the_look(kind: str) -> None:
    cluster = with_gateway()
    cluster.refusals["get", kind] = ApiRefusal(500, "InternalError", "no")
    body = cluster.objects[names.KIND, "inference", "x"]
    with pytest.raises(ApiRefusal):
        await observe(cluster, answering(nobody), SETTINGS, body, Memory())  # type: ignore[arg-type]


async def test_other_modes_read_no_route() -> None:
    cluster = cluster_with(run())
    cluster.refusals["get", "HTTPRoute"] = FORBIDDEN
    runs = runs_on(cluster)
    await passed(cluster, runs, 3)
    assert ("get", "HTTPRoute") in cluster.refusals
    await runs.close()


async def test_the_sweep_takes_the_filter_of_a_run_that_vanished_out_and_keeps_its_service() -> None:
    cluster = with_gateway()
    before = copy.deepcopy(cluster.objects["HTTPRoute", "inference", "front"]["spec"])
    runs = runs_on(cluster)
    await passed(cluster, runs, 7)
    del cluster.objects[names.KIND, "inference", "x"]
    await runs.sweep()
    assert cluster.objects["HTTPRoute", "inference", "front"]["spec"] == before
    assert claim_of(service(cluster)) == ""
    cluster.calls.clear()
    await runs.sweep()
    assert cluster.calls == [], "and looks for it no more"
    await runs.close()


async def test_the_sweep_leaves_the_filter_of_a_run_that_lives() -> None:
    cluster = with_gateway()
    runs = runs_on(cluster)
    await passed(cluster, runs, 7)
    await runs.sweep()
    assert filters(cluster) == 1
    assert claim_of(service(cluster)) == "front"
    await runs.close()


async def test_a_route_that_may_not_be_edited_keeps_its_claim_and_the_sweep_goes_on() -> None:
    cluster = with_gateway()
    runs = runs_on(cluster)
    await passed(cluster, runs, 7)
    del cluster.objects[names.KIND, "inference", "x"]
    cluster.refusals["edit", "HTTPRoute"] = FORBIDDEN
    await runs.sweep()
    assert (filters(cluster), claim_of(service(cluster))) == (1, "front")
    assert runs.stale() == ""
    await runs.sweep()
    assert (filters(cluster), claim_of(service(cluster))) == (0, "")
    await runs.close()


async def test_another_run_is_told_which_rule_is_taken() -> None:
    cluster = with_gateway()
    runs = runs_on(cluster)
    await passed(cluster, runs, 3)
    other = run("y", "uid-y", capture={**ROUTED, "httpRoute": {**ROUTED["httpRoute"], "serviceName": "y-copies"}})  # type: ignore[dict-item]
    cluster.put(other)
    seen = await observe(cluster, answering(nobody), SETTINGS, other, Memory())  # type: ignore[arg-type]
    assert [(o.name, o.primary, o.rule) for o in seen.others] == [("x", "", "front/chat")]
    await runs.close()
