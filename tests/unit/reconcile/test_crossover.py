"""Arms that change places halfway: when, in which order, what counts, and that the run ends wherever it gets stuck."""

from typing import Any

import pytest
from shadowrun_operator.judge.merge import COUNTED, SECOND_HALF, SECOND_WARM_UP
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.placement import pinned_to
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.judging import stored_report
from shadowrun_operator.reconcile.record import RunRecord

from tests.unit.reconcile.world import World, decoded

pytestmark = pytest.mark.operator


def crossing(**changes: Any) -> World:
    """A run of six minutes whose arms change places, with enough pairs for either half."""
    hardware = {"crossover": "Enabled", **changes.pop("hardware", {})}
    return World.with_spec(**{"hardware": hardware, "duration": "6m", **changes})


def until_window(world: World, window: int, turns: int = 400) -> None:
    """Turn until the record says so."""
    for _ in range(turns):
        if record_of(world).window >= window:
            return
        world.turn()
    raise AssertionError(f"not in window {window} after {turns} turns: {world.body['status'].get('message')}")


def record_of(world: World) -> RunRecord:
    """What is stored; an empty one before anything is."""
    return world.record or RunRecord(run_uid="", spec_hash="", spec={}, template={}, expiry=0.0)


def places(world: World) -> dict[str, str]:
    """On which node each arm's pod is."""
    return {pod.component: pod.node for pod in world.pods.values() if pod.component in ("baseline", "candidate")}


def until_gone(world: World) -> None:
    """Turn until the arms have left their first places."""
    while ("Deployment", "x-baseline") in world.objects:
        world.turn()


def uids(world: World) -> set[str]:
    """Which Deployments the arms are now."""
    found = (world.objects.get(("Deployment", f"x-{arm}")) for arm in ("baseline", "candidate"))
    return {item["metadata"]["uid"] for item in found if item is not None}


def half_over(world: World) -> float:
    """When the arms are to change places; never before the first pair has counted."""
    since = record_of(world).counting_since
    return since + world.run.spec.duration.seconds / 2 if since else float("inf")


def reasons(world: World, kind: str) -> str:
    """The reason of a condition."""
    return next(str(c["reason"]) for c in world.body["status"]["conditions"] if c["type"] == kind)


def test_both_halves_count_each_with_the_arms_on_the_others_nodes_and_the_run_passes() -> None:
    world = crossing()
    until_window(world, COUNTED)
    first = places(world)
    assert len(set(first.values())) == 2, "a node for each"
    until_window(world, SECOND_HALF)
    assert places(world) == {"baseline": first["candidate"], "candidate": first["baseline"]}
    world.until("Complete")
    status = world.body["status"]
    assert (status["verdict"], status["endReason"]) == ("Pass", "DurationReached"), status["message"]
    report = stored_report(world.observe())
    assert report is not None
    halves = [sum(c.admitted.requests for c in half.classes.values()) for half in report.evidence.halves]
    assert min(halves) > 500
    assert report.evidence.pairs == sum(halves) == status["pairs"]
    assert [arm.first_nodes for arm in report.facts.arms] == [(first["baseline"],), (first["candidate"],)]
    assert [len(result.halves) for result in report.criteria] == [2, 2]


def test_the_change_comes_after_half_of_the_duration_and_the_clock_goes_on() -> None:
    world = crossing()
    until_window(world, SECOND_WARM_UP)
    began = times.seconds(world.body["status"]["startTime"])
    assert 180 <= record_of(world).changed_at - began < 190
    world.until("Finishing")
    assert 360 <= world.now - began < 370


def test_what_is_copied_while_arms_get_warm_again_is_not_counted() -> None:
    world = crossing()
    until_window(world, SECOND_WARM_UP)
    world.turn()
    counted = world.body["status"]["funnel"]["requests"]
    until_window(world, SECOND_HALF)
    assert sum(e.windows[SECOND_WARM_UP].classes["default"].received.requests for e in world.evidence.values()) > 50
    assert world.body["status"]["funnel"]["requests"]["seen"] == counted["seen"]
    assert world.mirror is not None
    limits = record_of(world).indicators
    world.turn()
    assert (world.mirror.window, world.mirror.indicators) == (SECOND_HALF, limits), "the limits stay those of the start"
    provenance = world.body["status"]["provenance"]
    assert (provenance["window"], provenance["windowVersion"]) == (SECOND_HALF, world.mirror.version)


def test_no_copy_is_made_while_an_arm_is_between_its_places_and_no_old_arm_is_beside_a_new_one() -> None:
    world = crossing()
    until_window(world, COUNTED)
    stages: list[tuple[bool, str]] = []
    while record_of(world).window != SECOND_HALF:
        world.turn(seconds=1.0)
        arms = [world.objects.get(("Deployment", f"x-{arm}")) for arm in ("baseline", "candidate")]
        pins = {len(pinned_to(item["spec"]["template"]["spec"])) for item in arms if item is not None}
        assert pins in (set(), {0}, {1}), "never one arm in its old place while the other is in its new one"
        if record_of(world).changing_places:
            assert reasons(world, "Complete") == "ChangingPlaces"
            assert world.mirror is not None
            stages.append((world.mirror.copying, "gone" if not arms[0] and not arms[1] else ""))
    assert all(not copying for copying, _ in stages)
    assert "gone" in [stage for _, stage in stages]


def test_the_new_candidate_carries_the_change_and_the_arms_still_differ_by_nothing_else() -> None:
    world = crossing()
    until_window(world, SECOND_HALF)
    candidate = world.objects["Deployment", "x-candidate"]["spec"]["template"]["spec"]
    assert candidate["containers"][0]["args"] == ["-x"]
    world.turn()
    assert world.phase == "Running"
    assert world.body["status"]["difference"] == ["spec.containers[engine].args"]


def test_pods_that_wait_for_a_node_are_not_followed_before_the_old_ones_have_left_it() -> None:
    world = crossing()
    until_window(world, SECOND_WARM_UP)
    old = {name: pod for name, pod in world.pods.items() if pod.component == "baseline"}
    until_gone(world)
    for _ in range(3):
        world.pods |= old  # it takes its time to end
        world.turn()
        world.pods |= old
        seen = world.observe()
        assert not any(seen.object("Deployment", arm) for arm in ("baseline", "candidate"))
        assert "waiting for baseline, candidate" in world.body["status"]["message"]


def test_a_run_whose_arms_find_no_room_ends_after_another_start_deadline() -> None:
    world = crossing(startDeadline="1m")
    until_window(world, COUNTED)
    first = places(world)
    until_window(world, SECOND_WARM_UP)
    changed = record_of(world).changed_at
    until_gone(world)
    del world.nodes[first["baseline"]]
    world.until("Complete")
    status = world.body["status"]
    assert (status["verdict"], status["endReason"]) == ("Inconclusive", "CrossoverFailed")
    assert "within startDeadline 1m" in status["message"]
    assert "waiting for candidate" in status["message"]
    assert 60 <= record_of(world).ended_at - changed < 65


def test_an_end_before_the_second_half_is_inconclusive_however_clear_the_first_was() -> None:
    world = crossing(startDeadline="1h")
    until_window(world, SECOND_WARM_UP)
    until_gone(world)
    world.nodes.clear()
    world.until("Complete")
    status = world.body["status"]
    assert (status["endReason"], status["verdict"], status["reason"]) == (
        "DurationReached",
        "Inconclusive",
        "HalfMissing",
    )


def test_nothing_is_decided_before_the_arms_have_changed_places() -> None:
    world = crossing(endConditions={"minDuration": "1m", "decided": True})
    until_window(world, SECOND_HALF)
    world.until("Complete")
    status = world.body["status"]
    assert (status["endReason"], status["verdict"]) == ("Decided", "Pass")
    assert world.now < times.seconds(status["startTime"]) + 350


def test_a_pod_that_strays_from_its_node_ends_the_run() -> None:
    world = crossing()
    world.nodes["node3"] = "H200"
    until_window(world, COUNTED)
    world.placement["baseline"] = "node3"
    world.until("Complete")
    status = world.body["status"]
    assert (status["verdict"], status["endReason"]) == ("Inconclusive", "CrossoverFailed")
    assert "A pod of the baseline is on node node3" in status["message"]


def test_arms_that_share_a_node_all_the_same_have_nothing_to_change() -> None:
    world = crossing()
    while ("Deployment", "x-baseline") not in world.objects:
        world.turn()
    for name in ("x-baseline", "x-candidate"):  # as a webhook may
        del world.objects["Deployment", name]["spec"]["template"]["spec"]["affinity"]
    world.pass_time(0)
    world.until("Complete")
    status = world.body["status"]
    assert (status["verdict"], status["endReason"]) == ("Inconclusive", "CrossoverFailed")
    assert "share node node1" in status["message"]
    assert world.longest_copying == 0.0


@pytest.mark.parametrize("field", ["affinity", "nodeSelector"])
def test_a_candidate_that_says_where_it_goes_cannot_change_places(field: str) -> None:
    patch = {"spec": {field: {}, "containers": [{"name": "engine", "args": ["-x"]}]}}
    world = crossing(arms={"candidate": {"patch": patch}})
    world.turn()
    status = world.body["status"]
    assert reasons(world, "Accepted") == "PatchInvalid"
    assert f"patch.spec.{field} says where the candidate goes" in status["message"]


def test_the_control_stays_and_has_a_node_of_its_own() -> None:
    world = crossing(arms={"control": "Enabled"})
    world.nodes["node3"] = "H200"
    until_window(world, COUNTED)
    before = world.objects["Deployment", "x-control"]["metadata"]["uid"]
    until_window(world, SECOND_HALF)
    assert world.objects["Deployment", "x-control"]["metadata"]["uid"] == before
    world.until("Complete")
    assert world.body["status"]["endReason"] == "DurationReached"


def test_several_pods_of_an_arm_go_to_the_nodes_of_the_other_arms() -> None:
    world = crossing(arms={"replicas": 2})
    world.nodes |= {"node3": "H200", "node4": "H200"}
    until_window(world, COUNTED)
    nodes = record_of(world).nodes
    assert sorted(nodes["baseline"] + nodes["candidate"]) == ["node1", "node2", "node3", "node4"]
    until_window(world, SECOND_HALF)
    assert {pod.node for pod in world.pods.values() if pod.component == "baseline"} == set(nodes["candidate"])


def test_a_pause_by_hand_while_arms_change_places_changes_nothing_but_the_time() -> None:
    world = crossing()
    until_window(world, SECOND_WARM_UP)
    world.body["spec"]["suspend"] = True
    for _ in range(20):
        world.turn()
    assert record_of(world).window == SECOND_WARM_UP, "nothing warms the arms"
    world.body["spec"]["suspend"] = False
    world.until("Complete")
    assert world.body["status"]["verdict"] == "Pass", world.body["status"]["message"]


def test_no_arm_is_moved_while_a_mirror_that_does_not_answer_still_counts_for_the_first_half() -> None:
    world = crossing(duration="20m", admission={"timeout": "10s"})
    until_window(world, COUNTED)
    for _ in range(5):
        world.turn()
    before = uids(world)
    world.silent = {"mirror-0"}
    while world.phase == "Running":
        assert uids(world) == before
        assert world.mirror is not None
        assert (world.mirror.window, world.mirror.copying) == (COUNTED, True)
        world.turn()
    assert record_of(world).changed_at > 0
    world.until("Complete")
    status = world.body["status"]
    assert (status["verdict"], status["endReason"]) == ("Inconclusive", "CrossoverFailed")
    assert "once these are known to have stopped copying: mirror-0" in record_of(world).end_message


@pytest.mark.parametrize("replaced", [True, False])
def test_the_arms_are_moved_once_the_mirror_answers_or_another_has_taken_its_place(replaced: bool) -> None:
    world = crossing()
    until_window(world, COUNTED)
    world.turn()
    before = uids(world)
    world.silent = {"mirror-0"}
    until_window(world, SECOND_WARM_UP)
    for _ in range(20):
        world.turn()
    assert uids(world) == before
    if replaced:
        world.kill("mirror-0")
    world.silent.clear()
    until_window(world, SECOND_HALF)
    assert not uids(world) & before
    assert world.body["status"]["phase"] == "Running"


def test_what_a_mirror_still_has_in_flight_ends_before_the_arms_go() -> None:
    world = crossing(mirror={"replicas": 2})
    world.nodes["node3"] = "H200"
    until_window(world, SECOND_WARM_UP)
    before = uids(world)
    for _ in range(15):
        world.turn()
    assert uids(world) == before, "one copy in the second mirror never ends"
    assert "known to have stopped copying: mirror-1." in world.body["status"]["message"]
    world.kill("mirror-1")
    until_window(world, SECOND_HALF)
    assert not uids(world) & before


def test_mirrors_are_told_before_the_arms_go_however_long_the_api_server_refused_to_store_it() -> None:
    world = crossing()
    until_window(world, COUNTED)
    while not record_of(world).changed_at:
        world.turn(limit=1 if world.observe().now >= half_over(world) else None)
    before = uids(world)
    for _ in range(20):
        world.turn(limit=0)
    assert world.mirror is not None
    assert world.mirror.copying
    plan = world.turn()
    assert plan.push is not None
    assert uids(world) == before
    until_window(world, SECOND_HALF)
    assert not uids(world) & before


@pytest.mark.parametrize("turns", [10, 40])
def test_time_that_is_paused_by_hand_counts_against_the_second_half_and_the_message_says_so(turns: int) -> None:
    world = crossing(startDeadline="1m")
    until_window(world, SECOND_WARM_UP)
    world.body["spec"]["suspend"] = True
    world.turn()
    latest = times.written(record_of(world).changed_at + 60)
    assert f"The second half has to begin before {latest}" in world.body["status"]["message"]
    for _ in range(turns):
        world.turn(seconds=5.0)
    world.body["spec"]["suspend"] = False
    world.until("Complete")
    status = world.body["status"]
    assert (status["verdict"], status["endReason"]) == ("Inconclusive", "CrossoverFailed")
    assert "Time that is paused by spec.suspend counts." in record_of(world).end_message


def test_a_refusal_of_the_patch_in_the_second_half_is_said_and_ends_the_run_in_time() -> None:
    world = crossing(startDeadline="1m")
    until_window(world, SECOND_WARM_UP)
    world.refuse = "denied by policy"
    until_gone(world)
    for _ in range(4):
        world.turn()
    said = "The API server refused spec.arms.candidate.patch: denied by policy"
    assert said in world.body["status"]["message"]
    world.until("Complete")
    status = world.body["status"]
    assert (status["verdict"], status["endReason"]) == ("Inconclusive", "CrossoverFailed")
    assert said in record_of(world).end_message
    assert "spec.suspend" not in record_of(world).end_message


def test_the_operator_may_die_between_any_two_actions_of_the_change() -> None:
    world = crossing()
    until_window(world, COUNTED)
    while record_of(world).window != SECOND_HALF:
        for limit in range(6):
            world.turn(limit=limit, seconds=0.5)
        assert world.record is not None
        assert decoded(world.record) == world.record
        world.turn()
    world.until("Complete")
    assert world.body["status"]["verdict"] == "Pass", world.body["status"]["message"]


def test_a_run_without_crossover_has_no_affinity_and_no_halves() -> None:
    world = World.with_spec()
    world.until("Running")
    assert all(
        "affinity" not in world.objects["Deployment", f"x-{arm}"]["spec"]["template"]["spec"]
        for arm in (names.BASELINE, names.CANDIDATE)
    )
    assert record_of(world).nodes == {}
    world.until("Complete")
    report = stored_report(world.observe())
    assert report is not None
    assert (report.evidence.halves, report.rules.crossover) == ((), False)
