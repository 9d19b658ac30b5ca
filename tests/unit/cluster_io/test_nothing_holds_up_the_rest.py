"""What the API server refuses, and what nobody can make sense of, keeps no run from ending and no other run waiting."""

import time
from typing import Any

import pytest
from shadowrun_mirror.config import decode_config
from shadowrun_operator.cluster import runs as runs_module
from shadowrun_operator.cluster.client import ApiRefusal, ApiUnreachable
from shadowrun_operator.cluster.memory import Memory
from shadowrun_operator.cluster.observe import observe
from shadowrun_operator.cluster.replicas import Answer
from shadowrun_operator.cluster.runs import SWEEP_S, Runs
from shadowrun_operator.manifests import groups, names
from shadowrun_operator.manifests.route import claim_of
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.kept import HOPELESS_S
from shadowrun_operator.reconcile.route import LEFT_S
from shadowrun_operator.reconcile.unreadable import LEAVING_S

from tests.unit.cluster_io.fake_cluster import FakeCluster
from tests.unit.cluster_io.test_modes import SETTINGS, cluster_with, passed, run, status
from tests.unit.cluster_io.test_routes import filters, runs_on, service, with_gateway
from tests.unit.cluster_io.wire import Request, answering, nobody
from tests.unit.reconcile.routes import ROUTED

pytestmark = pytest.mark.operator

FORBIDDEN = ApiRefusal(403, "Forbidden", "no")
SLOW = ApiUnreachable("PATCH: TimeoutError")
ENGINE = {"name": "engine", "image": "e:1", "ports": [{"name": "http", "containerPort": 8080}]}


def body(cluster: FakeCluster) -> dict[str, Any]:
    return cluster.objects[names.KIND, "inference", "x"]


def deleted(cluster: FakeCluster, seconds_ago: float) -> None:
    body(cluster)["metadata"]["deletionTimestamp"] = times.written(time.time() - seconds_ago)


def accepted(cluster: FakeCluster) -> tuple[str, str]:
    return next((c["reason"], c["message"]) for c in status(cluster)["conditions"] if c["type"] == "Accepted")


def inline(**pods: Any) -> dict[str, Any]:
    """A run whose arms start from a template of its own."""
    made = run()
    template = {"spec": {"containers": [ENGINE], **pods}}
    made["spec"]["arms"]["template"] = {"podTemplate": template}
    return made


MISSHAPEN: list[dict[str, Any]] = [
    {"nodeSelector": ["gpu"]},
    {"nodeSelector": {"gpu": "a b"}},
    {"containers": [{**ENGINE, "volumeMounts": {"a": 1}}], "volumes": [{"name": "w", "persistentVolumeClaim": {}}]},
    {"resourceClaims": ["x"]},
    {"containers": [{**ENGINE, "ports": [8080]}]},
    {"volumes": [{"name": "w", "projected": {"sources": [None]}}]},
]


@pytest.mark.parametrize("pods", MISSHAPEN)
async def test_a_template_of_another_shape_is_refused_and_the_run_ends(pods: dict[str, Any]) -> None:
    cluster = cluster_with(inline(**pods))
    runs = runs_on(cluster)
    await runs.pass_once("inference", "x")
    assert accepted(cluster)[0] == "TemplateUnsuitable"
    assert cluster.names("Deployment") == ["chat"]
    body(cluster)["metadata"]["creationTimestamp"] = times.written(time.time() - 3600)
    await runs.pass_once("inference", "x")
    assert (status(cluster)["phase"], status(cluster)["endReason"]) == ("Complete", "StartDeadlineExceeded")
    await runs.close()


async def test_what_is_null_in_a_template_is_as_good_as_left_out() -> None:
    cluster = cluster_with(inline(nodeSelector=None, volumes=[{"name": "w", "projected": {"sources": None}}]))
    runs = runs_on(cluster)
    await passed(cluster, runs)
    assert status(cluster)["phase"] == "WarmingUp"
    await runs.close()


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be made of any run."""

    def fails(*_: object) -> None:
        raise KeyError("claimName")

    monkeypatch.setattr(runs_module, "reconcile", fails)


@pytest.mark.usefixtures("broken")
async def test_a_run_that_nothing_can_be_made_of_is_told_so_and_ends_at_its_start_deadline() -> None:
    cluster = cluster_with(run())
    runs = runs_on(cluster)
    await runs.pass_once("inference", "x")
    reason, message = accepted(cluster)
    assert (reason, "KeyError" in message, "claimName" in message) == ("InvalidSpec", True, False)
    body(cluster)["metadata"]["creationTimestamp"] = times.written(time.time() - 3600)
    await runs.pass_once("inference", "x")
    assert (status(cluster)["phase"], status(cluster)["endReason"]) == ("Complete", "StartDeadlineExceeded")
    await runs.close()


async def test_an_accepted_run_whose_passes_fail_is_tried_again_until_long_after_its_expiry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = cluster_with(run())
    runs = runs_on(cluster)
    await passed(cluster, runs)

    async def fails(*_: object) -> None:
        raise KeyError("bug")

    monkeypatch.setattr(runs_module, "observe", fails)
    before = dict(status(cluster))
    await runs.pass_once("inference", "x")
    assert status(cluster) == before
    status(cluster)["expiryTime"] = times.written(time.time() - HOPELESS_S - 60)
    for _ in range(3):
        await runs.pass_once("inference", "x")
    assert (status(cluster)["phase"], status(cluster)["endReason"]) == ("Complete", "Expired")
    assert cluster.names("Deployment") == ["chat"]
    await runs.close()


@pytest.mark.usefixtures("broken")
async def test_a_deleted_run_that_nothing_can_be_made_of_is_let_go_after_a_while() -> None:
    cluster = cluster_with(run())
    runs = runs_on(cluster)
    deleted(cluster, 1)
    assert not (await runs.pass_once("inference", "x")).released
    deleted(cluster, LEAVING_S + 1)
    assert (await runs.pass_once("inference", "x")).released
    await runs.close()


@pytest.mark.parametrize("refusal", [ApiRefusal(429, "TooManyRequests", "later"), SLOW])
async def test_a_look_at_the_room_on_nodes_that_fails_fails_nothing_else(refusal: Any) -> None:
    cluster = cluster_with(run())
    runs = runs_on(cluster)
    cluster.forbidden["list", "Node"] = refusal
    await passed(cluster, runs)
    assert status(cluster)["phase"] == "WarmingUp"
    await runs.close()


@pytest.mark.parametrize("leaves", ["deleted", "stopped", "has no arms", "stays"])
async def test_the_room_on_nodes_is_of_no_interest_to_a_run_that_leaves_and_no_arm_waits_for_it(leaves: str) -> None:
    cluster = cluster_with(run())
    runs = runs_on(cluster)
    for _ in range(1 if leaves == "has no arms" else 2):
        await runs.pass_once("inference", "x")
    assert ("x-baseline" in cluster.names("Deployment")) == (leaves != "has no arms")
    asked: list[str] = []

    async def list_few(kind: str, most: int, **_: str) -> None:
        asked.append(kind)

    cluster.list_few = list_few  # type: ignore[method-assign]
    if leaves == "deleted":
        deleted(cluster, 1)
    elif leaves == "stopped":
        body(cluster)["spec"]["stop"] = {"reason": "enough"}
    memory = Memory()
    for _ in range(3):
        await observe(cluster, answering(nobody), SETTINGS, body(cluster), memory)  # type: ignore[arg-type]
    assert asked == (["Node"] if leaves == "stays" else []), "what is not known is not asked for in every pass"
    await runs.close()


async def _left_behind(*others: str) -> tuple[FakeCluster, Runs]:
    """Routed run `x` is gone, its filter is in its route; beside it capture Services of other runs that are gone."""
    cluster = with_gateway()
    runs = runs_on(cluster)
    await passed(cluster, runs, 7)
    del cluster.objects[names.KIND, "inference", "x"]
    for name in others:
        labels = {names.RUN_LABEL: name, names.COMPONENT_LABEL: names.CAPTURE, names.MANAGED_BY_LABEL: names.MANAGED_BY}
        meta = {"name": f"{name}-s", "namespace": "inference", "labels": labels, "resourceVersion": "1"}
        meta |= {"annotations": {names.PRIMARY_ANNOTATION: '{"app": "chat"}'}}
        cluster.put({"kind": "Service", "metadata": meta, "spec": {"selector": labels}})
    return cluster, runs


def _selects_primary(cluster: FakeCluster, name: str) -> bool:
    return bool(cluster.objects["Service", "inference", f"{name}-s"]["spec"]["selector"] == {"app": "chat"})


@pytest.mark.parametrize("refusal", [FORBIDDEN, SLOW])
async def test_an_orphan_that_is_refused_keeps_no_other_one_waiting(refusal: Any) -> None:
    cluster, runs = await _left_behind("a", "b")
    cluster.refusals["apply", "Service"] = refusal
    await runs.sweep()
    assert (_selects_primary(cluster, "a"), _selects_primary(cluster, "b")) == (False, True)
    assert (filters(cluster), runs.stale()) == (0, "")
    await runs.sweep()
    assert _selects_primary(cluster, "a")
    await runs.close()


async def test_a_hopeless_run_that_cannot_be_taken_down_keeps_no_orphan_waiting() -> None:
    cluster, runs = await _left_behind("a")
    hopeless = run("y", "uid-y")
    hopeless["status"] = {"phase": "Running", "expiryTime": times.written(time.time() - HOPELESS_S - 60)}
    cluster.put(hopeless)
    runs_of_y = {names.RUN_LABEL: "y", names.MANAGED_BY_LABEL: names.MANAGED_BY, names.COMPONENT_LABEL: "mirror"}
    cluster.put({"kind": "Secret", "metadata": {"name": "s", "namespace": "inference", "labels": runs_of_y}})
    cluster.forbidden["delete", "Secret"] = FORBIDDEN
    await runs.sweep()
    assert ("Secret", "inference", "s") in cluster.objects
    assert _selects_primary(cluster, "a")
    await runs.close()


async def test_an_unreadable_run_ends_though_nobody_may_ask_for_leader_worker_sets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Under a role from before the operator knew them."""
    cluster = with_gateway()
    runs = runs_on(cluster)
    await passed(cluster, runs, 7)
    cluster.forbidden["list", groups.KIND] = FORBIDDEN
    body(cluster)["spec"] |= {"duration": "a while", "stop": {"reason": "enough"}}
    for _ in range(3):
        await runs.pass_once("inference", "x")
    assert (status(cluster)["phase"], cluster.names("Deployment")) == ("Complete", ["chat"])
    assert "Whether runs left LeaderWorkerSets in inference is not known" in caplog.text
    await runs.close()


async def test_an_orphan_is_given_back_only_as_it_was_seen() -> None:
    cluster, runs = await _left_behind("a")
    sent: list[dict[str, Any]] = []
    applied = cluster.apply

    async def noted(manifest: dict[str, Any]) -> dict[str, Any]:
        sent.append(manifest)
        return await applied(manifest)

    cluster.apply = noted  # type: ignore[method-assign]
    service(cluster)["metadata"]["resourceVersion"] = "5"
    await runs.sweep()
    assert {m["metadata"]["name"]: m["metadata"]["resourceVersion"] for m in sent} == {"a-s": "1", "chat-copies": "5"}
    await runs.close()


async def test_a_service_that_was_taken_over_since_it_was_listed_keeps_its_filter() -> None:
    cluster, runs = await _left_behind()
    service(cluster)["metadata"]["resourceVersion"] = "1"
    listed = cluster.list

    async def then_taken_over(kind: str, namespace: str = "", *, selector: str = "") -> list[dict[str, Any]]:
        found = await listed(kind, namespace, selector=selector)
        if kind == names.KIND:
            service(cluster)["metadata"]["resourceVersion"] = "2"
        return found

    cluster.list = then_taken_over  # type: ignore[method-assign, assignment]
    await runs.sweep()
    assert (filters(cluster), claim_of(service(cluster))) == (1, "front")
    await runs.close()


async def test_a_route_that_nobody_may_edit_holds_up_a_deletion_only_so_long_and_is_looked_after_then() -> None:
    cluster = with_gateway()
    runs = runs_on(cluster)
    await passed(cluster, runs, 7)
    cluster.forbidden["edit", "HTTPRoute"] = FORBIDDEN
    deleted(cluster, 20)
    for _ in range(3):
        assert not (await runs.pass_once("inference", "x")).released
    deleted(cluster, LEFT_S + 11)
    for _ in range(4):
        released = (await runs.pass_once("inference", "x")).released
    assert released
    assert "FilterLeft" in [item["reason"] for (kind, *_), item in cluster.objects.items() if kind == "Event"]
    assert (filters(cluster), claim_of(service(cluster))) == (1, "front")
    del cluster.objects[names.KIND, "inference", "x"]
    await runs.sweep()
    assert filters(cluster) == 1
    cluster.forbidden.clear()
    await runs.sweep()
    assert (filters(cluster), claim_of(service(cluster))) == (0, "")
    await runs.close()


async def test_an_unreadable_run_ends_though_nobody_may_edit_its_route() -> None:
    cluster = with_gateway()
    runs = runs_on(cluster)
    await passed(cluster, runs, 7)
    cluster.forbidden["edit", "HTTPRoute"] = FORBIDDEN
    body(cluster)["spec"] |= {"duration": "a while", "stop": {"reason": "enough"}}
    for _ in range(3):
        await runs.pass_once("inference", "x")
    assert (status(cluster)["phase"], cluster.names("Deployment")) == ("Complete", ["chat"])
    assert claim_of(service(cluster)) == "front"
    cluster.forbidden.clear()
    await runs.sweep()
    assert (filters(cluster), claim_of(service(cluster))) == (0, "")
    await runs.close()


@pytest.mark.parametrize("writable", [True, False])
async def test_mirrors_are_told_to_stop_though_a_step_is_refused_but_not_without_the_lease(writable: bool) -> None:
    cluster, pushed = cluster_with(run()), list[bool]()

    def mirror(request: Request) -> Answer:
        if request.method == "PUT":
            pushed.append(decode_config(request.body).copying)
        return (200 if request.method == "PUT" else 503), b""

    runs = Runs(cluster, answering(mirror), SETTINGS, instance="test")  # type: ignore[arg-type]
    await passed(cluster, runs)
    assert pushed
    assert pushed[-1] is True
    body(cluster)["spec"]["stop"] = {"reason": "enough"}
    pushed.clear()
    cluster.writable = writable
    cluster.refusals["apply", "Secret"] = FORBIDDEN
    await runs.pass_once("inference", "x")
    assert pushed == ([False] if writable else [])
    await runs.close()


async def test_mirrors_are_told_of_a_pause_only_once_it_is_stored() -> None:
    """A version that was told and not stored would be used again for another configuration."""
    cluster, pushed = cluster_with(run()), list[bool]()

    def mirror(request: Request) -> Answer:
        if request.method == "PUT":
            pushed.append(decode_config(request.body).copying)
        return (200 if request.method == "PUT" else 503), b""

    runs = Runs(cluster, answering(mirror), SETTINGS, instance="test")  # type: ignore[arg-type]
    await passed(cluster, runs)
    body(cluster)["spec"]["suspend"] = True
    pushed.clear()
    cluster.refusals["apply", "Secret"] = FORBIDDEN
    await runs.pass_once("inference", "x")
    assert pushed == []
    cluster.objects["Service", "inference", "chat-shadowed"]["metadata"]["annotations"] = {}
    cluster.refusals["apply", "Service"] = FORBIDDEN
    await runs.pass_once("inference", "x")
    await runs.pass_once("inference", "x")
    assert pushed
    assert not any(pushed)
    await runs.close()


@pytest.mark.parametrize(
    ("capture", "known"),
    [({}, ("chat", "chat-shadowed", "")), (ROUTED, ("", "chat-copies", "front/chat"))],
)
async def test_what_an_unreadable_run_still_holds_is_in_use(capture: Any, known: tuple[str, str, str]) -> None:
    other = run("y", "uid-y", capture=capture)
    other["spec"]["duration"] = "a while"
    other["status"] = {"phase": "Running"}
    cluster = cluster_with(run(), other)
    seen = await observe(cluster, answering(nobody), SETTINGS, body(cluster), Memory())  # type: ignore[arg-type]
    assert [(o.name, o.primary, o.service_name, o.rule) for o in seen.others] == [("y", *known)]
    other["status"] = {"phase": "Complete"}
    other["spec"]["capture"] = "nothing that can be read"
    cluster.put(other)
    seen = await observe(cluster, answering(nobody), SETTINGS, body(cluster), Memory())  # type: ignore[arg-type]
    assert seen.others == ()


async def test_an_unreadable_run_waits_for_its_start_time_as_any_other() -> None:
    made = run()
    made["metadata"]["creationTimestamp"] = times.written(time.time() - 3600)
    made["spec"] |= {"duration": "a while", "schedule": {"startTime": times.written(time.time() + 3600)}}
    cluster = cluster_with(made)
    runs = runs_on(cluster)
    outcome = await runs.pass_once("inference", "x")
    assert status(cluster).get("phase") != "Complete"
    assert outcome.requeue_after == SWEEP_S
    made["spec"]["schedule"] = {"startTime": times.written(time.time() - 1800)}
    cluster.put(made)
    await runs.pass_once("inference", "x")
    assert status(cluster)["endReason"] == "StartDeadlineExceeded"
    await runs.close()


async def test_a_service_that_an_external_arm_s_url_names_is_read() -> None:
    made = run()
    urls = {"baselineURL": "http://old", "candidateURL": "http://new.models.svc"}
    made["spec"]["arms"] |= {"template": {"external": urls}, "candidate": {}}
    made["spec"]["hardware"] = {"policy": "Report"}
    cluster = cluster_with(made)
    cluster.put({"kind": "Service", "metadata": {"name": "old", "namespace": "inference"}, "spec": {}})
    seen = await observe(cluster, answering(nobody), SETTINGS, made, Memory())  # type: ignore[arg-type]
    assert list(seen.arm_services) == ["old"]


async def test_a_change_that_changes_nothing_is_refused_once_and_the_arms_go() -> None:
    cluster = cluster_with(run())
    engine = cluster.objects["Deployment", "inference", "chat"]["spec"]["template"]["spec"]["containers"][0]
    body(cluster)["spec"]["arms"]["candidate"] = {"patch": {"spec": {"containers": [dict(engine)]}}}
    runs = runs_on(cluster)
    await passed(cluster, runs, 8)
    reason, message = accepted(cluster)
    assert (status(cluster)["phase"], reason) == ("Pending", "PatchInvalid")
    assert "changes nothing" in message
    assert not {"x-baseline", "x-candidate"} & set(cluster.names("Deployment"))
    cluster.calls.clear()
    await runs.pass_once("inference", "x")
    assert cluster.calls == [], "it is not tried again until the spec is another one"
    await runs.close()
