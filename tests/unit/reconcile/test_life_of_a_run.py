"""A run goes through its phases by itself, and every object is where it should be in each of them."""

import base64
import copy
import dataclasses

import msgspec
import pytest
from shadowrun_mirror.config import decode_config
from shadowrun_operator.manifests import names
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.plan import Apply, Create, Delete, PatchCandidate
from shadowrun_operator.reconcile.push import push_of
from shadowrun_operator.reconcile.reconcile import reconcile

from tests.unit.reconcile.world import START, World

pytestmark = pytest.mark.operator


def test_a_run_goes_from_nothing_to_a_verdict_and_leaves_only_its_service_evidence_and_report() -> None:
    world = World.with_spec()
    seen: list[str] = []
    for _ in range(120):
        world.turn()
        if not seen or seen[-1] != world.phase:
            seen.append(world.phase)
        if world.phase == "Complete":
            break
    status = world.body["status"]
    assert seen == ["Preparing", "WarmingUp", "Running", "Finishing", "Complete"]
    assert (status["verdict"], status["endReason"]) == ("Pass", "DurationReached")
    assert sorted(world.objects) == [
        ("ConfigMap", "x-evidence"),
        ("ConfigMap", "x-report"),
        ("Service", "chat-shadowed"),
    ]
    assert world.objects["Service", "chat-shadowed"]["spec"]["selector"] == {"app": "chat"}
    conditions = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
    assert conditions["Complete"] == ("True", "DurationReached")
    assert conditions["Succeeded"] == ("True", "AllCriteriaPassed")


def test_nothing_is_created_before_the_run_is_accepted() -> None:
    world = World.with_spec()
    plan = reconcile(world.observe())
    assert plan.steps == ()
    assert plan.record is not None
    assert plan.status.phase == "Preparing"


def test_nothing_is_created_for_a_run_that_could_go_without_being_taken_down() -> None:
    world = World.with_spec()
    world.body["metadata"]["finalizers"] = ["somebody.else/s"]
    for _ in range(3):
        assert world.turn().steps == ()
    assert world.phase == "Preparing"
    assert "finalizer" in world.body["status"]["message"]
    world.body["metadata"]["finalizers"] = ["somebody.else/s", names.FINALIZER]
    assert world.turn().steps
    world.until("Running")


def test_a_run_without_its_finalizer_ends_and_yields_all_the_same() -> None:
    world = World.with_spec()
    world.body["metadata"]["finalizers"] = []
    world.until("Preparing")
    world.body["spec"]["stop"] = {"reason": "enough"}
    world.until("Complete")
    assert {kind for kind, _ in world.objects} == {"ConfigMap"}


def test_the_expiry_is_written_once_at_acceptance() -> None:
    world = World.with_spec()
    world.turn()
    expected = START + 300 + 120 + 10 + 60
    assert world.body["status"]["expiryTime"] == times.written(expected)
    world.until("Running")
    assert world.body["status"]["expiryTime"] == times.written(expected)
    assert world.mirror is not None
    assert world.mirror.expiry == expected


def test_the_candidate_is_made_without_a_pod_and_patched_before_anything_else_of_the_arms_and_the_path() -> None:
    world = World.with_spec(arms={"control": "Enabled"})
    world.turn()
    policy, candidate, patch, *others = reconcile(world.observe()).steps
    assert isinstance(policy, Apply)
    assert policy.manifest["kind"] == "NetworkPolicy"
    assert isinstance(candidate, Create)
    assert (candidate.manifest["metadata"]["name"], candidate.manifest["spec"]["replicas"]) == ("x-candidate", 0)
    assert isinstance(patch, PatchCandidate)
    assert [s.manifest["metadata"]["name"] for s in others if isinstance(s, Create)] == ["x-baseline", "x-control"]
    assert len(others) == 2
    world.turn()
    second = reconcile(world.observe())
    made = {(s.manifest["kind"], s.manifest["metadata"]["name"]) for s in second.steps if isinstance(s, Apply | Create)}
    assert {("Service", "chat-shadowed"), ("Deployment", "x-capture"), ("Deployment", "x-mirror")} <= made
    assert {("Service", "x-baseline"), ("Service", "x-control"), ("Service", "x-candidate")} <= made
    assert not {("Deployment", "x-baseline"), ("Deployment", "x-control")} & made, "they stand"


def test_the_capture_service_selects_the_primary_until_all_is_ready_and_again_at_the_end() -> None:
    world = World.with_spec()
    capture = {names.RUN_LABEL: "x", names.COMPONENT_LABEL: names.CAPTURE}
    sides: list[str] = []
    for _ in range(120):
        world.turn()
        service = world.capture_service()
        if service is not None:
            side = "capture" if service["spec"]["selector"] == capture else "primary"
            sides += [side] if not sides or sides[-1] != side else []
        if world.phase == "Complete":
            break
    assert sides == ["primary", "capture", "primary"]


def test_live_path_objects_have_no_owner_and_everything_else_has() -> None:
    world = World.with_spec()
    world.until("WarmingUp")
    for (kind, name), item in world.objects.items():
        if (kind, name) == ("ConfigMap", "x-evidence"):
            continue  # stored by the evidence store, not by a step
        path = item["metadata"]["labels"][names.COMPONENT_LABEL] == names.CAPTURE
        assert ("ownerReferences" in item["metadata"]) is not path, (kind, name)


def test_thresholds_are_frozen_when_the_warm_up_ends_and_the_window_changes_with_them() -> None:
    world = World.with_spec()
    world.until("WarmingUp")
    assert world.mirror is not None
    assert world.mirror.window == 0
    assert [i.baseline_limit_s for i in world.mirror.indicators] == [None, None]
    world.until("Running")
    world.turn()
    assert world.mirror.window == 1
    limit = world.mirror.indicators[0]
    assert limit.baseline_limit_s is not None
    assert limit.challenger_limit_s == pytest.approx(limit.baseline_limit_s * 1.1)
    frozen = world.mirror.indicators
    world.turn(seconds=30)
    assert world.mirror.indicators == frozen


def test_the_warm_up_lasts_until_every_criterion_has_its_pairs() -> None:
    world = World.with_spec(arms={"warmup": {"duration": "1s", "requests": 400}})
    world.until("WarmingUp")
    for _ in range(20):
        world.turn()
    assert world.phase == "WarmingUp"
    assert "of 400 pairs" in world.body["status"]["message"]
    world.until("Running")


def test_a_changed_rate_is_given_to_the_mirrors_under_a_higher_version() -> None:
    world = World.with_spec()
    world.until("Running")
    assert world.mirror is not None
    before = world.mirror
    world.body["spec"]["sampling"]["rate"] = "10%"
    world.turn()
    assert world.mirror.version == before.version + 1
    assert world.mirror.capture.sampling.threshold == 900_000
    assert world.mirror.capture.sampling.seed == before.capture.sampling.seed
    assert world.phase == "Running"


def test_suspending_stops_copying_and_resuming_starts_it_again() -> None:
    world = World.with_spec()
    world.until("Running")
    world.body["spec"]["suspend"] = True
    world.turn()
    assert world.mirror is not None
    assert not world.mirror.copying
    world.turn()
    assert "paused" in world.body["status"]["message"]
    world.body["spec"]["suspend"] = False
    world.turn()
    assert world.mirror.copying


def test_the_token_and_the_seed_are_drawn_once() -> None:
    world = World.with_spec()
    world.until("WarmingUp")
    token = world.objects["Secret", "x-mirror"]["data"]["token"]
    assert world.objects["Secret", "x-capture"]["data"]["token"] == token
    world.until("Running")
    assert world.objects["Secret", "x-mirror"]["data"]["token"] == token


def test_capture_without_a_ready_pod_gives_the_path_back_at_once_and_keeps_the_run() -> None:
    world = World.with_spec()
    world.until("Running")
    world.starting = False
    world.pass_time(1)
    world.turn()
    service = world.capture_service()
    assert service is not None
    assert service["spec"]["selector"] == {"app": "chat"}
    assert world.mirror is not None
    assert not world.mirror.copying
    world.starting = True
    world.turn()
    world.turn()
    service = world.capture_service()
    assert service is not None
    assert service["spec"]["selector"][names.COMPONENT_LABEL] == names.CAPTURE


def test_the_arms_start_from_the_template_as_it_was_at_acceptance() -> None:
    world = World.with_spec()
    world.turn()
    world.users["Deployment", "chat"]["spec"]["template"]["spec"]["containers"][0]["image"] = (
        "registry.example/engine:2"
    )
    world.until("WarmingUp")
    for arm in ("x-baseline", "x-candidate"):
        container = world.objects["Deployment", arm]["spec"]["template"]["spec"]["containers"][0]
        assert container["image"] == "registry.example/engine:1"


def test_envoy_is_asked_to_go_only_when_nobody_is_sent_to_it_any_more() -> None:
    world = World.with_spec()
    world.until("Finishing")
    while world.given_back_since is None:
        world.turn()
    asked = world.given_back_since
    while ("Deployment", "x-capture") in world.objects:
        world.turn()
    assert 10 <= world.now - asked <= 20
    assert ("Deployment", "x-candidate") not in world.objects
    world.until("Complete", turns=5)


def test_a_deleted_run_gives_the_path_back_before_it_removes_envoy() -> None:
    world = World.with_spec()
    world.until("Running")
    world.body["metadata"]["deletionTimestamp"] = times.written(world.now)
    order: list[str] = []
    for _ in range(30):
        plan = world.turn()
        for step in plan.steps:
            match step:
                case Apply(manifest) if manifest["kind"] == "Service":
                    order.append("given back")
                case Delete("Deployment", name):
                    order.append(name)
        if plan.released:
            break
    else:
        raise AssertionError("never released")
    assert order == ["x-candidate", "x-baseline", "given back", "x-capture", "x-mirror"]
    assert not plan.steps
    assert {kind for kind, _ in world.objects} == {"ConfigMap", "Service"}


def test_the_boot_configuration_of_the_mirror_is_the_pushed_one() -> None:
    world = World.with_spec()
    world.until("Running")
    world.turn()
    stored = decode_config(base64.b64decode(world.objects["Secret", "x-mirror"]["data"]["config.json"]))
    assert stored == world.mirror


def test_the_next_look_is_no_later_than_the_next_deadline() -> None:
    world = World.with_spec(startDeadline="2s")
    world.users.clear()
    assert reconcile(world.observe()).requeue_after == pytest.approx(2.0)


def test_a_changed_timeout_starts_no_pod_anew() -> None:
    world = World.with_spec()
    world.until("Running")
    world.turn()
    world.body["spec"]["admission"]["timeout"] = "20s"
    plan = world.turn()
    assert plan.push is not None
    assert plan.push.config.admission.timeout_s == 20
    assert not [s for s in plan.steps if isinstance(s, Apply) and s.manifest["kind"] == "Deployment"]


def test_pods_left_by_an_earlier_run_of_the_name_are_replaced_since_their_token_is_another() -> None:
    world = World.with_spec()
    world.until("WarmingUp")
    (left,) = (item for key, item in world.objects.items() if key == ("Deployment", "x-capture"))
    again = World.with_spec()
    again.body["metadata"]["uid"] = "another"
    again.objects["Deployment", "x-capture"] = copy.deepcopy(left)
    again.starting = False
    for _ in range(4):
        again.turn()
    now = again.objects["Deployment", "x-capture"]["spec"]["template"]["metadata"]["annotations"]
    assert now != left["spec"]["template"]["metadata"]["annotations"]
    mirror = again.objects["Deployment", "x-mirror"]["spec"]["template"]["metadata"]["annotations"]
    assert mirror == now


@pytest.mark.parametrize("component", ["mirror", "capture"])
def test_a_pod_on_its_way_out_is_read_but_counts_for_nothing_else(component: str) -> None:
    world = World.with_spec()
    world.until("Running")
    world.turn()
    world.pods |= {
        name: dataclasses.replace(pod, leaving=True, ready=False)
        for name, pod in world.pods.items()
        if pod.component == component
    }
    seen = world.observe()
    assert seen.pods_of(component) == ()
    assert seen.dead_mirrors() == frozenset()
    assert {pod.uid for pod in seen.pods if pod.component == component} <= seen.read
    assert world.mirror is not None
    newer = msgspec.structs.replace(world.mirror, version=99)
    assert (push_of(seen, newer) is None) == (component == "mirror"), "a leaving mirror is told nothing new"


def test_the_arms_network_policy_outlives_their_last_pod() -> None:
    world = World.with_spec()
    world.until("Running")
    world.body["spec"]["stop"] = {"reason": "enough"}
    lingering = dataclasses.replace(world.pods["candidate-0"], leaving=True)
    while ("Deployment", "x-candidate") in world.objects:
        world.turn()
    for _ in range(40):
        world.pods["candidate-0"] = lingering
        world.carry_out(world.observe(), reconcile(world.observe()))
        world.pass_time(3)
    assert world.phase == "Finishing"
    assert {kind for kind, _ in world.objects} == {"NetworkPolicy", "ConfigMap", "Service"}
    world.until("Complete", turns=4)
    assert ("NetworkPolicy", "x-arms") not in world.objects


def test_a_pod_of_an_arm_on_a_node_that_is_gone_does_not_hold_the_end_for_ever() -> None:
    world = World.with_spec()
    world.until("Running")
    world.body["spec"]["stop"] = {"reason": "enough"}
    lost = dataclasses.replace(world.pods["candidate-0"], leaving=True)
    for _ in range(30):
        world.pods["candidate-0"] = lost
        world.turn()
        world.pass_time(30)
    assert world.phase == "Complete"
    assert ("NetworkPolicy", "x-arms") not in world.objects


def test_a_suspended_run_says_so_in_a_condition() -> None:
    world = World.with_spec(suspend=True)
    world.until("WarmingUp")
    complete = next(c for c in world.body["status"]["conditions"] if c["type"] == "Complete")
    assert (complete["status"], complete["reason"]) == ("False", "Suspended")
    world.body["spec"]["suspend"] = False
    world.until("Running")
    assert next(c for c in world.body["status"]["conditions"] if c["type"] == "Complete")["reason"] == "Active"


def test_a_new_generation_of_a_complete_run_is_seen_and_changes_nothing_else() -> None:
    world = World.with_spec()
    world.until("Complete")
    before = world.run.status
    world.body["metadata"]["generation"] = 2
    plan = reconcile(world.observe())
    assert plan.status == before.model_copy(update={"observed_generation": 2})
    assert (plan.steps, plan.push, plan.events) == ((), None, ())


def test_a_deletion_tells_the_mirrors_until_they_know() -> None:
    world = World.with_spec()
    world.until("Running")
    world.body["metadata"]["deletionTimestamp"] = times.written(world.now)
    for _ in range(3):
        seen = world.observe()
        plan = reconcile(seen)
        assert plan.push is not None
        assert not plan.push.config.copying
        world.carry_out(seen, dataclasses.replace(plan, push=None))
    world.turn()
    assert world.mirror is not None
    assert not world.mirror.copying
    world.pass_time(1)
    assert reconcile(world.observe()).push is None


def test_a_service_that_lost_its_note_is_given_back_by_the_primary_s_own_selector() -> None:
    world = World.with_spec()
    world.until("Running")
    world.body["metadata"]["deletionTimestamp"] = times.written(world.now)
    del world.objects["Service", "chat-shadowed"]["metadata"]["annotations"]
    world.turn()
    assert world.objects["Service", "chat-shadowed"]["spec"]["selector"] == {"app": "chat"}


def test_a_service_that_cannot_be_given_back_keeps_its_envoy_and_the_run_ends_and_says_so() -> None:
    world = World.with_spec()
    world.until("Running")
    world.body["spec"]["stop"] = {"reason": "enough"}
    del world.objects["Service", "chat-shadowed"]["metadata"]["annotations"]
    world.users["Service", "chat"]["spec"]["selector"] = None
    world.until("Complete")
    assert ("Deployment", "x-capture") in world.objects
    assert not {("Deployment", "x-mirror"), ("Deployment", "x-candidate")} & world.objects.keys()
    healthy = next(c for c in world.body["status"]["conditions"] if c["type"] == "LivePathHealthy")
    assert healthy["status"] == "Unknown"
    assert "left in the path" in healthy["message"]
