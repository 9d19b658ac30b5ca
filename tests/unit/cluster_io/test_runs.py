"""Passes and sweeps over an API server in memory: what is written, when, and what a failure leaves."""

import asyncio
import time
from typing import Any

import pytest
from shadowrun_operator.cluster import apply as apply_module
from shadowrun_operator.cluster import runs as runs_module
from shadowrun_operator.cluster.client import ApiRefusal, ApiUnreachable
from shadowrun_operator.cluster.memory import Memory
from shadowrun_operator.cluster.namespaces import ALL, Namespaces
from shadowrun_operator.cluster.observe import observe
from shadowrun_operator.cluster.replicas import Answer
from shadowrun_operator.cluster.runs import PAUSE_S, Runs
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.attempts import ledger_entry
from shadowrun_operator.manifests.given_back import given_back
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.kept import HOPELESS_S
from shadowrun_operator.reconcile.observation import Settings

from tests.unit.cluster_io.fake_cluster import FakeCluster
from tests.unit.cluster_io.wire import Request, answering, nobody
from tests.unit.reconcile.world import UID, deployment, service, spec

pytestmark = pytest.mark.operator


def _body(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {
            "name": "x",
            "namespace": "inference",
            "uid": UID,
            "generation": 1,
            "creationTimestamp": times.written(time.time()),
            "finalizers": [names.FINALIZER],
        },
        "spec": spec(),
        "status": status,
    }


def _world(
    *, cluster: FakeCluster | None = None, namespaces: Namespaces = ALL, **status: Any
) -> tuple[FakeCluster, Runs]:
    if cluster is None:
        cluster = FakeCluster()
        cluster.put(service())
        cluster.put(deployment())
        cluster.put(_body(**status))

    own = Settings(mirror_image="m:1", capture_image="c:1", namespace="ops", version="0.1.0")
    return cluster, Runs(cluster, answering(nobody), own, instance="test", namespaces=namespaces)  # type: ignore[arg-type]


def _status(cluster: FakeCluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.objects[names.KIND, "inference", "x"]["status"]
    return found


def _ready(cluster: FakeCluster) -> None:
    """Every Deployment of ours is rolled out, its pods are ready."""
    for (kind, _, name), item in list(cluster.objects.items()):
        if kind == "Deployment" and name != "chat":
            wanted = item["spec"]["replicas"]
            seen = item["metadata"]["generation"]
            item["status"] = {"readyReplicas": wanted, "updatedReplicas": wanted, "observedGeneration": seen}
            for number in range(wanted):
                cluster.put(
                    {
                        "kind": "Pod",
                        "metadata": {
                            "name": f"{name}-{number}",
                            "namespace": "inference",
                            "uid": f"{name}-{number}",
                            "labels": item["metadata"]["labels"],
                        },
                        "spec": {"nodeName": "node1"},
                        "status": {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
                    }
                )
    cluster.put({"kind": "Node", "metadata": {"name": "node1", "namespace": "", "labels": {"gpu": "H200"}}})


async def _copying() -> tuple[FakeCluster, Runs]:
    cluster, runs = _world()
    for _ in range(6):
        await runs.pass_once("inference", "x")
        _ready(cluster)
    assert _status(cluster)["phase"] == "WarmingUp"
    return cluster, runs


def _events(cluster: FakeCluster) -> list[str]:
    return [item["reason"] for (kind, _, _), item in cluster.objects.items() if kind == "Event"]


async def test_passes_create_the_arms_patch_only_our_candidate_and_start_copying() -> None:
    cluster, runs = _world()
    for _ in range(6):
        await runs.pass_once("inference", "x")
        _ready(cluster)
    assert _status(cluster)["phase"] == "WarmingUp"
    assert [call for call in cluster.calls if call[0] == "patch"] == [("patch", "Deployment", "x-candidate")]
    written = {(kind, name) for verb, kind, name in cluster.calls if verb != "close"}
    assert not {("Service", "chat"), ("Deployment", "chat")} & written
    assert cluster.names("Service") == ["chat", "chat-shadowed", "x-baseline", "x-candidate", "x-mirror"]
    reasons = [item["reason"] for (kind, _, _), item in cluster.objects.items() if kind == "Event"]
    assert reasons == ["Accepted", "CopyingStarted"]
    await runs.close()


async def test_a_pass_that_finds_everything_as_it_should_be_writes_nothing() -> None:
    cluster, runs = _world()
    for _ in range(7):
        await runs.pass_once("inference", "x")
        _ready(cluster)
    cluster.calls.clear()
    await runs.pass_once("inference", "x")
    assert cluster.calls == []
    await runs.close()


@pytest.mark.parametrize("error", [ApiRefusal(500, "Internal", "down"), ApiUnreachable("no answer"), KeyError("bug")])
async def test_a_pass_that_fails_is_repeated_and_never_ends_the_loop(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, runs = _world()

    async def fails(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(runs_module, "observe", fails)
        assert (await runs.pass_once("inference", "x")).requeue_after == PAUSE_S
    await runs.pass_once("inference", "x")
    assert _status(cluster)["phase"] == "Preparing"
    await runs.close()


async def test_a_refused_step_is_said_in_the_status_and_once_as_an_event_and_is_tried_again() -> None:
    cluster, runs = _world()
    await runs.pass_once("inference", "x")
    for _ in range(2):
        cluster.refusals["create", "Deployment"] = ApiRefusal(403, "Forbidden", "quota")
        assert (await runs.pass_once("inference", "x")).requeue_after == PAUSE_S
        assert cluster.names("Deployment") == ["chat"]
        assert "403 Forbidden: quota" in _status(cluster)["message"]
        assert _status(cluster)["phase"] == "Preparing"
    assert _events(cluster).count("Refused") == 1
    await runs.pass_once("inference", "x")
    assert cluster.names("Deployment") == ["chat", "x-baseline", "x-candidate"]
    await runs.close()


async def test_a_record_that_cannot_be_stored_is_said_in_the_status_and_the_phase_stays() -> None:
    cluster, runs = _world()
    cluster.refusals["create", "ConfigMap"] = ApiRefusal(403, "Forbidden", "quota")
    await runs.pass_once("inference", "x")
    assert "403 Forbidden: quota" in _status(cluster)["message"]
    assert _status(cluster)["phase"] == "Pending"
    await runs.pass_once("inference", "x")
    assert _status(cluster)["phase"] == "Preparing"
    await runs.close()


async def test_an_arm_that_cannot_be_deleted_does_not_hold_the_customers_path() -> None:
    cluster, runs = await _copying()
    cluster.objects[names.KIND, "inference", "x"]["metadata"]["deletionTimestamp"] = times.written(time.time())
    cluster.refusals["delete", "Deployment"] = ApiRefusal(403, "Forbidden", "a webhook")
    assert not (await runs.pass_once("inference", "x")).released
    assert cluster.objects["Service", "inference", "chat-shadowed"]["spec"]["selector"] == {"app": "chat"}
    assert "x-candidate" in cluster.names("Deployment")
    assert "x-baseline" not in cluster.names("Deployment")
    assert "a webhook" in _status(cluster)["message"]
    await runs.pass_once("inference", "x")
    assert "x-candidate" not in cluster.names("Deployment")
    await runs.close()


async def test_the_evidence_is_never_written_over_a_config_map_of_somebody_else() -> None:
    cluster, runs = await _copying()
    del cluster.objects["ConfigMap", "inference", "x-evidence"]
    theirs = {"kind": "ConfigMap", "metadata": {"name": "x-evidence", "namespace": "inference"}, "data": {"a": "b"}}
    cluster.put(theirs)
    await runs.pass_once("inference", "x")
    assert cluster.objects["ConfigMap", "inference", "x-evidence"]["data"] == {"a": "b"}
    assert "is not this run's" in _status(cluster)["message"]
    await runs.close()


async def test_a_refused_run_that_is_stopped_leaves_a_user_s_config_maps_alone() -> None:
    cluster, runs = _world()
    for name in ("x-evidence", "x-report"):
        cluster.put({"kind": "ConfigMap", "metadata": {"name": name, "namespace": "inference"}, "data": {"a": "b"}})
    await runs.pass_once("inference", "x")
    cluster.objects[names.KIND, "inference", "x"]["spec"]["stop"] = {"reason": "enough"}
    await runs.pass_once("inference", "x")
    assert (_status(cluster)["phase"], _status(cluster)["endReason"]) == ("Complete", "Stopped")
    for name in ("x-evidence", "x-report"):
        assert cluster.objects["ConfigMap", "inference", name]["data"] == {"a": "b"}
    await runs.close()


async def test_a_config_map_with_our_labels_that_this_run_does_not_own_is_a_leftover(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(apply_module, "COUNTS_S", 0.0)
    cluster, runs = _world()
    labels = {names.RUN_LABEL: "x", names.COMPONENT_LABEL: names.REPORT, names.MANAGED_BY_LABEL: names.MANAGED_BY}
    old = {"name": "x-report", "namespace": "inference", "labels": labels}
    cluster.put({"kind": "ConfigMap", "metadata": old, "data": {"report.json": "{}"}})
    for _ in range(2):
        await runs.pass_once("inference", "x")
    assert "ConfigMap 'x-report'" in _status(cluster)["message"]
    assert cluster.names("Deployment") == ["chat"]
    await runs.close()


async def test_an_unreadable_body_keeps_what_was_known_of_the_run_and_still_expires() -> None:
    cluster, runs = await _copying()
    before = dict(_status(cluster))
    body = cluster.objects[names.KIND, "inference", "x"]
    body["spec"]["duration"] = "a while"
    await runs.pass_once("inference", "x")
    after = _status(cluster)
    assert after["phase"] == before["phase"]
    assert after["expiryTime"] == before["expiryTime"]
    assert after["provenance"] == before["provenance"]
    kept = {c["type"]: c for c in before["conditions"] if c["type"] != "Accepted"}
    assert {c["type"]: c for c in after["conditions"] if c["type"] != "Accepted"} == kept
    assert "x-candidate" in cluster.names("Deployment")
    after["expiryTime"] = times.written(time.time() - 10)
    await runs.pass_once("inference", "x")
    assert cluster.names("Deployment") == ["chat", "x-capture"]
    assert cluster.objects["Service", "inference", "chat-shadowed"]["spec"]["selector"] == {"app": "chat"}
    await runs.pass_once("inference", "x")
    assert cluster.names("Deployment") == ["chat"]
    assert cluster.names("Service") == ["chat", "chat-shadowed"]
    assert "x-evidence" in cluster.names("ConfigMap")
    await runs.close()


async def test_a_run_whose_passes_always_fail_is_taken_down_long_after_its_expiry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, runs = await _copying()

    async def fails(*_: object, **__: object) -> None:
        raise KeyError("bug")

    monkeypatch.setattr(runs_module, "observe", fails)
    _status(cluster)["expiryTime"] = times.written(time.time() - 60)
    await runs.sweep()
    assert "x-candidate" in cluster.names("Deployment")
    _status(cluster)["expiryTime"] = times.written(time.time() - HOPELESS_S - 60)
    await runs.sweep()
    assert cluster.objects["Service", "inference", "chat-shadowed"]["spec"]["selector"] == {"app": "chat"}
    await runs.sweep()
    assert cluster.names("Deployment") == ["chat"]
    await runs.close()


async def test_pods_that_end_are_seen_and_pods_that_have_ended_are_not() -> None:
    cluster, runs = await _copying()
    leaving, failed = (cluster.objects["Pod", "inference", name] for name in ("x-mirror-0", "x-capture-0"))
    leaving["metadata"]["deletionTimestamp"] = times.written(time.time())
    failed["status"]["phase"] = "Failed"
    read: list[str] = []

    def answers(request: Request) -> Answer:
        read.append(f"{request.host}:{request.port}")
        return 503, b""

    replicas = answering(answers)
    own = Settings(mirror_image="m:1", capture_image="c:1")
    body = cluster.objects[names.KIND, "inference", "x"]
    seen = await observe(cluster, replicas, own, body, Memory())  # type: ignore[arg-type]
    assert [(p.leaving, p.ready) for p in seen.pods if p.name == "x-mirror-0"] == [(True, False)]
    assert "x-capture-0" not in {pod.name for pod in seen.pods}
    assert seen.pods_of(names.MIRROR) == ()
    assert [at for at in read if at.endswith(f":{names.CONTROL_PORT}")], "a leaving mirror is still read"
    assert seen.read == frozenset()
    await replicas.close()
    await runs.close()


async def test_a_run_made_between_two_lists_of_the_sweeper_is_no_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, runs = await _copying()
    body = cluster.objects.pop((names.KIND, "inference", "x"))
    listed = cluster.list

    async def slow(kind: str, namespace: str = "", *, selector: str = "") -> list[Any]:
        found = await listed(kind, namespace, selector=selector)
        if kind == "Secret":
            cluster.put(body)
        return found

    monkeypatch.setattr(cluster, "list", slow)
    await runs.sweep()
    assert "x-capture" in cluster.names("Deployment")
    assert cluster.objects["Service", "inference", "chat-shadowed"]["spec"]["selector"] != {"app": "chat"}
    await runs.close()


@pytest.mark.parametrize(("message", "said"), [("args: must be strings", "args: must be strings"), ("", "422 Invalid")])
async def test_a_patch_the_api_server_refuses_becomes_a_condition_and_the_arms_go(message: str, said: str) -> None:
    cluster, runs = _world()
    await runs.pass_once("inference", "x")
    cluster.refusals["patch", "Deployment"] = ApiRefusal(422, "Invalid", message)
    await runs.pass_once("inference", "x")
    await runs.pass_once("inference", "x")
    assert _made(cluster) == ["x-candidate"], "nothing beside a candidate that was refused"
    accepted = next(c for c in _status(cluster)["conditions"] if c["type"] == "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "PatchInvalid")
    assert said in accepted["message"]
    assert cluster.names("Deployment") == ["chat"]
    await runs.close()


@pytest.mark.parametrize(
    "refusal",
    [ApiRefusal(409, "Conflict", "modified"), ApiRefusal(500, "InternalError", "etcd"), ApiUnreachable("no answer")],
)
async def test_no_other_arm_is_made_before_the_candidate_has_its_patch(refusal: Any) -> None:
    cluster, runs = _world()
    await runs.pass_once("inference", "x")
    for _ in range(2):
        cluster.refusals["patch", "Deployment"] = refusal
        await runs.pass_once("inference", "x")
        assert _made(cluster) == ["x-candidate"]
    await runs.pass_once("inference", "x")
    assert _made(cluster) == ["x-candidate", "x-baseline"]
    await runs.close()


def _made(cluster: FakeCluster) -> list[str]:
    return [name for verb, kind, name in cluster.calls if (verb, kind) == ("create", "Deployment")]


async def test_a_body_the_models_cannot_read_is_said_in_its_status_once() -> None:
    cluster, runs = _world()
    cluster.objects[names.KIND, "inference", "x"]["spec"]["duration"] = "a while"
    await runs.pass_once("inference", "x")
    accepted = _status(cluster)["conditions"][0]
    assert (accepted["reason"], accepted["status"]) == ("InvalidSpec", "False")
    assert "spec.duration" in accepted["message"]
    cluster.calls.clear()
    await runs.pass_once("inference", "x")
    assert cluster.calls == []
    await runs.close()


async def test_a_run_that_is_gone_is_released() -> None:
    cluster, runs = _world()
    del cluster.objects[names.KIND, "inference", "x"]
    assert (await runs.pass_once("inference", "x")).released
    await runs.close()


async def test_a_deleted_run_is_released_when_everything_of_it_is_gone() -> None:
    cluster, runs = _world()
    for _ in range(6):
        await runs.pass_once("inference", "x")
        _ready(cluster)
    cluster.objects[names.KIND, "inference", "x"]["metadata"]["deletionTimestamp"] = times.written(time.time())
    assert not (await runs.pass_once("inference", "x")).released
    assert cluster.objects["Service", "inference", "chat-shadowed"]["spec"]["selector"] == {"app": "chat"}
    assert "x-capture" in cluster.names("Deployment")
    annotations = cluster.objects["Service", "inference", "chat-shadowed"]["metadata"]["annotations"]
    annotations[names.GIVEN_BACK_ANNOTATION] = str(time.time() - 3600)
    await runs.pass_once("inference", "x")
    assert (await runs.pass_once("inference", "x")).released
    assert cluster.names("Deployment") == ["chat"]
    assert cluster.names("Service") == ["chat", "chat-shadowed"]
    await runs.close()


async def test_the_sweeper_takes_over_a_run_past_its_expiry_whose_loop_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, runs = _world()
    for _ in range(6):
        await runs.pass_once("inference", "x")
        _ready(cluster)
    _status(cluster)["expiryTime"] = times.written(time.time() - 10)
    await runs.sweep()
    assert _status(cluster)["phase"] == "WarmingUp"
    monkeypatch.setattr(runs_module, "LATE_S", -1.0)
    record = cluster.objects["ConfigMap", "inference", "x-evidence"]["data"]
    record["record.json"] = record["record.json"].replace('"expiry":', '"expiry":1.0,"was":')
    await runs.sweep()
    assert _status(cluster)["phase"] == "Finishing"
    assert _status(cluster)["endReason"] == "Expired"
    await runs.close()


async def test_the_sweeper_gives_back_the_path_of_a_run_that_is_gone_and_then_removes_envoy() -> None:
    cluster, runs = _world()
    for _ in range(6):
        await runs.pass_once("inference", "x")
        _ready(cluster)
    del cluster.objects[names.KIND, "inference", "x"]
    await runs.sweep()
    assert cluster.objects["Service", "inference", "chat-shadowed"]["spec"]["selector"] == {"app": "chat"}
    assert "x-capture" in cluster.names("Deployment")
    await runs.sweep()
    assert "x-capture" not in cluster.names("Deployment")
    assert "chat-shadowed" in cluster.names("Service")
    await runs.close()


async def test_the_sweeper_leaves_what_lies_in_an_excluded_namespace_to_its_own_operator() -> None:
    cluster, ours = _world()
    for _ in range(6):
        await ours.pass_once("inference", "x")
        _ready(cluster)
    del cluster.objects[names.KIND, "inference", "x"]
    _, elsewhere = _world(cluster=cluster, namespaces=Namespaces(excluded=("inference",)))
    await elsewhere.sweep()
    assert cluster.objects["Service", "inference", "chat-shadowed"]["spec"]["selector"] != {"app": "chat"}
    await ours.sweep()
    assert cluster.objects["Service", "inference", "chat-shadowed"]["spec"]["selector"] == {"app": "chat"}
    await ours.close()
    await elsewhere.close()


async def test_a_run_without_passes_makes_the_process_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    _, runs = _world()
    runs.driving("inference", "x", driven=True)
    assert runs.stale() == ""
    monkeypatch.setattr(runs_module, "STALE_S", -1.0)
    assert "no sweep" in runs.stale()
    await runs.sweep()
    monkeypatch.setattr(runs_module, "STALE_S", 0.05)
    await asyncio.sleep(0.06)
    await runs.sweep()
    assert "no pass over inference/x" in runs.stale()
    runs.driving("inference", "x", driven=False)
    assert runs.stale() == ""
    await runs.close()


async def test_passes_of_one_run_never_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    _, runs = _world()
    inside = most = 0

    async def slow(*args: Any) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.01)
        try:
            return await observe(*args)
        finally:
            inside -= 1

    monkeypatch.setattr(runs_module, "observe", slow)
    await asyncio.gather(*(runs.pass_once("inference", "x") for _ in range(4)))
    assert most == 1
    await runs.close()


async def test_two_runs_on_one_primary_are_not_both_accepted() -> None:
    cluster, runs = _world()
    later = _body()
    later["metadata"] |= {"name": "y", "uid": "later", "creationTimestamp": times.written(time.time() + 5)}
    later["spec"]["capture"]["proxy"]["serviceName"] = "other"
    cluster.put(later)
    await runs.pass_once("inference", "y")
    await runs.pass_once("inference", "x")
    await runs.pass_once("inference", "y")
    assert _status(cluster)["phase"] == "Preparing"
    other = cluster.objects[names.KIND, "inference", "y"]["status"]["conditions"][0]
    assert (other["status"], other["reason"]) == ("False", "CaptureInUse")
    await runs.close()


async def test_a_run_yields_to_an_older_one_that_was_accepted_as_soon_as_it_was_itself() -> None:
    """The list that it goes by is begun after its own acceptance can be seen by others, and is no older one."""
    cluster, runs = _world()
    refused = {"type": "Accepted", "status": "False", "reason": "PatchInvalid", "message": "no"}
    older = _body(phase="Pending", conditions=[refused | {"lastTransitionTime": times.written(time.time())}])
    older["metadata"] |= {"name": "y", "uid": "older", "creationTimestamp": times.written(time.time() - 60)}
    cluster.put(older)
    said = cluster.apply_status

    async def then_the_older_one_is_accepted(manifest: dict[str, Any]) -> dict[str, Any]:
        found = await said(manifest)
        accepted = cluster.objects[names.KIND, "inference", "y"]["status"]
        accepted["conditions"][0] |= {"status": "True", "reason": "Accepted"}
        return found

    cluster.apply_status = then_the_older_one_is_accepted  # type: ignore[method-assign]
    await runs.pass_once("inference", "x")
    assert _status(cluster)["phase"] == "Preparing"
    await runs.pass_once("inference", "x")
    own = next(c for c in _status(cluster)["conditions"] if c["type"] == "Accepted")
    assert (_status(cluster)["phase"], own["reason"]) == ("Pending", "CaptureInUse")
    assert _made(cluster) == []
    await runs.close()


async def test_an_object_of_a_user_under_a_name_the_run_needs_is_never_overwritten() -> None:
    cluster, runs = _world()
    cluster.put({"kind": "Deployment", "metadata": {"name": "x-mirror", "namespace": "inference"}, "spec": {"a": 1}})
    await runs.pass_once("inference", "x")
    accepted = next(c for c in _status(cluster)["conditions"] if c["type"] == "Accepted")
    assert accepted["reason"] == "NameInUse"
    assert cluster.objects["Deployment", "inference", "x-mirror"]["spec"] == {"a": 1}
    await runs.close()


async def test_a_record_made_unreadable_ends_the_run_instead_of_its_loop() -> None:
    cluster, runs = _world()
    for _ in range(6):
        await runs.pass_once("inference", "x")
        _ready(cluster)
    cluster.objects["ConfigMap", "inference", "x-evidence"]["data"]["record.json"] = "{"
    await runs.pass_once("inference", "x")
    assert _status(cluster)["phase"] == "Finishing"
    await runs.pass_once("inference", "x")
    assert _status(cluster)["endReason"] == "EvidenceLost"
    await runs.close()


async def test_an_unreadable_run_of_a_neighbour_stops_nobody() -> None:
    cluster, runs = _world()
    other = _body()
    other["metadata"] |= {"name": "y", "uid": "other"}
    other["spec"] = {"duration": "a while"}
    cluster.put(other)
    await runs.pass_once("inference", "x")
    assert _status(cluster)["phase"] == "Preparing"
    await runs.close()


def test_what_is_forgotten_counts_as_changed_again() -> None:
    _, runs = _world()
    assert runs.changed("n", "x", ("u", 1))
    assert not runs.changed("n", "x", ("u", 1))
    runs.forget("n", "x")
    assert runs.changed("n", "x", ("u", 1))


async def test_earlier_runs_of_the_namespace_are_counted_by_the_hash_of_their_spec() -> None:
    cluster, runs = _world()
    other = {**_body(phase="Complete", attempt=1, provenance={"specHash": "abc"})}
    other["metadata"] = {**other["metadata"], "name": "old", "uid": "u-old"}
    cluster.put(other)
    ledger = ledger_entry("inference", None, "def", 4, 100.0)
    cluster.put(ledger)
    seen = await observe(
        cluster,  # type: ignore[arg-type]
        answering(nobody),
        Settings(mirror_image="m:1", capture_image="c:1"),
        cluster.objects[names.KIND, "inference", "x"],
        Memory(),
    )
    assert seen.attempts == {"abc": 1, "def": 4}
    assert seen.ledger is not None
    await runs.close()


def _unreadable(**status: Any) -> dict[str, Any]:
    body = _body(**status)
    body["spec"]["duration"] = "a while"
    return body


def _conditions(cluster: FakeCluster) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in _status(cluster)["conditions"]}


async def test_a_run_that_was_never_readable_ends_at_its_start_deadline() -> None:
    cluster, runs = _world()
    cluster.put(_unreadable())
    outcome = await runs.pass_once("inference", "x")
    assert "phase" not in _status(cluster)
    assert _conditions(cluster) == {"Accepted": ("False", "InvalidSpec")}
    assert 0 < outcome.requeue_after <= 60
    body = cluster.objects[names.KIND, "inference", "x"]
    body["metadata"]["creationTimestamp"] = times.written(time.time() - 3600)
    await runs.pass_once("inference", "x")
    status = _status(cluster)
    assert (status["phase"], status["verdict"]) == ("Complete", "Inconclusive")
    assert status["endReason"] == "StartDeadlineExceeded"
    assert "duration" in status["message"]
    assert _conditions(cluster)["Complete"] == ("True", "StartDeadlineExceeded")
    assert _conditions(cluster)["Succeeded"][0] == "False"
    cluster.calls.clear()
    await runs.pass_once("inference", "x")
    assert cluster.calls == [], "never back from Complete"
    await runs.close()


async def test_a_start_deadline_that_cannot_be_read_is_the_usual_one() -> None:
    cluster, runs = _world()
    body = _unreadable()
    body["spec"]["startDeadline"] = "soon"
    body["metadata"]["creationTimestamp"] = times.written(time.time() - 31 * 60)
    cluster.put(body)
    await runs.pass_once("inference", "x")
    assert _status(cluster)["endReason"] == "StartDeadlineExceeded"
    await runs.close()


async def test_an_unreadable_run_is_told_once_and_runs_when_it_is_put_right() -> None:
    cluster, runs = _world()
    cluster.put(_unreadable())
    await runs.pass_once("inference", "x")
    cluster.calls.clear()
    await runs.pass_once("inference", "x")
    assert cluster.calls == []
    cluster.objects[names.KIND, "inference", "x"]["spec"]["duration"] = "2m"
    await runs.pass_once("inference", "x")
    assert _status(cluster)["phase"] == "Preparing"
    assert _conditions(cluster)["Accepted"] == ("True", "Accepted")
    await runs.close()


@pytest.mark.parametrize(
    ("change", "reason"), [({"stop": {"reason": "enough"}}, "Stopped"), ({}, "Expired")], ids=["stopped", "expired"]
)
async def test_a_run_that_became_unreadable_is_complete_once_everything_of_it_is_gone(
    change: dict[str, Any], reason: str
) -> None:
    cluster, runs = await _copying()
    cluster.objects[names.KIND, "inference", "x"]["spec"] |= {"duration": "a while", **change}
    if not change:
        _status(cluster)["expiryTime"] = times.written(time.time() - 10)
    await runs.pass_once("inference", "x")
    assert _status(cluster)["phase"] == "WarmingUp", "its Envoy still stands"
    await runs.pass_once("inference", "x")
    await runs.pass_once("inference", "x")
    assert (_status(cluster)["phase"], _status(cluster)["endReason"]) == ("Complete", reason)
    assert cluster.names("Deployment") == ["chat"]
    await runs.close()


@pytest.mark.parametrize(
    ("status", "ttl", "stays"),
    [
        ({"phase": "Complete", "completionTime": times.written(time.time() - 100)}, "99s", False),
        ({"phase": "Complete", "completionTime": times.written(time.time() - 100)}, "1h", True),
        ({"phase": "Complete", "completionTime": times.written(time.time() - 100)}, None, True),
        ({"phase": "Complete", "completionTime": times.written(time.time() - 100)}, "a while", True),
        ({"phase": "Running"}, "1s", True),
        (
            {
                "phase": "Complete",
                "completionTime": times.written(time.time() - 100),
                "armsKeptUntil": times.written(time.time() + 100),
            },
            "1s",
            True,
        ),
    ],
)
async def test_a_finished_run_is_deleted_when_its_time_is_over_and_no_sooner_than_its_arms(
    status: dict[str, Any], ttl: str | None, stays: bool
) -> None:
    cluster, runs = _world()
    body = _body(**status)
    body["spec"]["ttlAfterFinished"] = ttl
    cluster.put(body)
    await runs.sweep()
    assert ((names.KIND, "inference", "x") in cluster.objects) is stays
    await runs.close()


async def test_arms_whose_loop_died_are_removed_by_the_sweeper_when_their_time_is_over() -> None:
    cluster, runs = await _copying()
    labels = cluster.objects["Deployment", "inference", "x-candidate"]["metadata"]["labels"]
    _status(cluster).update(
        phase="Complete",
        verdict="Fail",
        completionTime=times.written(time.time() - 100),
        armsKeptUntil=times.written(time.time() - 90),
    )
    assert labels
    for _ in range(4):
        runs._lines.clear()
        await runs.sweep()
        for key in [k for k in cluster.objects if k[0] == "Pod"]:
            del cluster.objects[key]
    assert not {"x-candidate", "x-baseline"} & set(cluster.names("Deployment"))
    assert "x-arms" not in cluster.names("NetworkPolicy")
    assert "armsKeptUntil" not in _status(cluster)
    await runs.close()


def _left_behind(cluster: FakeCluster) -> dict[str, Any]:
    """The Service of a run that has ended, while the primary has been switched to other pods."""
    service = cluster.objects["Service", "inference", "chat-shadowed"]
    back = given_back(service, time.time())
    assert back is not None
    service["spec"], service["metadata"]["annotations"] = back["spec"], back["metadata"]["annotations"]
    cluster.objects["Service", "inference", "chat"]["spec"]["selector"] = {"app": "chat", "color": "green"}
    spec: dict[str, Any] = service["spec"]
    return spec


async def test_a_service_left_behind_follows_the_primary_s_service_whether_or_not_its_run_still_exists() -> None:
    cluster, runs = await _copying()
    _left_behind(cluster)
    runs.driving("inference", "x", driven=True)
    await runs.follow()
    service = cluster.objects["Service", "inference", "chat-shadowed"]
    assert service["spec"]["selector"] == {"app": "chat"}, "an active run keeps its Service up to date by itself"
    _status(cluster)["phase"] = "Complete"
    await runs.sweep()
    await runs.follow()
    service = cluster.objects["Service", "inference", "chat-shadowed"]
    assert service["spec"]["selector"] == {"app": "chat", "color": "green"}
    cluster.calls.clear()
    await runs.follow()
    assert cluster.calls == []
    del cluster.objects[names.KIND, "inference", "x"]
    runs.forget("inference", "x")
    cluster.objects["Service", "inference", "chat"]["spec"]["selector"] = {"app": "other"}
    await runs.follow()
    assert cluster.objects["Service", "inference", "chat-shadowed"]["spec"]["selector"] == {"app": "other"}
    await runs.close()


async def test_a_service_that_cannot_be_changed_keeps_no_other_one_waiting() -> None:
    cluster, runs = await _copying()
    _left_behind(cluster)
    cluster.refusals["apply", "Service"] = ApiRefusal(409, "Conflict", "the object has been modified")
    await runs.follow()
    await runs.follow()
    selector = cluster.objects["Service", "inference", "chat-shadowed"]["spec"]["selector"]
    assert selector == {"app": "chat", "color": "green"}
    await runs.close()


async def test_a_run_that_is_planned_for_later_keeps_no_other_one_from_the_primary() -> None:
    cluster, runs = _world()
    earlier = _body()
    earlier["metadata"] |= {"name": "a", "uid": "earlier", "creationTimestamp": times.written(time.time() - 60)}
    earlier["spec"]["schedule"] = {"startTime": times.written(time.time() + 3600)}
    cluster.put(earlier)
    await runs.pass_once("inference", "x")
    assert _status(cluster)["phase"] == "Preparing"
    await runs.pass_once("inference", "a")
    assert "captures Service" in cluster.objects[names.KIND, "inference", "a"]["status"]["message"]
    await runs.close()
