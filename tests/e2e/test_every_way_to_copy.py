"""Copies by a user's own proxy, by several mirrors, by conversations without ids: each through a whole run."""

from typing import Any

import pytest

from examples.demo.scenarios import PRODUCT
from tests.cluster.paths import REPOSITORY
from tests.e2e.funnel import assert_status_adds_up
from tests.e2e.world import RESTRICTED, Manifest, World, condition, customers, shadow_run

pytestmark = [pytest.mark.mirror, pytest.mark.e2e]

COPIES = "other-copies"
ENVOY = next(image.tag for image in PRODUCT if image.target == "capture")


def own_proxy(world: World) -> list[Manifest]:
    """The Envoy of examples/proxies in front of Service `other`, as a user would run it."""
    config = (REPOSITORY / "examples" / "proxies" / "envoy.yaml").read_text()
    config = config.replace("chat.inference.svc", f"other.{world.namespace}.svc")
    config = config.replace("prefix-cache-copies.inference.svc", f"{COPIES}.{world.namespace}.svc")
    container = {
        "name": "envoy",
        "image": ENVOY,
        "imagePullPolicy": "IfNotPresent",
        "command": ["envoy", "-c", "/config/envoy.yaml"],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 1},
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "config", "mountPath": "/config"}],
    }
    labels = {"app": "front"}
    pods = {"containers": [container], "volumes": [{"name": "config", "configMap": {"name": "front"}}]}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "front"}, "data": {"envoy.yaml": config}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "front"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pods},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "front"},
            "spec": {"selector": labels, "ports": [{"name": "http", "port": 8000, "targetPort": "http"}]},
        },
    ]


@pytest.fixture(scope="module", autouse=True)
def started(world: World) -> None:
    """Three runs at once, each on a primary of its own with customers who never stop."""
    world.add_primaries("other", "third")
    world.apply(*own_proxy(world))
    world.kubectl("rollout", "status", "deployment/front", "--timeout=60s", timeout=70)
    world.apply(
        shadow_run(
            "several",
            mirror={"replicas": 2},
            livePathGuard={
                "maxLatencyIncrease": "100%",
                "maxErrorIncrease": "20%",
                "pauseShare": "20%",
                "pauseSlot": "5s",
            },
            sampling={"unit": "Request", "rate": "100%"},
        ),
        shadow_run(
            "external",
            primary="other",
            capture={"mode": "External", "external": {"serviceName": COPIES}},
        ),
        shadow_run(
            "by-opening",
            primary="third",
            sampling={"unit": "Conversation", "rate": "100%", "onMissingKey": "Lineage"},
            admission={"maxInFlight": 6, "timeout": "5s", "queue": {"maxLength": 32, "maxWait": "2s"}},
        ),
    )
    world.apply(customers("other-customers-keep", "front", 6, "keep"))
    world.serve_customers(rate=6)
    world.serve_customers("third", rate=6)


def at_the_end(world: World, name: str) -> dict[str, Any]:
    status = world.wait_complete(name, 240)
    assert_status_adds_up(status)
    assert status["endReason"] == "DurationReached", status["message"]
    # With three runs at once on few cores the mirrors may say that they were too busy to stamp exactly.
    assert status["verdict"] == "Pass" or status["reason"] == "MirrorOverloaded", (
        status["message"],
        status["dropped"],
        status["failures"],
    )
    return status


def test_a_proxy_of_the_users_own_makes_the_copies(world: World) -> None:
    world.wait("external", "counted pairs", lambda s: s.get("pairs", 0) > 15, 150)
    assert world.get("deployment", "external-capture") is None, "nothing of ours stands in the customers' path"
    status = at_the_end(world, "external")
    assert status["funnel"]["requests"]["seen"] >= 50
    assert status["provenance"]["capture"] == "External"
    world.until_no_pods("shadowrun.dev/run=external")
    assert world.get("service", COPIES) is not None, "the proxy's copies are refused at once, not lost in the network"
    assert world.endpoints(COPIES) == []
    sent = world.customers("other").sent
    world.until("further customers", lambda: world.customers("other").sent > sent + 20, 30)


def test_two_mirrors_share_the_copies_and_one_may_die(world: World) -> None:
    world.wait("several", "counted pairs", lambda s: s.get("phase") == "Running" and s.get("pairs", 0) > 15, 150)
    mirrors = world.all("pods", "shadowrun.dev/run=several,shadowrun.dev/component=mirror")
    assert len(mirrors) == 2
    world.kubectl("delete", "pod", mirrors[0]["metadata"]["name"], "--grace-period=0", "--force")
    status = world.wait_complete("several", 240)
    assert_status_adds_up(status)
    assert status["endReason"] == "DurationReached", status["message"]
    assert status["verdict"] != "Fail", "the death of a mirror says nothing about the candidate"
    requests = status["funnel"]["requests"]
    assert requests["dropped"] <= 0.3 * requests["selected"], "half of the copies until capture knows, not of all"
    assert condition(status, "LivePathHealthy") == "True"
    watched = {c["kind"]: c["requests"] for c in world.report("several")["circumstances"]["customers"]}
    assert watched["before"] > 30, "customers were watched before anything was copied"
    assert watched["copying"] > 30, watched


def test_conversations_without_ids_are_followed_by_their_openings(world: World) -> None:
    status = at_the_end(world, "by-opening")
    lineage = world.report("by-opening")["circumstances"]["lineage"]
    assert lineage["conversations"] > 10
    assert lineage["continued"] > lineage["broken"]
    assert status["funnel"]["requests"]["admitted"] >= 50


def test_no_customer_noticed_any_of_it(world: World) -> None:
    for primary in ("chat", "other", "third"):
        seen = world.customers(primary)
        assert seen.failed == 0, seen.failures
        assert seen.ok > 100, seen
