"""A run goes through its phases by itself, and every object is where it should be in each of them."""

import base64

import pytest
from shadowrun_mirror.config import decode_config
from shadowrun_operator.manifests import names
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.plan import Apply, Delete, PatchCandidate
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


def test_the_expiry_is_written_once_at_acceptance() -> None:
    world = World.with_spec()
    world.turn()
    expected = START + 300 + 120 + 10 + 60
    assert world.body["status"]["expiryTime"] == times.written(expected)
    world.until("Running")
    assert world.body["status"]["expiryTime"] == times.written(expected)
    assert world.mirror is not None
    assert world.mirror.expiry == expected


def test_capture_is_made_only_when_the_candidate_carries_its_patch() -> None:
    world = World.with_spec()
    world.turn()
    first = reconcile(world.observe())
    kinds = [type(step) for step in first.steps]
    assert kinds[-1] is PatchCandidate
    assert not any(isinstance(s, Apply) and s.manifest["metadata"]["name"] == "x-capture" for s in first.steps)
    world.turn()
    second = reconcile(world.observe())
    made = {(s.manifest["kind"], s.manifest["metadata"]["name"]) for s in second.steps if isinstance(s, Apply)}
    assert {("Service", "chat-shadowed"), ("Deployment", "x-capture"), ("Deployment", "x-mirror")} <= made


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


def test_an_arm_that_disappears_is_made_again_from_the_frozen_template() -> None:
    world = World.with_spec()
    world.until("Running")
    world.users["Deployment", "chat"]["spec"]["template"]["spec"]["containers"][0]["image"] = (
        "registry.example/engine:2"
    )
    del world.objects["Deployment", "x-baseline"]
    world.turn()
    world.turn()
    container = world.objects["Deployment", "x-baseline"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.example/engine:1"


def test_envoy_stays_while_it_has_a_customer_and_is_asked_to_go_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World.with_spec()
    world.until("Running")
    quiet = World._capture_evidence

    def busy(self: World, pod: object) -> object:
        evidence = quiet(self, pod)  # type: ignore[arg-type]
        evidence.active_requests = 1
        return evidence

    monkeypatch.setattr(World, "_capture_evidence", busy)
    world.until("Finishing")
    while world.given_back_since is None:
        world.turn()
    asked = world.given_back_since
    while ("Deployment", "x-capture") in world.objects:
        world.turn()
    assert 30 <= world.now - asked <= 40
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
