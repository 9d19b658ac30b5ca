"""Every reason for which a run is not accepted, one world each."""

from collections.abc import Callable
from typing import Any

import pytest
from shadowrun_operator.manifests import names
from shadowrun_operator.reconcile.acceptance import CHAIN
from shadowrun_operator.reconcile.observation import Observation, OtherRun
from shadowrun_operator.reconcile.plan import Delete, PatchCandidate
from shadowrun_operator.reconcile.reconcile import reconcile

from tests.unit.reconcile.world import World

pytestmark = pytest.mark.operator


def _without_service(world: World) -> None:
    del world.users["Service", "chat"]


def _without_deployment(world: World) -> None:
    del world.users["Deployment", "chat"]


def _service(**spec: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.users["Service", "chat"]["spec"].update(spec)

    return change


def _spec(path: str, value: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        block = world.body["spec"]
        *folders, last = path.split(".")
        for folder in folders:
            block = block.setdefault(folder, {})
        block[last] = value

    return change


def _port(**fields: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.users["Service", "chat"]["spec"]["ports"][0].update(fields)

    return change


def _made_by_a_run(world: World) -> None:
    world.users["Service", "chat"]["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}


def _taken(world: World) -> None:
    world.users["Service", "chat-shadowed"] = {"kind": "Service", "metadata": {"name": "chat-shadowed"}, "spec": {}}


def _port_without_container(world: World) -> None:
    world.users["Service", "chat"]["spec"]["ports"][0]["targetPort"] = "web"


NOT_YET = {
    "capture.paths": ["/v1/audio/speech"],
    "comparison": {"output": "Distribution"},
    "comparison.checks": ["ToolCalls"],
    "capture.proxy.port": 9000,
}


def _template(**template: Any) -> Callable[[World], None]:
    return _spec("arms.template", template)


def _container(**fields: Any) -> dict[str, Any]:
    return {"name": "engine", "image": "e:1", "ports": [{"name": "http", "containerPort": 8080}], **fields}


def _urls(**urls: str) -> Callable[[World], None]:
    """The run of the tests with arms behind URLs."""

    def change(world: World) -> None:
        known = {"baselineURL": "http://old:8000", "candidateURL": "http://new:8000"}
        world.body["spec"]["arms"] |= {"template": {"external": known | urls}, "candidate": {}}
        world.body["spec"]["hardware"] = {"policy": "Report"}

    return change


def _urls_and_patch(world: World) -> None:
    candidate = world.body["spec"]["arms"]["candidate"]
    _urls()(world)
    world.body["spec"]["arms"]["candidate"] = candidate


def _on_the_host(world: World) -> None:
    world.users["Deployment", "chat"]["spec"]["template"]["spec"]["hostNetwork"] = True


PATCHES: dict[str, Any] = {
    "not a mapping of a pod": {"spec": []},
    "of no container": {"spec": {"containers": [{"name": "engin", "args": []}]}},
    "of the Deployment": {"spec": {"replicas": 3, "template": {"spec": {"hostname": "a"}}}},
    "with the primary's label": {"metadata": {"labels": {"app": "chat"}}},
    "with our label": {"metadata": {"labels": {names.RUN_LABEL: "y"}}},
    "with an identity": {"spec": {"serviceAccountName": "admin"}},
    "of a container without a name": {"spec": {"containers": [{"args": []}]}},
    "at the wrong level": {"containers": [{"name": "engine"}]},
}

CASES: list[tuple[str, Callable[[World], None], str, str]] = [
    ("no Service", _without_service, "PrimaryNotFound", "'chat'"),
    ("no such port", _spec("primary.service.port", 9), "PrimaryNotFound", "its ports are: 8000"),
    ("no Deployment", _without_deployment, "DeploymentNotFound", "'chat'"),
    ("no StatefulSet", _template(statefulSetRef={"name": "chat"}), "StatefulSetNotFound", "'chat'"),
    ("no LeaderWorkerSet", _template(leaderWorkerSetRef={"name": "big"}), "LeaderWorkerSetNotFound", "'big'"),
    ("on the host's network", _on_the_host, "TemplateUnsuitable", "Deployment 'chat' has hostNetwork"),
    ("a template of nothing", _template(podTemplate={}), "TemplateUnsuitable", "podTemplate needs"),
    (
        "a template without the port",
        _template(podTemplate={"spec": {"containers": [_container(ports=[])]}}),
        "PortNotFound",
        "spec.arms.template.podTemplate",
    ),
    (
        "copies back to the primary",
        _urls(candidateURL="http://chat.inference.svc:8000"),
        "TemplateUnsuitable",
        "candidateURL is Service 'chat'",
    ),
    ("copies back to capture", _urls(baselineURL="http://chat-shadowed:8000"), "TemplateUnsuitable", "baselineURL"),
    ("copies back by address", _urls(candidateURL="http://10.96.1.1:8000"), "TemplateUnsuitable", "is Service 'chat'"),
    ("a patch of nobody's pods", _urls_and_patch, "PatchInvalid", "behind URLs"),
    (
        "an image given twice",
        _spec(
            "arms.candidate", {"image": "e:2", "patch": {"spec": {"containers": [{"name": "engine", "image": "e:3"}]}}}
        ),
        "PatchInvalid",
        "both set image",
    ),
    ("headless", _service(clusterIP="None"), "PrimaryUnsuitable", "headless"),
    ("local only", _service(internalTrafficPolicy="Local"), "PrimaryUnsuitable", "a node without a capture pod"),
    ("TLS by protocol", _port(appProtocol="https"), "PrimaryUnsuitable", "serves TLS"),
    ("TLS by name", _port(name="https-api"), "PrimaryUnsuitable", "serves TLS"),
    ("sticky", _service(sessionAffinity="ClientIP"), "PrimaryUnsuitable", "sessionAffinity ClientIP"),
    ("external", _service(type="ExternalName"), "PrimaryUnsuitable", "ExternalName"),
    ("no selector", _service(selector=None), "PrimaryUnsuitable", "no selector"),
    ("a capture Service as primary", _made_by_a_run, "PrimaryUnsuitable", "ShadowRun"),
    ("a port no container has", _port_without_container, "PortNotFound", "'web'"),
    ("a Service of that name", _taken, "ServiceNameTaken", "serviceName"),
    *(
        (f"asks for {path}", _spec(path, value), "NotImplemented", f"spec.{path.split('.')[0]}")
        for path, value in NOT_YET.items()
    ),
    *(
        (f"patch {what}", _spec("arms.candidate.patch", patch), "PatchInvalid", "patch")
        for what, patch in PATCHES.items()
    ),
]


@pytest.mark.parametrize(("change", "reason", "says"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_run_that_cannot_work_is_refused_with_its_reason_and_nothing_is_made(
    change: Callable[[World], None], reason: str, says: str
) -> None:
    world = World.with_spec()
    change(world)
    plan = world.turn()
    accepted = next(c for c in plan.status.conditions if c.type == "Accepted")
    assert (accepted.status, accepted.reason) == ("False", reason)
    assert says in accepted.message
    assert plan.status.phase == "Pending"
    assert plan.steps == ()
    assert plan.record is None
    assert [e.reason for e in plan.events] == [reason]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"others": (OtherRun(name="y", primary="chat", service_name="other"),)}, "CaptureInUse"),
        ({"others": (OtherRun(name="y", primary="other", service_name="chat-shadowed"),)}, "CaptureInUse"),
        ({"foreign": ("Deployment 'x-mirror'",)}, "NameInUse"),
    ],
)
def test_what_else_lives_in_the_namespace_can_stand_in_the_way(facts: dict[str, Any], reason: str) -> None:
    assert _reason(World.with_spec(), **facts) == reason


EXTERNAL = {"mode": "External", "proxy": None, "external": {"serviceName": "chat-copies"}}


@pytest.mark.parametrize(
    "spec",
    [
        {"clusterIP": "None"},
        {"internalTrafficPolicy": "Local"},
        {"sessionAffinity": "ClientIP"},
        {"type": "ExternalName"},
        {"selector": None},
    ],
)
def test_a_primary_that_nothing_of_ours_stands_before_may_be_any_service(spec: dict[str, Any]) -> None:
    world = World.with_spec(capture=EXTERNAL)
    _service(**spec)(world)
    assert _reason(world) == "Accepted"


def test_a_primary_that_speaks_tls_is_refused_for_the_arms_sake_too() -> None:
    world = World.with_spec(capture=EXTERNAL)
    _port(appProtocol="https")(world)
    assert _reason(world) == "PrimaryUnsuitable"


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (OtherRun(name="y", primary="chat", service_name="chat-shadowed"), "Accepted"),
        (OtherRun(name="y", primary="", service_name="other-copies"), "Accepted"),
        (OtherRun(name="y", primary="", service_name="chat-copies"), "CaptureInUse"),
    ],
)
def test_copies_of_another_proxy_may_be_taken_beside_a_capture_but_not_under_one_name(
    other: OtherRun, reason: str
) -> None:
    assert _reason(World.with_spec(capture=EXTERNAL), others=(other,)) == reason


def test_a_capture_may_stand_beside_a_run_that_takes_another_proxy_s_copies() -> None:
    assert _reason(World.with_spec(), others=(OtherRun(name="y", primary="", service_name="copies"),)) == "Accepted"


@pytest.mark.parametrize(
    ("capture", "component", "reason"),
    [
        ({}, "capture", "Accepted"),
        ({}, "copies", "ServiceNameTaken"),
        (EXTERNAL, "copies", "Accepted"),
        (EXTERNAL, "capture", "ServiceNameTaken"),
    ],
)
def test_customers_are_never_led_to_a_mirror_nor_copies_to_the_primary(
    capture: dict[str, Any], component: str, reason: str
) -> None:
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.COMPONENT_LABEL: component}
    service = {"kind": "Service", "metadata": {"name": "left", "labels": labels}, "spec": {"selector": {"a": "b"}}}
    assert _reason(World.with_spec(capture=capture), capture_service=service) == reason


def test_a_missing_credential_is_named() -> None:
    world = World.with_spec(arms={"credentialsSecretRef": {"name": "arm-token"}})
    assert _reason(world, credential_found=False) == "SecretNotFound"
    assert _reason(world, credential_found=True) == "Accepted"


@pytest.mark.parametrize("spec", [{"internalTrafficPolicy": "Cluster"}, {"sessionAffinity": "None"}])
def test_what_kubernetes_itself_writes_into_a_service_is_suitable(spec: dict[str, Any]) -> None:
    world = World.with_spec()
    _service(**spec)(world)
    assert _reason(world) == "Accepted"


def test_every_check_of_the_chain_is_documented_and_silent_for_a_sound_run() -> None:
    seen = World.with_spec().observe()
    for check in CHAIN:
        assert check.__doc__
        assert check(seen) is None


def test_a_refused_run_is_looked_at_again_and_accepted_when_what_was_missing_appears() -> None:
    world = World.with_spec()
    service = world.users.pop(("Service", "chat"))
    world.turn()
    assert world.phase == "Pending"
    world.users["Service", "chat"] = service
    world.until("Running")


def test_the_same_refusal_is_told_once() -> None:
    world = World.with_spec()
    _without_service(world)
    world.turn()
    world.turn()
    assert world.events == ["PrimaryNotFound"]


@pytest.mark.parametrize("reason", ["StartDeadlineExceeded", "Stopped"])
def test_a_run_that_ends_before_it_is_accepted_writes_nothing_but_its_status(reason: str) -> None:
    world = World.with_spec()
    _without_service(world)
    world.turn(seconds=400 if reason == "StartDeadlineExceeded" else 3)
    if reason == "Stopped":
        world.body["spec"]["stop"] = {"reason": "not today"}
    plan = world.turn()
    status = world.body["status"]
    assert (status["phase"], status["verdict"], status["endReason"]) == ("Complete", "Inconclusive", reason)
    assert (plan.record, plan.checkpoint, plan.steps, world.objects) == (None, False, (), {})
    conditions = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
    assert conditions["Accepted"][0] == "False"
    assert conditions["Complete"] == ("True", reason)
    assert conditions["Succeeded"] == ("False", reason)
    assert conditions["ArmsReady"] == ("Unknown", "NotStarted")


def test_a_run_that_lost_its_record_while_preparing_and_must_end_takes_down_what_it_has_made() -> None:
    world = _prepared()
    del world.objects["ConfigMap", "x-evidence"]
    world.record = None
    world.body["spec"]["stop"] = {"reason": "not today"}
    world.until("Complete", turns=60)
    assert not {kind for kind, _ in world.objects} - {"ConfigMap", "Service"}
    assert [name for kind, name in world.objects if kind == "Service"] == ["chat-shadowed"]


def test_of_two_runs_accepted_at_once_the_newer_goes_back_and_leaves_nothing() -> None:
    world = _prepared()
    world.others = (OtherRun(name="y", primary="chat", service_name="other", older=True),)
    for _ in range(20):
        world.turn()
    status = world.body["status"]
    accepted = next(c for c in status["conditions"] if c["type"] == "Accepted")
    assert (status["phase"], accepted["status"], accepted["reason"]) == ("Pending", "False", "CaptureInUse")
    assert "expiryTime" not in status
    assert set(world.objects) == {("Service", "chat-shadowed")}
    assert world.record is None
    assert world.events.count("CaptureInUse") == 1
    world.others, world.starting = (), True
    world.until("Running")


def test_of_two_runs_accepted_at_once_the_newer_takes_down_the_arms_it_has_just_made() -> None:
    world = World.with_spec()
    for _ in range(2):
        world.turn()
    assert {name for kind, name in world.objects if kind == "Deployment"} == {"x-candidate", "x-baseline"}
    world.others = (OtherRun(name="y", primary="chat", service_name="other", older=True),)
    plan = world.turn()
    assert all(isinstance(step, Delete) for step in plan.steps)
    assert not [name for kind, name in world.objects if kind == "Deployment"]
    for _ in range(3):
        world.turn()
    assert (world.phase, world.record, set(world.objects)) == ("Pending", None, set())


def test_of_two_runs_accepted_at_once_the_older_goes_on() -> None:
    world = _prepared()
    world.others = (OtherRun(name="y", primary="chat", service_name="chat-shadowed", older=False),)
    world.starting = True
    world.until("WarmingUp")


def test_a_refused_run_goes_back_without_the_expiry_of_the_attempt() -> None:
    world = World.with_spec()
    world.refuse = "no"
    world.until("Preparing")
    assert "expiryTime" in world.body["status"]
    world.until("Pending", turns=3)
    assert "expiryTime" not in world.body["status"]
    assert world.body["status"]["provenance"]["specHash"] == ""


@pytest.mark.parametrize(
    ("metadata", "free"),
    [
        ({"labels": {names.MANAGED_BY_LABEL: "shadowrun", names.COMPONENT_LABEL: "capture"}}, True),
        ({"labels": {names.MANAGED_BY_LABEL: "shadowrun", names.COMPONENT_LABEL: "mirror"}}, False),
        ({"labels": {names.COMPONENT_LABEL: "capture"}}, False),
        (
            {
                "labels": {names.MANAGED_BY_LABEL: "shadowrun", names.COMPONENT_LABEL: "capture"},
                "ownerReferences": [{"uid": "other"}],
            },
            False,
        ),
    ],
)
def test_only_a_capture_service_that_nobody_owns_is_taken_over(metadata: dict[str, Any], free: bool) -> None:
    service = {"kind": "Service", "metadata": {"name": "chat-shadowed", **metadata}, "spec": {"selector": {"a": "b"}}}
    assert _reason(World.with_spec(), capture_service=service) == ("Accepted" if free else "ServiceNameTaken")


def _prepared() -> World:
    """Everything is made, nothing is ready."""
    world = World.with_spec()
    world.starting = False
    for _ in range(4):
        world.turn()
    assert ("Deployment", "x-capture") in world.objects
    return world


def test_a_patch_the_api_server_refuses_removes_the_arms_and_waits_for_another_spec() -> None:
    world = World.with_spec()
    world.refuse = "spec.template.spec.containers[0].args: Invalid value"
    world.turn()
    plan = world.turn()
    assert any(isinstance(step, PatchCandidate) for step in plan.steps)
    assert [name for kind, name in world.objects if kind == "Deployment"] == ["x-candidate"], "none beside it"
    plan = world.turn()
    assert all(isinstance(step, Delete) for step in plan.steps)
    assert (world.phase, world.record) == ("Pending", None)
    assert not [name for kind, name in world.objects if kind == "Deployment"]
    message = world.body["status"]["message"]
    assert "API server refused" in message
    assert "args" in message
    for _ in range(5):
        assert world.turn().steps == ()
    world.refuse = ""
    world.body["metadata"]["generation"] = 2
    world.until("Running")


def _reason(world: World, **facts: Any) -> str:
    seen = world.observe()
    known = {name: getattr(seen, name) for name in Observation.__dataclass_fields__}
    plan = reconcile(Observation(**{**known, **facts}))
    return str(next(c for c in plan.status.conditions if c.type == "Accepted").reason)
