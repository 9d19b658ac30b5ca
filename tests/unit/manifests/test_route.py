"""The filter in a user's HTTPRoute: in and out again leaves everything else as it was, whatever there is."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.manifests.given_back import given_back_at
from shadowrun_operator.manifests.names import RunRef
from shadowrun_operator.manifests.route import (
    claim_of,
    copied_share,
    edits,
    filters_of,
    is_ours,
    mirror_filter,
    released,
    routed_service,
    with_filter,
    without_filter,
)

from tests.unit.reconcile.routes import ROUTED, patched, route, rule
from tests.unit.reconcile.world import spec

pytestmark = pytest.mark.operator

SERVICE = "chat-copies"
OURS = mirror_filter(SERVICE, 1_000_000)

texts = st.text("abc-", min_size=1, max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
backends = st.fixed_dictionaries(
    {"name": st.sampled_from(["chat", "other", SERVICE])}, optional={"port": st.just(8080)}
)
foreign = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["RequestHeaderModifier", "URLRewrite"]), "x": values}),
    backends.map(lambda b: {"type": "RequestMirror", "requestMirror": {"backendRef": {**b, "namespace": "elsewhere"}}}),
    st.just({"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "other-copies", "port": 1}}}),
)
names = st.sampled_from(["chat", "health", None])


@st.composite
def rules(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rules with names of their own, filters of others or none, and anything beside."""
    made = []
    for name in draw(st.lists(names, unique=True, min_size=1, max_size=3)):
        one: dict[str, Any] = {"backendRefs": draw(values), "matches": draw(values)}
        if name is not None:
            one["name"] = name
        filters = draw(st.none() | st.lists(foreign, min_size=1, max_size=3))
        if filters is not None:
            one["filters"] = filters
        made.append(one)
    return made


def written(document: dict[str, Any]) -> str:
    """A document byte for byte, but for the version that the API server gives it."""
    return json.dumps(document | {"metadata": document["metadata"] | {"resourceVersion": ""}})


@given(rules=rules(), share=st.sampled_from([1_000_000, 500_000, 12_345, 1]))
def test_our_filter_goes_in_and_out_and_leaves_everything_else_byte_for_byte(
    rules: list[dict[str, Any]], share: int
) -> None:
    before = route(*rules)
    wanted = mirror_filter(SERVICE, share)
    within = patched(before, edits(before, "chat", SERVICE, wanted))
    named = any(r.get("name") == "chat" for r in rules)
    assert filters_of(within, SERVICE) == ([wanted] if named else [])
    assert edits(within, "chat", SERVICE, wanted) == [], "once is enough"
    after = patched(within, edits(within, "chat", SERVICE, None))
    assert written(after) == written(before)
    assert edits(after, "chat", SERVICE, None) == []


@given(rules=rules(), edit=rules())
def test_an_edit_of_somebody_else_in_between_survives(rules: list[dict[str, Any]], edit: list[dict[str, Any]]) -> None:
    before = route(*rules)
    within = patched(before, edits(before, "chat", SERVICE, OURS))
    others = copy.deepcopy(within)
    others["spec"]["hostnames"] = ["new.example"]
    others["spec"]["rules"] = [*edit, *(r for r in within["spec"]["rules"] if r.get("filters"))]
    expected = without_filter(others, SERVICE)
    after = patched(others, edits(others, "chat", SERVICE, None))
    assert written(after) == written(expected)
    assert [f for r in after["spec"]["rules"] for f in r.get("filters") or [] if is_ours(f, SERVICE)] == []


def test_an_empty_list_of_filters_becomes_none() -> None:
    before = route(rule("chat") | {"filters": []})
    within = patched(before, edits(before, "chat", SERVICE, OURS))
    after = patched(within, edits(within, "chat", SERVICE, None))
    assert "filters" not in after["spec"]["rules"][0]


def test_an_edit_names_the_version_it_was_made_from_and_nothing_but_the_filters_of_one_rule() -> None:
    assert edits(route(), "chat", SERVICE, OURS) == [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/spec/rules/1/filters", "value": [OURS]},
    ]


def test_it_is_known_by_its_service_with_the_defaults_that_the_api_server_fills_in() -> None:
    stored = copy.deepcopy(OURS)
    stored["requestMirror"]["backendRef"] |= {"group": "", "kind": "Service"}
    document = route(rule("health"), rule("chat", stored))
    assert filters_of(document, SERVICE) == [stored]
    assert edits(document, "chat", SERVICE, OURS) == []


@pytest.mark.parametrize(
    "backend",
    [
        {"name": "other"},
        {"name": SERVICE, "namespace": "elsewhere"},
        {"name": SERVICE, "kind": "InferencePool", "group": "inference.networking.k8s.io"},
    ],
)
def test_what_sends_copies_elsewhere_is_not_ours(backend: dict[str, str]) -> None:
    theirs = {"type": "RequestMirror", "requestMirror": {"backendRef": backend}}
    document = route(rule("chat", theirs))
    assert without_filter(document, SERVICE) is document


def test_it_stays_in_a_rule_that_was_renamed_and_takes_the_share_that_holds_now() -> None:
    document = route(rule("renamed", mirror_filter(SERVICE, 500_000)), rule("chat"))
    changed = with_filter(document, "chat", mirror_filter(SERVICE, 250_000))
    assert [r.get("filters") for r in changed["spec"]["rules"]] == [[mirror_filter(SERVICE, 250_000)], None]


def test_two_of_ours_become_one_in_the_named_rule() -> None:
    document = route(rule("health", OURS), rule("chat", OURS))
    changed = with_filter(document, "chat", OURS)
    assert [r.get("filters") for r in changed["spec"]["rules"]] == [None, [OURS]]


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (1_000_000, {}),
        (500_000, {"percent": 50}),
        (10_000, {"percent": 1}),
        (5_000, {"fraction": {"numerator": 1, "denominator": 200}}),
        (1, {"fraction": {"numerator": 1, "denominator": 1_000_000}}),
    ],
)
def test_a_share_is_said_in_the_words_of_the_gateway_api(share: int, said: dict[str, Any]) -> None:
    expected = {"backendRef": {"name": SERVICE, "port": 8080}} | said
    assert mirror_filter(SERVICE, share) == {"type": "RequestMirror", "requestMirror": expected}


@pytest.mark.parametrize(
    ("sampling", "share"),
    [
        ({"unit": "Request", "rate": "2.5%"}, 25_000),
        ({"unit": "Request", "rate": "1%", "classRates": [{"class": "default", "rate": "20%"}]}, 200_000),
        ({"unit": "Key", "rate": "1%", "key": {"header": "x-user"}}, 1_000_000),
        ({"unit": "Conversation", "rate": "1%"}, 1_000_000),
    ],
)
def test_the_gateway_draws_only_where_every_request_is_drawn_by_itself(sampling: dict[str, Any], share: int) -> None:
    assert copied_share(Spec.model_validate(spec(capture=ROUTED, sampling=sampling))) == share


def test_the_service_says_which_route_may_name_it_until_it_is_released() -> None:
    service = routed_service(RunRef(name="x", namespace="inference", uid="u"), SERVICE, route="front")
    assert claim_of(service) == "front"
    assert "ownerReferences" not in service["metadata"]
    left = released(service, 1_800_000_000.5)
    assert claim_of(left) == ""
    assert given_back_at(left) == 1_800_000_000.5
    assert left["spec"] == service["spec"]
    assert left["metadata"]["labels"] == service["metadata"]["labels"]
