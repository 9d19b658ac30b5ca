"""One capture Service through the life of two runs, with customers who never stop: not one request may fail."""

import os
import subprocess
import sys

import pytest

from tests.e2e.funnel import assert_status_adds_up
from tests.e2e.world import World, capture_before, condition, shadow_run

pytestmark = [pytest.mark.path, pytest.mark.e2e]

SERVICE = "chat-shadowed"
CONNECTIONS = ("keep", "close")
TRIES = 3


@pytest.fixture(scope="module")
def passed(world: World) -> dict[str, object]:
    """A whole run from `kubectl apply` to its end, under customers who keep their connections and others who don't.

    A machine that was too busy for exact stamps says so, and whoever asked tries again.
    """
    world.apply(run := shadow_run("faster", duration="45s", capture=capture_before("chat", 2)))
    for connection in CONNECTIONS:
        world.serve_customers(rate=3, connection=connection)
    for _ in range(TRIES - 1):
        if world.wait_complete("faster", 240)["reason"] != "MirrorOverloaded":
            break
        world.delete_runs("faster")
        world.apply(run)
    return world.wait_complete("faster", 240)


def gate(world: World, name: str) -> "subprocess.CompletedProcess[str]":
    line = [
        sys.executable,
        "-m",
        "shadowrun_operator.cli.main",
        "gate",
        name,
        "-n",
        world.namespace,
        "--timeout",
        "30s",
    ]
    environment = {**os.environ, "KUBECONFIG": str(world.cluster.kubeconfig_path)}
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False)


def test_a_faster_candidate_passes_with_numbers(world: World, passed: dict[str, object]) -> None:
    status = world.status("faster")
    assert (status["verdict"], status["endReason"]) == ("Pass", "DurationReached"), status["message"]
    assert status["phase"] == "Complete"
    assert condition(status, "Succeeded") == "True"
    assert {c["outcome"] for c in status["criteria"]} == {"Pass"}
    assert all(c["interval"] and c["pairs"] >= 50 for c in status["criteria"])
    assert any(character.isdigit() for character in status["message"])
    assert status["provenance"]["specHash"]
    assert status["provenance"]["seedFingerprint"]


def test_its_funnel_adds_up_and_is_not_empty(world: World, passed: dict[str, object]) -> None:
    status = world.status("faster")
    assert_status_adds_up(status)
    requests = status["funnel"]["requests"]
    assert requests["seen"] >= requests["selected"] >= requests["admitted"] >= 50
    assert all(arm["completed"] >= 50 and arm["withinSLO"] >= 50 for arm in requests["arms"])


def test_the_list_of_runs_is_readable_at_120_columns(world: World, passed: dict[str, object]) -> None:
    table = world.kubectl("get", "shadowruns").splitlines()
    assert table[0].split() == ["NAME", "PHASE", "VERDICT", "SEEN", "PAIRS", "WITHIN-SLO", "EXPIRES", "AGE"]
    assert "Pass" in table[1]
    assert max(len(line) for line in table) <= 120


def test_waiting_and_gating_return_at_the_end(world: World, passed: dict[str, object]) -> None:
    world.kubectl("wait", "--for=condition=Complete", "shadowrun/faster", "--timeout=5s")
    told = gate(world, "faster")
    assert told.returncode == 0, told.stdout + told.stderr
    assert "Pass" in told.stdout
    assert gate(world, "no-such-run").returncode == 3


def test_only_the_report_and_the_capture_service_stay(world: World, passed: dict[str, object]) -> None:
    ours = "shadowrun.dev/run=faster"
    world.until_no_pods(ours)
    assert world.all("deployments,secrets,networkpolicies,poddisruptionbudgets", ours) == []
    assert [s["metadata"]["name"] for s in world.all("services", ours)] == [SERVICE]
    primary = world.get("service", "chat")
    capture = world.get("service", SERVICE)
    assert primary is not None
    assert capture is not None
    assert capture["spec"]["selector"] == primary["spec"]["selector"]
    assert world.endpoints(SERVICE) == world.endpoints("chat")


def test_its_transitions_are_events(world: World, passed: dict[str, object]) -> None:
    assert {"Accepted", "CopyingStarted", "CountingStarted", "DurationReached", "VerdictPass", "Complete"} <= set(
        world.events("faster")
    )


def test_the_report_shows_what_differed_between_the_arms(world: World, passed: dict[str, object]) -> None:
    report = world.report("faster")
    assert report["verdict"] == "Pass"
    assert report["facts"]["patch"] == "spec.containers[engine].env[SPEED].value", "the patch and nothing else"


def test_a_run_deleted_while_it_runs_leaves_customers_served(world: World, passed: dict[str, object]) -> None:
    world.apply(
        shadow_run("deleted", duration="10m", capture=capture_before("chat", 2), endConditions={"minDuration": "5m"})
    )
    world.wait("deleted", "counted pair", lambda s: s.get("phase") == "Running" and s.get("pairs", 0) > 0, 150)
    arms = {p["metadata"]["name"] for p in world.all("pods", "shadowrun.dev/component in (baseline,candidate)")}
    assert len(arms) == 2
    reachable = {*world.endpoints("chat"), *world.endpoints(SERVICE)}
    assert not arms & reachable, "no customer's request may reach an arm"
    world.delete_runs("deleted")
    ours = "shadowrun.dev/run=deleted"
    world.until_no_pods(ours)
    assert world.all("deployments,secrets,configmaps,networkpolicies,poddisruptionbudgets", ours) == []
    assert world.endpoints(SERVICE) == world.endpoints("chat")


def test_no_customer_saw_a_failure_through_all_of_it(world: World, passed: dict[str, object]) -> None:
    for connection in CONNECTIONS:
        seen = world.customers(connection=connection)
        assert seen.failed == 0, seen.failures
        assert seen.ok > 100, seen
