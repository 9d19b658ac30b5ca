"""A filter in a user's HTTPRoute, served by a real gateway: put in, at work, and out again; all else is kept."""

import json
from typing import Any

import pytest

from examples.demo.scenarios import PRODUCT
from tests.cluster import gatewayapi
from tests.cluster.plugin import RunOnce, progress_shown
from tests.e2e.funnel import assert_status_adds_up
from tests.e2e.world import Manifest, World, condition, condition_message, condition_reason, customers, shadow_run

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

COPIES = "chat-copies"
ENVOY = next(image.tag for image in PRODUCT if image.target == "capture")
ROUTED = {"mode": "HTTPRoute", "httpRoute": {"name": "front", "rule": "chat", "serviceName": COPIES}}


def front() -> list[Manifest]:
    """A Gateway and a route as a user has them: two rules with names, one of them with a filter of its own.

    Without a time limit of its own Envoy cuts every answer after 15 s, and a busy machine has longer ones.
    """
    chat = {"name": "chat", "port": 8000}
    marked = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-front", "value": "yes"}]}}
    paths = {name: [{"path": {"type": "PathPrefix", "value": path}}] for name, path in RULES.items()}
    unlimited = {"request": "0s"}
    rules: list[Manifest] = [
        {"name": name, "matches": paths[name], "timeouts": unlimited, "backendRefs": [chat]} for name in RULES
    ]
    rules[1]["filters"] = [marked]
    listener = {"name": "http", "port": 8000, "protocol": "HTTP"}
    return [
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": {"name": "public"},
            "spec": {"gatewayClassName": gatewayapi.CLASS, "listeners": [listener]},
        },
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {"name": "front"},
            "spec": {"parentRefs": [{"name": "public"}], "rules": rules},
        },
    ]


RULES = {"health": "/health", "chat": "/v1"}


def route(world: World) -> Manifest:
    found = world.get("httproute", "front")
    assert found is not None
    return found


def mirrors(world: World) -> list[Manifest]:
    """The filters of rule `chat` that send copies."""
    (rule,) = (r for r in route(world)["spec"]["rules"] if r["name"] == "chat")
    return [f["requestMirror"] for f in rule["filters"] if f["type"] == "RequestMirror"]


def without_mirrors(spec: Manifest) -> Manifest:
    """The same with our filter, and nothing else, left out."""
    kept: Manifest = json.loads(json.dumps(spec))
    for rule in kept["rules"]:
        rule["filters"] = [f for f in rule.get("filters", []) if f["type"] != "RequestMirror"]
        if not rule["filters"]:
            del rule["filters"]
    return kept


def gateway_address(world: World) -> str:
    """The Service of the gateway's proxies, as customers name it."""
    of_ours = f"gateway.envoyproxy.io/owning-gateway-namespace={world.namespace}"
    listed = ("get", "services", "-n", gatewayapi.NAMESPACE, "-l", of_ours, "-o", "json")
    found: list[Any] = json.loads(world.cluster.kubectl(*listed))["items"]
    return f"{found[0]['metadata']['name']}.{gatewayapi.NAMESPACE}" if found else ""


@pytest.fixture(scope="module", autouse=True)
def failed_before(request: pytest.FixtureRequest, world: World, once: RunOnce) -> int:
    """A real gateway, customers who never stop, and two runs that want the same rule.

    How many customers failed before there was any run: those who came before the gateway's Service led anywhere.
    """
    with progress_shown(request.config):
        once("envoy-gateway", lambda: gatewayapi.install(world.cluster, ENVOY))
    world.apply(*front())
    world.kubectl("wait", "--for=condition=Programmed", "gateway/public", "--timeout=120s", timeout=130)
    world.apply(customers("chat-customers-keep", gateway_address(world), 8, "keep"))
    world.kubectl("rollout", "status", "deployment/chat-customers-keep", "--timeout=90s", timeout=100)
    world.until("customers served", lambda: world.customers().ok > 20, 90)
    failed = world.customers().failed
    world.apply(shadow_run("routed", capture=ROUTED))
    world.wait("routed", "acceptance", lambda s: condition(s, "Accepted") == "True", 30)
    world.apply(
        shadow_run(
            "half",
            capture=ROUTED,
            sampling={"unit": "Request", "rate": "50%"},
            duration="10m",
            startDeadline="15m",
        ),
        shadow_run(
            "nowhere",
            capture={"mode": "HTTPRoute", "httpRoute": {"name": "front", "rule": "none", "serviceName": "none"}},
        ),
    )
    return failed


def test_pairs_are_made_of_what_the_gateway_copies_and_an_edit_of_the_user_survives_the_run(world: World) -> None:
    world.wait("routed", "counted pairs", lambda s: s.get("phase") == "Running" and s.get("pairs", 0) > 15, 180)
    (ours,) = mirrors(world)
    assert ours["backendRef"]["name"] == COPIES
    assert "percent" not in ours, "of conversations the gateway copies all"
    assert world.get("deployment", "routed-capture") is None, "nothing of ours stands in the customers' path"
    edit = [
        {"op": "add", "path": "/spec/rules/0/timeouts", "value": {"request": "30s"}},
        {
            "op": "add",
            "path": "/spec/rules/-",
            "value": {"name": "more", "backendRefs": [{"name": "chat", "port": 8000}]},
        },
        {"op": "add", "path": "/metadata/annotations/edited", "value": "yes"},
    ]
    world.kubectl("annotate", "httproute", "front", "team=x")
    world.kubectl("patch", "httproute", "front", "--type=json", "-p", json.dumps(edit))
    edited = without_mirrors(route(world)["spec"])
    assert [rule["name"] for rule in edited["rules"]] == ["health", "chat", "more"]
    refused = world.status("half")
    assert condition_reason(refused, "Accepted") == "CaptureInUse", refused
    status = world.wait_complete("routed", 240)
    assert_status_adds_up(status)
    assert status["endReason"] == "DurationReached", status["message"]
    assert status["verdict"] != "Fail", status["message"]  # 30 seconds on a busy machine may leave it undecided
    assert status["provenance"]["capture"] == "HTTPRoute"
    assert status["funnel"]["requests"]["seen"] > 50
    after = route(world)
    assert without_mirrors(after["spec"]) == edited
    assert after["metadata"]["annotations"]["edited"] == "yes"


def test_the_gateway_copies_a_share_of_single_requests_and_a_deleted_run_takes_its_filter_out(world: World) -> None:
    world.wait_phase("half", "Running", 300)
    (ours,) = mirrors(world)
    assert ours["percent"] == 50
    sent, seen = world.customers().sent, world.status("half")["funnel"]["requests"]["seen"]
    world.until("further customers", lambda: world.customers().sent > sent + 400, 240)
    copied = world.wait("half", "further copies", lambda s: s["funnel"]["requests"]["seen"] > seen + 140, 60)
    passed = world.customers().sent - sent
    # The status is some seconds older than the customers' log: this tells a half from all and from a quarter.
    assert 0.3 < (copied["funnel"]["requests"]["seen"] - seen) / passed < 0.75
    world.delete_runs("half")
    assert mirrors(world) == []
    service = world.get("service", COPIES)
    assert service is not None, "a route that somebody brings back still finds the Service it names"
    assert "shadowrun.dev/route" not in service["metadata"]["annotations"]
    assert world.get("shadowrun", "half") is None


def test_a_rule_that_is_not_there_is_said_at_once(world: World) -> None:
    status = world.wait("nowhere", "refusal", lambda s: condition(s, "Accepted") == "False", 30)
    assert condition_reason(status, "Accepted") == "RouteNotFound"
    assert "no rule named 'none'" in condition_message(status, "Accepted")


def test_the_copies_service_has_nobody_behind_it_and_customers_noticed_nothing(
    world: World, failed_before: int
) -> None:
    world.until("no endpoints", lambda: world.endpoints(COPIES) == [], 60)
    sent = world.customers().sent
    world.until("further customers", lambda: world.customers().sent > sent + 20, 60)
    seen = world.customers()
    assert seen.failed == failed_before, seen.failures
    assert seen.ok > 100, seen
