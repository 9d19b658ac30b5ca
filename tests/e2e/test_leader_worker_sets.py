"""Arms of several pods that serve together, from a LeaderWorkerSet: made, asked, counted and removed group by group.

Their controller is the real one. The primary is a LeaderWorkerSet too, with leaders and workers of two templates: a
leader answers, a worker is ready once it has reached its own leader by the name that its group has for it.
"""

import copy

import pytest

from tests.cluster import leaderworkerset
from tests.cluster.plugin import RunOnce, progress_shown
from tests.e2e.funnel import assert_status_adds_up
from tests.e2e.world import H100, Manifest, World, condition, condition_message, condition_reason, primary, shadow_run

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
REPLICAS, SIZE = 2, 2
REACHED = "import os, urllib.request as u; u.urlopen(f'http://{os.environ[\"LWS_LEADER_ADDRESS\"]}:8000/health')"


def big() -> list[Manifest]:
    """A primary of one group, and the Service that picks its leader."""
    leader = copy.deepcopy(primary("big")[0]["spec"]["template"])
    worker = copy.deepcopy(leader)
    (container,) = worker["spec"]["containers"]
    del container["ports"], container["resources"]["limits"]["nvidia.com/gpu"]
    worker["spec"]["containers"] = [
        container
        | {
            "name": "follower",
            "command": ["python", "-c", "import time; time.sleep(1e6)"],
            "lifecycle": {},
            "readinessProbe": {
                "exec": {"command": ["python", "-c", REACHED]},
                "periodSeconds": 5,
                "timeoutSeconds": 5,
                "failureThreshold": 10,
            },
        }
    ]
    worker["spec"] |= {"terminationGracePeriodSeconds": 1, "nodeSelector": {"nvidia.com/gpu.product": H100}}
    group = {"size": SIZE, "leaderTemplate": leader, "workerTemplate": worker}
    return [
        {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": "big"},
            "spec": {"replicas": 1, "leaderWorkerTemplate": group},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "big"},
            "spec": {
                "selector": {"app": "big", INDEX: "0"},
                "ports": [{"name": "http", "port": 8000, "targetPort": "http"}],
            },
        },
    ]


REPORTED = {"nodeSelector": {"nvidia.com/gpu.product": H100}, "policy": "Report"}
"""Arms that ask for different devices would end a run."""


def of_big(name: str, *, candidate: Manifest, **spec: Manifest) -> Manifest:
    arms = {
        "template": {"leaderWorkerSetRef": {"name": "big"}},
        "candidate": candidate,
        "replicas": REPLICAS,
        "warmup": {"duration": "4s", "requests": 30},
    }
    return shadow_run(name, primary="big", arms=arms, duration="10m", startDeadline="15m", **spec)


def beside(name: str) -> Manifest:
    return {"mode": "External", "external": {"serviceName": f"{name}-copies"}}


def entry(container: str, **env: str) -> Manifest:
    return {"name": container, "env": [{"name": key, "value": value} for key, value in env.items()]}


@pytest.fixture(scope="module", autouse=True)
def started(request: pytest.FixtureRequest, world: World, once: RunOnce) -> None:
    """Customers of the primary, a run on it, and two beside that never get as far as they."""
    with progress_shown(request.config):
        once("leaderworkersets", lambda: leaderworkerset.install(world.cluster))
    world.apply(*big())
    both = {"spec": {"containers": [entry("engine", SPEED="2"), entry("follower", ROUNDS="3")]}}
    mistaken = {"spec": {"containers": [{"name": "follower", "arg": ["--fast"]}]}}
    crowded = {"spec": {"containers": [{"name": "follower", "resources": {"limits": {"nvidia.com/gpu": "64"}}}]}}
    world.until("a leader behind the primary's Service", lambda: world.endpoints("big") == ["big-0"], 90)
    world.apply(
        of_big("groups", candidate={"patch": both}),
        of_big("mistaken", candidate={"patch": mistaken}, capture=beside("mistaken")),
        of_big("crowded", candidate={"patch": crowded}, capture=beside("crowded"), hardware=REPORTED),
    )
    world.serve_customers("big", rate=6)


def test_a_field_that_no_pod_has_is_refused_and_nothing_is_left_of_the_attempt(world: World) -> None:
    status = world.wait("mistaken", "refusal", lambda s: condition_reason(s, "Accepted") == "PatchInvalid", 60)
    assert "arg" in condition_message(status, "Accepted")
    world.until("no object of it", lambda: made(world, "mistaken") == [], 60)


def test_room_is_counted_for_all_pods_of_a_group(world: World) -> None:
    status = world.wait("crowded", "lack of room", lambda s: condition_reason(s, "ArmsReady") == "NoRoom", 90)
    said = condition_message(status, "ArmsReady")
    assert f"for {REPLICAS} of" in said, "the candidate's workers, one in each group"
    assert "a pod asks for nvidia.com/gpu 64" in said
    world.delete_runs("crowded")


def test_arms_are_groups_with_the_change_of_each_template(world: World) -> None:
    world.wait("groups", "a warm-up", lambda s: s.get("phase") in ("WarmingUp", "Running"), 180)
    status = world.wait("groups", "ready arms", lambda s: condition(s, "ArmsReady") == "True", 60)
    assert status["difference"] == [
        "leaderTemplate.spec.containers[engine].env[SPEED].value",
        "workerTemplate.spec.containers[follower].env[ROUNDS]",
    ]
    for arm in ("baseline", "candidate"):
        found = world.get("leaderworkerset", f"groups-{arm}-set")
        assert found is not None
        assert (found["spec"]["replicas"], found["spec"]["leaderWorkerTemplate"]["size"]) == (REPLICAS, SIZE)
        pods = world.all("pods", f"shadowrun.dev/run=groups,shadowrun.dev/component={arm}")
        assert len(pods) == REPLICAS * SIZE
        assert {pod["metadata"]["labels"].get("app") for pod in pods} == {None}
        assert {pod["spec"]["nodeSelector"]["nvidia.com/gpu.product"] for pod in pods} == {H100}
    assert "groups-baseline-leader" not in {d["metadata"]["name"] for d in world.all("deployments")}


def test_requests_go_to_leaders_and_customers_to_none_of_an_arm(world: World) -> None:
    for arm in ("baseline", "candidate"):
        assert world.endpoints(f"groups-{arm}") == [f"groups-{arm}-set-{number}" for number in range(REPLICAS)]
    assert world.endpoints("big") == ["big-0"]
    world.wait("groups", "counted pairs", lambda s: s.get("pairs", 0) > 5, 180)
    assert_status_adds_up(world.status("groups"))
    assert {pod.rsplit("-", 2)[0] for pod in world.endpoints("big-shadowed")} == {"groups-capture"}


def test_the_end_leaves_no_group_behind(world: World) -> None:
    world.kubectl("patch", "shadowrun", "groups", "--type=merge", "-p", '{"spec": {"stop": {"reason": "seen"}}}')
    world.wait_complete("groups", 180)
    world.until("no object of the arms", lambda: of_arms(world) == [], 120)
    world.until("customers have their primary back", lambda: world.endpoints("big-shadowed") == ["big-0"], 60)


def made(world: World, run: str) -> list[str]:
    """Names of all that was made for a run's arms."""
    kinds = "leaderworkersets,deployments,services,networkpolicies,pods"
    return [item["metadata"]["name"] for item in world.all(kinds, f"shadowrun.dev/run={run}")]


def of_arms(world: World) -> list[str]:
    """What is there of the arms, that of their controller included."""
    kinds = "leaderworkersets,deployments,services,networkpolicies,pods,statefulsets"
    begins = ("groups-baseline", "groups-candidate", "groups-arms")
    return [n for item in world.all(kinds) if (n := str(item["metadata"]["name"])).startswith(begins)]
