"""Arms start from whatever the spec names, differ by what it says, and are judged only as long as that is true."""

import dataclasses
from typing import Any

import pytest
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile.acceptance import violation
from shadowrun_operator.reconcile.judging import stored_report

from tests.unit.reconcile.world import World, deployment

pytestmark = pytest.mark.operator

ENGINE = {"name": "engine", "image": "e:1", "ports": [{"name": "http", "containerPort": 8080}]}
URLS = {"baselineURL": "http://old.models.svc:8001", "candidateURL": "http://new.models.svc"}


def _behind_urls(**spec: Any) -> World:
    world = World.with_spec(**spec)
    world.body["spec"]["arms"] |= {"template": {"external": URLS}, "candidate": {}}
    world.body["spec"]["hardware"] = {"policy": "Report"}
    return world


def _from(template: dict[str, Any], **arms: Any) -> World:
    world = World.with_spec(arms=arms)
    world.body["spec"]["arms"]["template"] = template
    return world


def _pods(world: World, arm: str) -> Manifest:
    template: Manifest = world.objects["Deployment", f"x-{arm}"]["spec"]["template"]
    return template


def _condition(world: World, kind: str) -> tuple[str, str]:
    return next((c["status"], c["reason"]) for c in world.body["status"]["conditions"] if c["type"] == kind)


def test_a_stateful_set_s_pods_become_deployments() -> None:
    world = _from({"statefulSetRef": {"name": "set"}})
    source = deployment() | {"kind": "StatefulSet"}
    source["spec"]["template"]["spec"]["containers"][0]["image"] = "from-the-set:1"
    world.users["StatefulSet", "set"] = source
    world.until("Running")
    for arm in ("baseline", "candidate"):
        assert _pods(world, arm)["spec"]["containers"][0]["image"] == "from-the-set:1"


def test_a_template_written_into_the_spec_needs_no_workload_at_all() -> None:
    world = _from({"podTemplate": {"metadata": {"labels": {"app": "chat"}}, "spec": {"containers": [ENGINE]}}})
    del world.users["Deployment", "chat"]
    world.until("Running")
    assert _pods(world, "baseline")["spec"]["containers"] == [ENGINE]
    assert _pods(world, "baseline")["metadata"]["labels"] == names.labels(world.observe().ref, "baseline")
    assert _pods(world, "candidate")["spec"]["containers"][0]["args"] == ["-x"], "the patch applies to it too"


CONVERSATIONS = {"unit": "Conversation", "key": {"header": "x-conversation-id"}}


@pytest.mark.parametrize(
    ("sampling", "headless", "port"), [(CONVERSATIONS, True, 8080), ({"unit": "Request"}, False, 8000)]
)
def test_what_is_drawn_together_is_sent_to_pods_by_their_own_addresses(
    sampling: dict[str, Any], headless: bool, port: int
) -> None:
    world = World.with_spec(arms={"replicas": 2}, sampling=sampling)
    world.until("WarmingUp")
    assert world.mirror is not None
    assert {(arm.keyed, arm.port) for arm in world.mirror.arms} == {(headless, port)}
    for arm in ("baseline", "candidate"):
        assert (world.objects["Service", f"x-{arm}"]["spec"].get("clusterIP") == "None") is headless


def test_the_port_of_the_arms_pods_stays_what_it_was_when_the_primary_goes() -> None:
    world = World.with_spec(arms={"replicas": 2}, sampling=CONVERSATIONS)
    world.until("WarmingUp")
    del world.users["Service", "chat"]
    world.turn()
    assert world.mirror is not None
    assert {arm.port for arm in world.mirror.arms} == {8080}


def test_a_port_that_the_spec_names_is_the_one_that_pods_are_called_at() -> None:
    world = World.with_spec(arms={"replicas": 2, "port": 9000}, sampling=CONVERSATIONS)
    world.until("WarmingUp")
    assert world.mirror is not None
    assert {arm.port for arm in world.mirror.arms} == {9000}


def test_another_template_in_the_spec_is_another_experiment() -> None:
    world = _from({"podTemplate": {"spec": {"containers": [ENGINE]}}})
    world.until("Running")
    world.body["spec"]["arms"]["template"]["podTemplate"] = {"spec": {"containers": [{**ENGINE, "image": "e:2"}]}}
    world.until("Complete")
    status = world.body["status"]
    assert (status["endReason"], status["verdict"]) == ("SpecChanged", "Inconclusive")
    assert "spec.arms.template" in status["message"]


def test_shortcuts_change_the_candidate_alone_and_the_status_says_where() -> None:
    candidate = {"image": "e:2", "env": [{"name": "CACHE", "value": "1"}], "patch": {}}
    world = World.with_spec()
    world.body["spec"]["arms"]["candidate"] = candidate
    world.until("Running")
    (engine,) = _pods(world, "candidate")["spec"]["containers"]
    assert (engine["image"], engine["env"]) == ("e:2", [{"name": "CACHE", "value": "1"}])
    difference = ["spec.containers[engine].env", "spec.containers[engine].image"]
    assert world.body["status"]["difference"] == difference
    world.until("Complete")
    assert world.body["status"]["difference"] == difference, "it is said of the run, and outlives its arms"
    report = stored_report(world.observe())
    assert report is not None
    assert report.facts.patch.splitlines() == difference


@pytest.mark.parametrize("arm", ["baseline", "candidate", "control"])
def test_a_change_by_somebody_else_before_copying_ends_the_run_and_is_named(arm: str) -> None:
    world = World.with_spec(arms={"control": "Enabled"})
    world.starting = False
    world.until("Preparing")
    for _ in range(3):
        world.turn()
    _pods(world, arm)["spec"]["containers"].append({"name": "sidecar", "image": "s:1"})
    world.starting = True
    world.until("Complete")
    status = world.body["status"]
    assert (status["endReason"], status["verdict"], status["pairs"]) == ("ArmChanged", "Inconclusive", 0)
    assert "spec.containers[sidecar].image" in status["message"]
    assert world.longest_copying == 0.0


def test_many_changes_by_somebody_else_are_counted_and_the_first_are_named() -> None:
    world = World.with_spec()
    world.starting = False
    for _ in range(4):
        world.turn()
    _pods(world, "candidate")["spec"]["nodeSelector"] |= {f"k{i}": "v" for i in range(7)}
    world.turn()
    assert "and 2 more" in world.body["status"]["message"]


def test_arms_behind_urls_get_copies_and_nothing_is_made_for_them() -> None:
    world = _behind_urls()
    world.until("Running")
    assert world.mirror is not None
    assert [(arm.name, arm.host, arm.port) for arm in world.mirror.arms] == [
        ("baseline", "old.models.svc", 8001),
        ("candidate", "new.models.svc", 80),
    ]
    made = {name for _, name in world.objects}
    assert not made & {"x-baseline", "x-candidate", "x-arms"}
    assert _condition(world, "HardwareMatched") == ("Unknown", "NotVerified")
    assert _condition(world, "ArmsReady")[0] == "True"


def test_a_verdict_on_arms_behind_urls_says_that_nobody_saw_their_hardware() -> None:
    world = _behind_urls()
    world.until("Complete")
    status = world.body["status"]
    assert status["endReason"] == "DurationReached"
    assert "Hardware not verified" in status["message"]
    report = stored_report(world.observe())
    assert report is not None
    assert [arm.url for arm in report.facts.arms] == list(URLS.values())
    assert _condition(world, "HardwareMatched") == ("Unknown", "NotVerified")


def test_a_named_port_of_the_primary_needs_no_template_where_arms_are_behind_urls() -> None:
    world = _behind_urls()
    del world.users["Deployment", "chat"]
    world.users["Service", "chat"]["spec"]["ports"][0]["targetPort"] = "web"
    world.until("Running")


def _known(selector: dict[str, str] | None, component: str = "", **annotations: str) -> Manifest:
    labels = {names.COMPONENT_LABEL: component} if component else {}
    return {"metadata": {"name": "old", "labels": labels, "annotations": annotations}, "spec": {"selector": selector}}


@pytest.mark.parametrize(
    ("service", "said"),
    [
        (_known({"app": "chat"}), "picks pods of the primary"),
        (_known({"app": "chat", "version": "2"}), "picks pods of the primary"),
        (_known({"app": "chat-old"}, names.CAPTURE), "made for customers' requests"),
        (_known({"app": "chat-old"}, names.ROUTED), "made for customers' requests"),
        (_known({"app": "chat-old"}, **{names.STANDS_FOR_ANNOTATION: "chat:8000"}), "made for customers' requests"),
        (_known({"app": "chat-old"}), ""),
        (_known(None), ""),
    ],
)
@pytest.mark.parametrize("host", ["old", "old.inference", "old.inference.svc", "old.inference.svc.cluster.local"])
def test_a_url_that_leads_back_to_the_primary_under_another_name_is_refused(
    service: Manifest, said: str, host: str
) -> None:
    world = _behind_urls()
    world.body["spec"]["arms"]["template"]["external"] = {**URLS, "candidateURL": f"http://{host}:8000"}
    problem = violation(dataclasses.replace(world.observe(), arm_services={"old": service}))
    assert (problem is not None) == bool(said)
    if problem is not None:
        assert problem.reason == "TemplateUnsuitable"
        assert "candidateURL is Service 'old'" in problem.message
        assert said in problem.message
