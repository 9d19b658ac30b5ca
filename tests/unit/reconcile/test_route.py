"""Mode HTTPRoute through whole lives of a run: the filter is in the route while copies are taken, and never after."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.route import claim_of, filters_of, mirror_filter
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.gateway import MIRROR, GatewaySeen, gateway_seen, parents_of
from shadowrun_operator.reconcile.observation import OtherRun
from shadowrun_operator.reconcile.orphans import abandoned_steps
from shadowrun_operator.reconcile.plan import EditRoute
from shadowrun_operator.reconcile.reconcile import reconcile
from shadowrun_operator.reconcile.route import PUT_BACK_S, SETTLE_S, unclaimed_steps

from tests.unit.reconcile.routes import ATTACHED, ROUTED, accepted, route, rule
from tests.unit.reconcile.world import World

pytestmark = pytest.mark.operator

SERVICE = "chat-copies"


def routed(**changes: Any) -> World:
    """A run on the rule `chat` of the user's HTTPRoute `front`."""
    world = World.with_spec(capture=ROUTED, **changes)
    world.route = route()
    return world


def filtered(world: World) -> bool:
    """Whether the route holds our filter."""
    assert world.route is not None
    return bool(filters_of(world.route, SERVICE))


def spec_of(world: World) -> Any:
    """The user's part of the route."""
    assert world.route is not None
    return world.route["spec"]


def refusal(world: World) -> tuple[str, str]:
    """Reason and message of the refusal."""
    plan = world.turn()
    found = next(c for c in plan.status.conditions if c.type == "Accepted")
    assert found.status == "False"
    assert world.objects == {}
    return found.reason, found.message


def test_the_filter_is_there_exactly_while_copies_are_taken_and_the_route_ends_as_it_began() -> None:
    world = routed()
    before = copy.deepcopy(spec_of(world))
    held: dict[str, set[bool]] = {}
    for _ in range(150):
        world.turn()
        held.setdefault(world.phase, set()).add(filtered(world))
        if world.phase == "Complete":
            break
    assert held["Preparing"] == {False}
    assert held["WarmingUp"] == held["Running"] == {True}
    assert held["Complete"] == {False}
    assert spec_of(world) == before
    assert world.body["status"]["verdict"] == "Pass"
    assert world.body["status"]["provenance"]["capture"] == "HTTPRoute"


def test_only_the_service_evidence_and_report_are_left_and_the_service_speaks_of_no_route() -> None:
    world = routed()
    world.until("Complete")
    assert sorted(world.objects) == [("ConfigMap", "x-evidence"), ("ConfigMap", "x-report"), ("Service", SERVICE)]
    assert claim_of(world.objects["Service", SERVICE]) == ""


def test_the_service_says_where_the_filter_may_be_before_it_is_there_and_until_it_is_gone() -> None:
    world = routed()
    for _ in range(150):
        world.turn()
        if filtered(world):
            assert claim_of(world.objects["Service", SERVICE]) == "front"
        if world.phase == "Complete":
            return
    raise AssertionError("never complete")


def test_the_mirror_stays_until_no_gateway_can_send_it_copies() -> None:
    world = routed()
    world.until("Running")
    gone: float | None = None
    for _ in range(150):
        world.turn()
        if gone is None and not filtered(world):
            gone = world.now
        if ("Deployment", "x-mirror") not in world.objects:
            break
    assert gone is not None
    assert world.now - gone >= SETTLE_S


def test_the_gateway_draws_single_requests_and_the_mirror_takes_what_comes() -> None:
    world = routed(sampling={"unit": "Request", "rate": "50%"})
    world.until("Running")
    assert world.route is not None
    assert filters_of(world.route, SERVICE) == [mirror_filter(SERVICE, 500_000)]
    assert world.mirror is not None
    assert (world.mirror.source, world.mirror.capture.sampling.threshold) == ("External", 0)


def test_of_conversations_the_gateway_copies_all_and_the_mirror_selects() -> None:
    world = routed(sampling={"unit": "Conversation", "rate": "25%"})
    world.until("Running")
    assert world.route is not None
    assert filters_of(world.route, SERVICE) == [mirror_filter(SERVICE, 1_000_000)]
    assert world.mirror is not None
    assert world.mirror.capture.sampling.threshold == 750_000


def test_a_rate_that_is_changed_changes_the_filter() -> None:
    world = routed()
    world.until("Running")
    world.body["spec"]["sampling"]["rate"] = "20%"
    world.turn()
    assert world.route is not None
    assert filters_of(world.route, SERVICE) == [mirror_filter(SERVICE, 200_000)]


def test_a_run_that_is_suspended_takes_its_filter_out_and_puts_it_back() -> None:
    world = routed(duration="10m")
    world.until("Running")
    world.body["spec"]["suspend"] = True
    world.turn()
    assert filtered(world), "the mirrors are told first"
    world.turn()
    assert not filtered(world)
    for _ in range(int(PUT_BACK_S)):
        world.turn()
    world.body["spec"]["suspend"] = False
    world.turn()
    assert filtered(world)


def test_edits_of_others_survive_the_run_and_its_end() -> None:
    world = routed()
    world.until("Running")
    assert world.route is not None
    world.route["spec"]["hostnames"] = ["new.example"]
    world.route["spec"]["rules"].insert(0, rule("first", {"type": "URLRewrite", "urlRewrite": {"hostname": "x"}}))
    world.route["metadata"]["labels"]["by"] = "hand"
    wanted = copy.deepcopy(world.route)
    for place in wanted["spec"]["rules"]:
        place.pop("filters", None) if place["name"] == "chat" else None
    world.until("Complete")
    assert world.route["spec"] == wanted["spec"]
    assert world.route["metadata"]["labels"] == wanted["metadata"]["labels"]


def test_a_filter_that_somebody_takes_out_is_put_back_once_in_a_while_and_not_at_once() -> None:
    world = routed(duration="10m")
    world.until("Running")
    put_in = 0
    for _ in range(40):
        world.route = route()  # a tool that knows nothing of us and never rests
        put_in += filtered_after_a_turn(world)
    assert 1 <= put_in <= 40 * 3 / PUT_BACK_S + 1
    conditions = {c["type"]: c for c in world.body["status"]["conditions"]}
    assert conditions["CaptureReady"]["reason"] in ("Degraded", "Ready")


def filtered_after_a_turn(world: World) -> bool:
    """Whether one pass puts the filter in."""
    world.turn()
    return filtered(world)


def test_the_condition_says_that_the_filter_is_gone() -> None:
    world = routed(duration="10m")
    world.until("Running")
    world.route = route()
    world.turn()
    (found,) = (c for c in world.body["status"]["conditions"] if c["type"] == "CaptureReady")
    assert (found["status"], found["reason"]) == ("False", "Degraded")


def test_a_rule_that_is_gone_keeps_nobody_from_ending() -> None:
    world = routed()
    world.until("Running")
    world.route = route(rule("other"))
    world.until("Complete")
    assert spec_of(world) == route(rule("other"))["spec"]


@pytest.mark.parametrize("lost", ["route", "right"])
def test_a_route_that_is_gone_or_may_not_be_read_keeps_nobody_from_ending(lost: str) -> None:
    world = routed()
    world.until("Running")
    if lost == "route":
        world.route = None
    else:
        world.route_refused = "No right."
    world.until("Complete")
    assert {name for kind, name in world.objects if kind != "ConfigMap"} == {SERVICE}
    left = claim_of(world.objects["Service", SERVICE])
    assert left == ("front" if lost == "right" else ""), "the sweeper looks later where nobody could look"


def test_a_deleted_run_takes_the_filter_out_before_it_is_let_go() -> None:
    world = routed()
    world.until("Running")
    world.body["metadata"]["deletionTimestamp"] = times.written(world.now)
    for _ in range(20):
        if world.turn().released:
            break
    else:
        raise AssertionError("never released")
    assert not filtered(world)
    assert claim_of(world.objects["Service", SERVICE]) == ""
    assert {kind for kind, _ in world.objects} == {"ConfigMap", "Service"}


def test_an_abandoned_run_loses_its_filter_and_keeps_its_service() -> None:
    world = routed()
    world.until("Running")
    found = [item for key, item in world.objects.items() if key != ("ConfigMap", "x-evidence")]
    services = [item for item in found if item["kind"] == "Service"]
    for step in [*abandoned_steps(found, world.now), *unclaimed_steps(services, world.now)]:
        world.step(step)
    assert not filtered(world)
    assert set(world.objects) == {("Service", SERVICE), ("ConfigMap", "x-evidence")}


def test_of_a_run_that_vanished_the_filter_is_found_by_its_service() -> None:
    world = routed()
    world.until("Running")
    for step in unclaimed_steps([world.objects["Service", SERVICE]], world.now):
        world.step(step)
    assert not filtered(world)
    assert unclaimed_steps([world.objects["Service", SERVICE]], world.now) == []


@pytest.mark.parametrize("steps", range(9))
def test_it_converges_when_every_first_try_of_a_plan_dies_after_so_many_actions(steps: int) -> None:
    world = routed()
    before = copy.deepcopy(spec_of(world))
    for turn in range(500):
        world.turn(limit=steps if turn % 2 == 0 else None)
        if world.phase == "Complete":
            break
    assert world.phase == "Complete"
    assert spec_of(world) == before
    assert claim_of(world.objects["Service", SERVICE]) == ""


def test_a_finished_run_edits_nothing() -> None:
    world = routed()
    world.until("Running")
    world.body["spec"]["stop"] = {"reason": "enough"}
    edits = 0
    for _ in range(60):
        edits += sum(isinstance(step, EditRoute) for step in world.turn().steps)
        if world.phase == "Complete":
            break
    assert edits == 1
    assert reconcile(world.observe()).steps == ()


def test_without_copies_the_message_names_rule_gateway_and_service() -> None:
    world = routed()
    world.rate = 0
    world.until("WarmingUp")
    world.turn()
    message = world.body["status"]["message"]
    assert "rule 'chat' of HTTPRoute 'front'" in message
    assert "'chat-copies', port 8080" in message


def test_without_copies_the_message_says_what_the_gateway_says() -> None:
    world = routed()
    world.rate = 0
    world.until("WarmingUp")
    assert world.route is not None
    said = {"type": "ResolvedRefs", "status": "False", "reason": "BackendNotFound", "message": "no such Service"}
    world.route["status"] = accepted(said)
    world.turn()
    assert world.body["status"]["message"].endswith("says of HTTPRoute 'front': BackendNotFound: no such Service")


def _route(*rules: dict[str, Any], **changes: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.route = route(*rules, **changes)

    return change


def _gateway(**changes: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.gateways = (dataclasses.replace(ATTACHED, **changes),)

    return change


def _no_route(world: World) -> None:
    world.route = None


def _no_right(world: World) -> None:
    world.route_refused = "The operator has no right to HTTPRoutes."


def _not_attached(world: World) -> None:
    world.route, world.gateways = route(status={}), ()


def _rate(rate: str, **gateway: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.body["spec"]["sampling"]["rate"] = rate
        _gateway(**gateway)(world)

    return change


REDIRECT = {"type": "RequestRedirect", "requestRedirect": {"hostname": "x"}}
FULL = tuple({"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": [str(n)]}} for n in range(16))

REFUSED: dict[str, tuple[Callable[[World], None], str, str]] = {
    "no route": (_no_route, "RouteNotFound", "HTTPRoute 'front' does not exist in namespace 'inference'"),
    "no right": (_no_right, "RouteNotFound", "no right to HTTPRoutes"),
    "no such rule": (_route(rule("a"), rule("b")), "RouteNotFound", "its rules are: a, b"),
    "rules without names": (_route({"backendRefs": []}), "RouteNotFound", "(unnamed)"),
    "no rules": (lambda w: _route(spec={})(w), "RouteNotFound", "its rules are: none"),
    "two rules of the name": (_route(rule("chat"), rule("chat")), "RouteUnsuitable", "2 rules are named 'chat'"),
    "a redirect": (_route(rule("chat", REDIRECT)), "RouteUnsuitable", "nothing to copy"),
    "a full rule": (_route(rule("chat", *FULL)), "RouteUnsuitable", "16 filters already"),
    "no gateway": (_not_attached, "RouteUnsuitable", "no gateway has accepted it"),
    "a gateway that refuses": (
        _route(status=accepted(status="False")),
        "RouteUnsuitable",
        "no gateway has accepted it (NoMatchingParent)",
    ),
    "a gateway that does not serve": (_gateway(problem="is not Accepted (x: y)"), "RouteUnsuitable", "is not Accepted"),
    "no mirror": (_gateway(features=frozenset({"HTTPRoute"})), "RouteUnsuitable", f"does not list {MIRROR}"),
    "no percentages": (_gateway(features=frozenset({MIRROR})), "RouteUnsuitable", "a share of the requests"),
}


@pytest.mark.parametrize(("change", "reason", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_copied_is_refused_with_its_reason_and_nothing_is_made(
    change: Callable[[World], None], reason: str, says: str
) -> None:
    world = routed()
    change(world)
    found, message = refusal(world)
    assert found == reason
    assert says in message


@pytest.mark.parametrize("sampling", [{"unit": "Request", "rate": "100%"}, {"unit": "Conversation", "rate": "1%"}])
def test_where_all_is_copied_no_percentages_are_needed(sampling: dict[str, str]) -> None:
    world = routed(sampling=sampling)
    world.gateways = (dataclasses.replace(ATTACHED, features=frozenset({MIRROR})),)
    assert world.turn().status.phase == "Preparing"


def test_a_class_that_lists_nothing_may_be_able_to_do_all() -> None:
    world = routed(sampling={"unit": "Request", "rate": "1%"})
    world.gateways = (dataclasses.replace(ATTACHED, features=None),)
    assert world.turn().status.phase == "Preparing"


def test_one_rule_is_copied_for_one_run_at_a_time() -> None:
    world = routed()
    world.others = (OtherRun(name="y", primary="", service_name="others", rule="front/chat"),)
    assert refusal(world)[0] == "CaptureInUse"
    world.others = (OtherRun(name="y", primary="", service_name="others", rule="front/health"),)
    assert world.turn().status.phase == "Preparing"


@pytest.mark.parametrize(
    ("component", "claim", "reason"),
    [
        (names.ROUTED, "", "Accepted"),
        (names.ROUTED, "front", "Accepted"),
        (names.ROUTED, "another", "ServiceNameTaken"),
        (names.COPIES, "", "ServiceNameTaken"),
        (names.CAPTURE, "", "ServiceNameTaken"),
    ],
)
def test_a_service_left_behind_is_taken_over_unless_another_route_may_still_name_it(
    component: str, claim: str, reason: str
) -> None:
    world = routed()
    labels = {names.RUN_LABEL: "y", names.MANAGED_BY_LABEL: names.MANAGED_BY, names.COMPONENT_LABEL: component}
    annotations = {names.ROUTE_ANNOTATION: claim} if claim else {}
    meta = {"name": SERVICE, "namespace": "inference", "labels": labels, "annotations": annotations}
    world.users["Service", SERVICE] = {"kind": "Service", "metadata": meta, "spec": {}}
    plan = reconcile(world.observe())
    found = next(c for c in plan.status.conditions if c.type == "Accepted")
    assert found.reason == reason


def test_features_are_read_as_objects_and_as_texts_and_an_empty_list_says_nothing() -> None:
    for listed in ([{"name": MIRROR}], [MIRROR]):
        assert gateway_seen("a/b", None, {"status": {"supportedFeatures": listed}}).features == frozenset({MIRROR})
    assert gateway_seen("a/b", None, {"status": {"supportedFeatures": []}}).features is None
    assert gateway_seen("a/b", None, None) == GatewaySeen(name="a/b")


@pytest.mark.parametrize(
    ("kind", "reason", "serves"),
    [
        ("Accepted", "Invalid", False),
        ("Programmed", "NoResources", False),
        ("Programmed", "AddressNotAssigned", True),
        ("Ready", "x", True),
    ],
)
def test_a_gateway_that_only_lacks_an_address_may_serve(kind: str, reason: str, serves: bool) -> None:
    condition = {"type": kind, "status": "False", "reason": reason, "message": "m"}
    seen = gateway_seen("a/b", {"status": {"conditions": [condition]}}, None)
    assert (seen.problem == "") is serves


def test_the_gateways_of_a_route_are_those_that_have_accepted_it() -> None:
    other = {"parentRef": {"name": "own"}, "conditions": [{"type": "Accepted", "status": "True"}]}
    mesh = {"parentRef": {"kind": "Service", "name": "chat"}, "conditions": other["conditions"]}
    refused = {"parentRef": {"name": "no"}, "conditions": [{"type": "Accepted", "status": "False"}]}
    document = route(status={"parents": [*accepted()["parents"], other, mesh, refused]})
    assert parents_of(document) == [("infra", "public"), ("inference", "own")]


@pytest.mark.parametrize("silent", [False, True])
def test_of_a_deleted_run_the_mirrors_are_told_before_the_filter_goes_unless_they_do_not_answer(silent: bool) -> None:
    world = routed()
    world.until("Running")
    world.silent = {"mirror-0"} if silent else set()
    world.body["metadata"]["deletionTimestamp"] = times.written(world.now)
    plan = world.turn()
    assert plan.push is not None
    assert filtered(world)
    for _ in range(6 if silent else 1):
        world.turn()
    assert not filtered(world)


def test_a_mirror_that_does_not_answer_keeps_no_filter_in_the_route_of_a_paused_run() -> None:
    world = routed(duration="10m")
    world.until("Running")
    world.silent = {"mirror-0"}
    world.body["spec"]["suspend"] = True
    world.turn()
    assert not filtered(world)


def test_a_finished_run_goes_without_a_filter_that_nobody_may_take_out() -> None:
    world = routed()
    world.until("Finishing")
    for _ in range(100):
        seen = world.observe()
        plan = reconcile(seen)
        allowed = tuple(step for step in plan.steps if not isinstance(step, EditRoute))
        world.carry_out(seen, dataclasses.replace(plan, steps=allowed))
        world.pass_time(3.0)
        if world.phase == "Complete":
            break
    assert world.phase == "Complete"
    assert "FilterLeft" in world.events
    assert filtered(world)
    assert claim_of(world.objects["Service", SERVICE]) == "front", "the sweep finds it by this"
    assert {kind for kind, _ in world.objects} == {"ConfigMap", "Service"}
