"""The operator dies anywhere, and the next one ends the run all the same, counting nothing twice."""

import base64
import random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from shadowrun_mirror.config import decode_config
from shadowrun_operator.manifests.mirror import CONFIG_KEY
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.plan import Apply, Create, Delete, EditRoute, Merge, PatchCandidate, Plan, Step
from shadowrun_operator.reconcile.reconcile import reconcile

from tests.unit.reconcile.world import START, World

pytestmark = pytest.mark.operator


@pytest.mark.parametrize("steps", range(9))
def test_a_run_converges_when_every_first_try_of_a_plan_dies_after_so_many_actions(steps: int) -> None:
    world = World.with_spec()
    for turn in range(400):
        world.turn(limit=steps if turn % 2 == 0 else None)
        if world.phase == "Complete":
            break
    assert world.phase == "Complete"
    assert world.body["status"]["verdict"] == "Pass"
    assert sorted(world.objects) == [
        ("ConfigMap", "x-evidence"),
        ("ConfigMap", "x-report"),
        ("Service", "chat-shadowed"),
    ]


MODES: dict[str, dict[str, Any]] = {
    "usual": {},
    "several mirrors": {"mirror": {"replicas": 3}},
    "guarded": {"livePathGuard": {"maxErrorIncrease": "1%"}},
    "another proxy": {"capture": {"mode": "External", "proxy": None, "external": {"serviceName": "chat-copies"}}},
}


@given(seed=st.integers(0, 10_000), mode=st.sampled_from(sorted(MODES)))
@settings(max_examples=20, deadline=None)
def test_a_run_converges_when_plans_die_at_random(seed: int, mode: str) -> None:
    dice = random.Random(seed)
    world = World.with_spec(**MODES[mode])
    for _ in range(600):
        world.turn(limit=dice.choice([None, None, 0, 1, 2, 3, 4, 5]))
        if world.phase == "Complete":
            break
    assert world.phase == "Complete"
    counted = sum(
        c.received.requests
        for e in world.evidence.values()
        for n, w in e.windows.items()
        if n
        for c in w.classes.values()
    )
    assert world.body["status"]["funnel"]["requests"]["selected"] == counted


MISHAPS = (
    "turn",
    "turn",
    "turn",
    "die",
    "wait",
    "leap",
    "pods",
    "nodes",
    "stop",
    "suspend",
    "service",
    "rate",
    "evidence",
    "delete",
    "mirror",
)


@given(
    mishaps=st.lists(st.sampled_from(MISHAPS), max_size=40),
    warm=st.integers(0, 25),
    mode=st.sampled_from(sorted(MODES)),
)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_happens_no_plan_copies_past_expiry_leaves_complete_or_writes_to_the_primary(
    mishaps: list[str], warm: int, mode: str
) -> None:
    world = World.with_spec(**MODES[mode])
    for _ in range(warm):
        world.turn()
    for mishap in [*mishaps, *["turn"] * 3]:
        _happen(world, mishap)
        before = world.phase
        seen = world.observe()
        plan = reconcile(seen)
        assert reconcile(seen) == plan
        _check(world, plan, before)
        world.carry_out(seen, plan)


def _happen(world: World, mishap: str) -> None:
    match mishap:
        case "turn":
            world.turn()
        case "die":
            world.turn(limit=2)
        case "wait":
            world.pass_time(10)
        case "leap":
            world.pass_time(200)
        case "pods":
            world.starting = not world.starting
            world.pass_time(1)
        case "nodes":
            world.nodes["node1"] = None if world.nodes["node1"] else "H200"
        case "stop":
            world.body["spec"]["stop"] = {"reason": "enough"}
        case "suspend":
            world.body["spec"]["suspend"] = not world.body["spec"].get("suspend", False)
        case "service":
            if ("Service", "chat") in world.users:
                world.kept = world.users.pop(("Service", "chat"))  # type: ignore[attr-defined]
            else:
                world.users["Service", "chat"] = world.kept  # type: ignore[attr-defined]
        case "rate":
            world.body["spec"]["sampling"]["rate"] = "5%"
        case "evidence":
            world.objects.pop(("ConfigMap", "x-evidence"), None)
            world.record = None
        case "mirror":
            if ("Secret", "x-mirror") in world.objects:
                world.kill("mirror-0")
        case "delete":
            world.body["metadata"]["deletionTimestamp"] = times.written(world.now)


def _check(world: World, plan: Plan, before: str) -> None:
    expiry = world.body["status"].get("expiryTime")
    configs = [plan.push.config] if plan.push else []
    secrets = [s.manifest for s in plan.steps if isinstance(s, Apply) and s.manifest["kind"] == "Secret"]
    configs += [decode_config(base64.b64decode(s["data"][CONFIG_KEY])) for s in secrets if CONFIG_KEY in s["data"]]
    if expiry and world.now >= times.seconds(expiry):
        assert not any(config.copying for config in configs)
    if before == "Complete" and "deletionTimestamp" not in world.body["metadata"]:
        assert (plan.status.phase, plan.steps, plan.push) == ("Complete", (), None)
    assert 0 <= plan.requeue_after <= 30
    named = {_target(step) for step in plan.steps}
    assert not {("Service", "chat"), ("Deployment", "chat")} & named


def _target(step: Step) -> tuple[str, str]:
    match step:
        case Create(manifest) | Apply(manifest) | Merge(manifest):
            return manifest["kind"], manifest["metadata"]["name"]
        case Delete(kind, name):
            return kind, name
        case PatchCandidate(name, _):
            return "Deployment", name
        case EditRoute(name):
            return "HTTPRoute", name


def test_nothing_is_copied_past_the_expiry_even_when_no_operator_lives() -> None:
    world = World.with_spec()
    world.until("Running")
    expiry = times.seconds(world.body["status"]["expiryTime"])
    while world.now < expiry + 600:
        world.pass_time(10)
    assert START < world.longest_copying < expiry
