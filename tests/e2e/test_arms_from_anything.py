"""Arms from a StatefulSet, from a template in the spec and behind URLs: made as asked, and never asked by a customer.

The StatefulSet's pods carry the very labels that the primary's Service selects, and say so in every answer.
"""

import copy
import json
import urllib.request
from typing import Any

import pytest

from tests.e2e.funnel import assert_status_adds_up
from tests.e2e.world import Manifest, World, condition_message, condition_reason, primary, shadow_run

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

SIGNED = "answered-by-an-arm"
NOT_WORSE = [
    {"name": "within-slo", "metric": "WithinSLO", "require": "NotWorse", "margin": "10%", "minPairs": 50},
    {"name": "failures", "metric": "Failures", "require": "NotWorse", "margin": "10%", "minPairs": 50},
]


def pod_template(**env: str) -> Manifest:
    """The primary's pods, labels included, with these variables too."""
    template: Manifest = copy.deepcopy(primary("chat")[0]["spec"]["template"])
    template["spec"]["containers"][0]["env"] += [{"name": key, "value": value} for key, value in env.items()]
    return template


def stateful_set(name: str) -> Manifest:
    """A workload without a pod of its own."""
    template = pod_template(ANSWER_BEGINS=SIGNED)
    template["metadata"]["labels"]["of"] = name
    spec = {"replicas": 0, "serviceName": "none", "selector": {"matchLabels": {"of": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec}


def beside(name: str, template: Manifest, candidate: Manifest) -> Manifest:
    """A run that never gets as far as customers: it takes the copies of a proxy that nobody has."""
    return shadow_run(
        name,
        capture={"mode": "External", "external": {"serviceName": f"{name}-copies"}},
        arms={"template": {"podTemplate": template}, "candidate": candidate},
    )


@pytest.fixture(scope="module", autouse=True)
def started(world: World) -> None:
    """All four at once; two of them count, each on a primary with customers of its own."""
    crowded = pod_template()
    crowded["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 64
    world.apply(stateful_set("set"))
    world.add_primaries("other", "old", "new")
    warm_up = {"duration": "4s", "requests": 30}
    shortcuts = {"args": ["--decode-ms=10"], "env": [{"name": "SPEED", "value": "2"}], "container": "engine"}
    urls = {f"{arm}URL": f"http://{name}:8000" for arm, name in (("baseline", "old"), ("candidate", "new"))}
    world.apply(
        shadow_run(
            "from-set",
            arms={
                "template": {"statefulSetRef": {"name": "set"}},
                "candidate": shortcuts,
                "warmup": warm_up,
                "replicas": 2,  # of which every conversation keeps to one
            },
            duration="5m",
        ),
        shadow_run(
            "elsewhere",
            primary="other",
            arms={"template": {"external": urls}, "candidate": {}, "warmup": warm_up},
            hardware={"policy": "Report"},
            criteria=NOT_WORSE,
            duration="20s",
        ),
        beside("meddled", pod_template(READY_AFTER="600"), {"args": ["--speed=2"]}),
        beside("crowded", crowded, {"patch": {}}),
    )
    world.serve_customers(rate=6)
    world.serve_customers("other", rate=6)


def test_a_change_that_nobody_declared_ends_the_run_before_it_copies(world: World) -> None:
    def candidate() -> Any:
        found = world.get("deployment", "meddled-candidate")
        return found is not None and found["spec"]["replicas"] == 1

    world.until("a patched candidate", candidate, 60)
    status = world.wait("meddled", "difference", lambda s: bool(s.get("difference")), 30)
    assert status["difference"] == ["spec.containers[engine].args"]
    world.kubectl("set", "env", "deployment/meddled-candidate", "INJECTED=1")
    status = world.wait_complete("meddled", 60)
    assert (status["endReason"], status["verdict"], status["attempt"]) == ("ArmChanged", "Inconclusive", 0)
    assert "candidate: spec.containers[engine].env[INJECTED]" in status["message"]


def test_a_lack_of_room_is_said_with_its_numbers(world: World) -> None:
    status = world.wait("crowded", "lack of room", lambda s: condition_reason(s, "ArmsReady") == "NoRoom", 60)
    assert "a pod asks for nvidia.com/gpu 64, the freest node has" in condition_message(status, "ArmsReady")
    world.kubectl("patch", "shadowrun", "crowded", "--type=merge", "-p", '{"spec": {"stop": {"reason": "seen"}}}')
    assert world.wait_complete("crowded", 60)["endReason"] == "Stopped"


def test_nothing_is_made_for_arms_behind_urls(world: World) -> None:
    world.wait("elsewhere", "counted pairs", lambda s: s.get("pairs", 0) > 0, 120)
    made = world.all("deployments,services,networkpolicies", "shadowrun.dev/run=elsewhere")
    parts = {item["metadata"]["labels"]["shadowrun.dev/component"] for item in made}
    assert parts <= {"capture", "mirror"}, parts


def test_no_customer_is_answered_by_an_arm_that_carries_the_primary_s_labels(world: World) -> None:
    world.wait("from-set", "counted pairs", lambda s: s.get("pairs", 0) > 5, 120)
    behind = [*world.endpoints("chat"), *world.endpoints("chat-shadowed")]
    assert {pod.rsplit("-", 2)[0] for pod in behind} == {"chat", "from-set-capture"}
    with world.cluster.port_forward("service/chat-shadowed", 8000, "-n", world.namespace) as port:
        answers = [ask(port, number) for number in range(20)]
    assert [answer for answer in answers if SIGNED in answer] == []
    with world.cluster.port_forward("service/from-set-baseline", 8000, "-n", world.namespace) as port:
        assert SIGNED in ask(port, 0), "an arm would have been recognised"


def ask(port: int, number: int) -> str:
    """A customer's request; its answer."""
    body = {"model": "chat", "max_tokens": 4, "messages": [{"role": "user", "content": f"question {number}"}]}
    headers = {"content-type": "application/json", "x-conversation-id": f"probe-{number}"}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), headers=headers
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        told: bytes = answer.read()
    return told.decode()


def test_shortcuts_make_the_candidate_of_a_stateful_set_s_pods(world: World) -> None:
    world.kubectl("patch", "shadowrun", "from-set", "--type=merge", "-p", '{"spec": {"duration": "20s"}}')
    status = world.wait_complete("from-set", 120)
    assert_status_adds_up(status)
    assert status["endReason"] == "DurationReached", status["message"]
    assert status["difference"] == ["spec.containers[engine].args", "spec.containers[engine].env[SPEED].value"]
    assert status["verdict"] != "Fail", status["message"]  # so short a run may be too short to decide
    assert world.report("from-set")["facts"]["patch"].splitlines() == status["difference"]


def test_arms_behind_urls_are_measured_and_nothing_is_claimed_of_their_hardware(world: World) -> None:
    status = world.wait_complete("elsewhere", 120)
    assert_status_adds_up(status)
    assert status["endReason"] == "DurationReached", status["message"]
    assert status["pairs"] > 20
    assert condition_reason(status, "HardwareMatched") == "NotVerified"
    assert status["message"].startswith("Hardware not verified."), status["message"]
    assert world.get("deployment", "new") is not None, "what others run stays"


def test_no_customer_noticed_any_of_it(world: World) -> None:
    for name in ("chat", "other"):
        seen = world.customers(name)
        assert seen.failed == 0, seen.failures
        assert seen.ok > 60, seen
