"""Copies from a proxy of the user's own: nothing of ours in the customers' path, one Service that stays."""

from typing import Any

import pytest
from shadowrun_operator.manifests import names
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.orphans import abandoned_steps
from shadowrun_operator.reconcile.plan import Apply, Create, Delete
from shadowrun_operator.reconcile.reconcile import reconcile

from tests.unit.reconcile.world import World

pytestmark = pytest.mark.operator

EXTERNAL = {"mode": "External", "proxy": None, "external": {"serviceName": "chat-copies"}}


def external(**changes: Any) -> World:
    """A run that waits for copies at the Service chat-copies."""
    return World.with_spec(capture=EXTERNAL, **changes)


def conditions(world: World) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition."""
    return {c["type"]: (c["status"], c["reason"]) for c in world.body["status"]["conditions"]}


def test_a_run_goes_from_nothing_to_an_end_and_leaves_only_its_service_evidence_and_report() -> None:
    world = external()
    seen: list[str] = []
    kinds: set[tuple[str, str]] = set()
    for _ in range(120):
        world.turn()
        kinds |= world.objects.keys()
        seen += [world.phase] if not seen or seen[-1] != world.phase else []
        if world.phase == "Complete":
            break
    assert seen == ["Preparing", "WarmingUp", "Running", "Finishing", "Complete"]
    assert world.body["status"]["endReason"] == "DurationReached"
    assert not [name for kind, name in kinds if name == "x-capture"], "nothing of ours is in the customers' path"
    left = [("ConfigMap", "x-evidence"), ("ConfigMap", "x-report"), ("Service", "chat-copies")]
    assert sorted(world.objects) == left


def test_what_the_mirrors_received_is_what_was_seen_and_the_verdict_rests_on_it() -> None:
    world = external()
    world.until("Complete")
    counted = [c for e in world.evidence.values() for n, w in e.windows.items() if n for c in w.classes.values()]
    requests = world.body["status"]["funnel"]["requests"]
    assert requests["seen"] == requests["selected"] == sum(c.received.requests for c in counted) > 0
    assert world.body["status"]["verdict"] == "Pass"
    assert world.body["status"]["provenance"]["capture"] == "External"


def test_the_service_leads_to_the_mirror_for_all_its_life_and_is_never_flipped() -> None:
    world = external()
    selectors = set()
    for _ in range(120):
        world.turn()
        service = world.objects.get(("Service", "chat-copies"))
        if service is not None:
            selectors.add(tuple(sorted(service["spec"]["selector"].items())))
        if world.phase == "Complete":
            break
    assert selectors == {((names.COMPONENT_LABEL, "mirror"), (names.RUN_LABEL, "x"))}


def test_a_service_that_somebody_led_elsewhere_is_led_back() -> None:
    world = external()
    world.until("Running")
    world.objects["Service", "chat-copies"]["spec"]["selector"] = {"app": "chat"}
    (step,) = (s for s in reconcile(world.observe()).steps if isinstance(s, Apply))
    assert step.manifest["spec"]["selector"][names.COMPONENT_LABEL] == "mirror"


def test_the_conditions_speak_of_that_service_and_of_no_customer() -> None:
    world = external()
    world.starting = False
    world.turn()
    world.turn()
    assert conditions(world)["CaptureReady"] == ("False", "Waiting")
    assert conditions(world)["LivePathHealthy"] == ("Unknown", "External")
    world.starting = True
    world.until("Running")
    assert conditions(world)["CaptureReady"] == ("True", "Ready")
    world.until("Complete")
    assert conditions(world)["CaptureReady"] == ("False", "Removed")
    assert conditions(world)["LivePathHealthy"] == ("Unknown", "External")


def test_without_copies_the_message_asks_for_the_proxy() -> None:
    world = external()
    world.rate = 0
    world.until("WarmingUp")
    world.turn()
    assert "does your proxy send them to Service 'chat-copies'" in world.body["status"]["message"]


def test_copying_needs_no_capture_and_stops_when_it_is_suspended() -> None:
    world = external()
    world.until("Running")
    assert world.mirror is not None
    assert (world.mirror.source, world.mirror.copying) == ("External", True)
    world.body["spec"]["suspend"] = True
    world.turn()
    assert not world.mirror.copying


def test_a_deleted_run_takes_everything_but_its_service_and_asks_for_no_drain() -> None:
    world = external()
    world.until("Running")
    began = world.now
    world.body["metadata"]["deletionTimestamp"] = times.written(world.now)
    removed: list[str] = []
    for _ in range(10):
        plan = world.turn()
        removed += [step.name for step in plan.steps if isinstance(step, Delete) and step.kind == "Deployment"]
        if plan.released:
            break
    else:
        raise AssertionError("never released")
    assert removed == ["x-candidate", "x-baseline", "x-mirror"]
    assert {kind for kind, _ in world.objects} == {"ConfigMap", "Service"}
    assert world.now - began < 30


def test_an_abandoned_run_keeps_its_service() -> None:
    world = external()
    world.until("WarmingUp")
    found = [item for key, item in world.objects.items() if key != ("ConfigMap", "x-evidence")]
    for step in abandoned_steps(found, world.now):
        world.step(step)
    assert set(world.objects) == {("Service", "chat-copies"), ("ConfigMap", "x-evidence")}


def test_the_next_run_takes_the_service_over() -> None:
    first = external()
    first.until("Complete")
    second = external()
    second.body["metadata"] |= {"name": "y", "uid": "another"}
    second.objects["Service", "chat-copies"] = first.objects["Service", "chat-copies"]
    seen = second.observe()
    plan = reconcile(seen)
    assert plan.status.phase == "Preparing"


@pytest.mark.parametrize("steps", range(7))
def test_it_converges_when_every_first_try_of_a_plan_dies_after_so_many_actions(steps: int) -> None:
    world = external()
    for turn in range(400):
        world.turn(limit=steps if turn % 2 == 0 else None)
        if world.phase == "Complete":
            break
    assert world.phase == "Complete"
    assert {name for kind, name in world.objects if kind != "ConfigMap"} == {"chat-copies"}


def test_the_first_passes_make_no_capture_and_open_the_data_port() -> None:
    world = external()
    made: dict[tuple[str, str], Any] = {}
    for _ in range(4):
        for step in world.turn().steps:
            if isinstance(step, Apply | Create):
                made[step.manifest["kind"], step.manifest["metadata"]["name"]] = step.manifest
    assert {("Deployment", "x-mirror"), ("Service", "x-mirror"), ("Service", "chat-copies")} <= made.keys()
    assert made["NetworkPolicy", "x-mirror"]["spec"]["ingress"][0] == {"ports": [{"protocol": "TCP", "port": 8080}]}
