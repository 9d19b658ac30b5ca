"""The routes say what the directive says: a small interpreter of Envoy's matcher against the rule in words."""

import re
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.capture.routes import integers_up_to, passing_routes, routes
from shadowrun_mirror.config import CREDENTIAL_HEADERS, MODULO, CaptureRules, MissingKey, Sampling
from shadowrun_mirror.directive import CaptureDirective

pytestmark = pytest.mark.path

PATHS = ("/v1/chat/completions", "/v1/completions")
LIMIT = 65_536


def sampling(
    key_headers: tuple[str, ...] = ("x-conversation-id",),
    on_missing_key: MissingKey = "Random",
    threshold: int = MODULO // 2,
    key_field: str = "",
    class_thresholds: dict[str, int] | None = None,
) -> Sampling:
    return Sampling(
        unit="Conversation",
        threshold=threshold,
        seed=2**64 - 1,
        key_headers=key_headers,
        on_missing_key=on_missing_key,
        key_field=key_field,
        class_thresholds=class_thresholds or {},
    )


def directive(*, copying: bool = True, window: int = 4, who: Sampling | None = None) -> CaptureDirective:
    rules = CaptureRules(paths=PATHS, max_body_bytes=LIMIT, sampling=who or sampling())
    return CaptureDirective(
        version=7, run_uid="uid-1", window=window, copying=copying, expiry=1e10, lease_s=10, rules=rules
    )


def matches(predicate: dict[str, Any], headers: dict[str, str]) -> bool:
    (kind, content), *_ = predicate.items()
    if kind == "and_matcher":
        return all(matches(each, headers) for each in content["predicate"])
    if kind == "or_matcher":
        return any(matches(each, headers) for each in content["predicate"])
    if kind == "not_matcher":
        return not matches(content, headers)
    value = headers.get(content["input"]["typed_config"]["header_name"])
    if value is None:
        return False
    if rule := content.get("custom_match"):
        typed = rule["typed_config"]
        return bool(xxhash.xxh64_intdigest(value.encode(), int(typed["seed"])) % typed["modulo"] >= typed["threshold"])
    (how, wanted), *_ = content["value_match"].items()
    if how == "safe_regex":
        return re.fullmatch(wanted["regex"], value) is not None
    return bool(value == wanted if how == "exact" else value.startswith(wanted))


def chosen_route(configuration: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    node = {"matcher": configuration["resources"][0]["virtual_hosts"][0]["matcher"]}
    while "matcher" in node:
        tree = node["matcher"]
        found = [
            each for each in tree.get("matcher_list", {}).get("matchers", []) if matches(each["predicate"], headers)
        ]
        node = found[0]["on_match"] if found else tree["on_no_match"]
    route: dict[str, Any] = node["action"]["typed_config"]
    return route


def is_marked(baggage: str) -> bool:
    """Whether an entry of a baggage header has one of the names that only a mirror may give."""
    names = (member.partition(";")[0].partition("=")[0].strip(" \t") for member in baggage.split(","))
    return any(name in ("shadow", "shadow.run") for name in names)


def kind_in_words(headers: dict[str, str], who: Sampling) -> str:
    path = headers[":path"].partition("?")[0]
    outside = headers[":method"] != "POST" or path not in PATHS or "upgrade" in headers
    if outside or is_marked(headers.get("baggage", "")) or "x-shadowrun-run" in headers:
        return "other"
    key = next((headers[name] for name in who.key_headers if headers.get(name)), "")
    if not key and who.on_missing_key == "Random" and not who.key_field:
        key = headers.get("x-request-id", "")
    threshold = min(who.threshold, *who.class_thresholds.values(), MODULO)
    in_the_body = not key and (who.key_field or who.on_missing_key == "Lineage")
    if not in_the_body and (not key or xxhash.xxh64_intdigest(key.encode(), who.seed) % MODULO < threshold):
        return "plain-4"
    size = headers.get("content-length")
    return "sampled-4" if size is not None and int(size) <= LIMIT else "oversized-4"


KEYS: tuple[tuple[str, ...], ...] = ((), ("x-conversation-id",), ("x-request-id",), CREDENTIAL_HEADERS)
samplings = st.builds(
    sampling,
    st.sampled_from(KEYS),
    st.sampled_from(["Random", "Skip", "Lineage"]),
    st.sampled_from([0, MODULO // 4, MODULO // 2, MODULO]),
    st.sampled_from(["", "user"]),
    st.sampled_from([{}, {"long": MODULO // 8}, {"long": MODULO, "short": MODULO // 2}]),
)
requests = st.fixed_dictionaries(
    {
        ":method": st.sampled_from(["POST", "POST", "POST", "GET"]),
        ":path": st.sampled_from([*PATHS, PATHS[0] + "?a=/b", PATHS[0] + "/x", "/v1", "/V1/chat/completions"]),
    },
    optional={
        "x-conversation-id": st.text(max_size=12),
        **{name: st.text(max_size=3) for name in ("authorization", "x-api-key", "cookie")},
        "x-request-id": st.sampled_from(["", "r-1", "r-2", "r-3"]),
        "content-length": st.integers(0, 2 * LIMIT).map(str) | st.sampled_from(["0065536", "65537", "65536"]),
        "upgrade": st.just("websocket"),
        "x-shadowrun-run": st.sampled_from(["", "uid-1"]),
        "baggage": st.lists(
            st.sampled_from(
                [
                    "a=b",
                    "shadow=true",
                    " shadow\t= 1;p",
                    "shadow.run=x",
                    "shadow",
                    "notshadow=1",
                    "shadower=1",
                    "a=shadow",
                    "Shadow=1",
                    "%73hadow=1",
                    "shadow x=1",
                    "a=\xff",
                ]
            ),
            max_size=3,
        ).map(",".join),
    },
)


@given(requests, samplings)
def test_every_request_takes_the_route_the_rule_gives_it(headers: dict[str, str], who: Sampling) -> None:
    built = routes(directive(who=who), copying=True, version="v")
    assert chosen_route(built, headers)["name"] == kind_in_words(headers, who)


@given(requests)
def test_all_routes_treat_customers_alike_and_only_sampled_ones_copy(headers: dict[str, str]) -> None:
    passing = chosen_route(passing_routes("v"), headers)
    route = chosen_route(routes(directive(), copying=True, version="v"), headers)
    copies = route["route"].pop("request_mirror_policies", [])
    assert route["route"] == passing["route"]
    assert bool(copies) == route["name"].startswith("sampled-")


@given(requests, st.booleans())
def test_baggage_of_ours_is_taken_out_whatever_the_state_and_sampled_routes_are_logged(
    headers: dict[str, str], copying: bool
) -> None:
    for built in (passing_routes("v"), routes(directive(), copying=copying, version="v")):
        route = chosen_route(built, headers)
        filters = set(route.get("typed_per_filter_config", {}))
        marked = is_marked(headers.get("baggage", ""))
        assert filters == ({"baggage"} if marked else {"copied"} if route["name"].startswith("sampled-") else set())


@given(requests, st.sampled_from([("plain-4", False, False), ("plain-4", False, True), ("paused-4", True, True)]))
def test_without_a_lease_or_in_a_pause_nothing_is_copied_and_scope_is_still_counted(
    headers: dict[str, str], state: tuple[str, bool, bool]
) -> None:
    name, copying, paused = state
    route = chosen_route(routes(directive(), copying=copying, paused=paused, version="v"), headers)
    assert "request_mirror_policies" not in route["route"]
    assert route["name"] == ("other" if kind_in_words(headers, sampling()) == "other" else name)


def test_a_directive_that_says_no_lets_everything_pass_uncounted() -> None:
    assert routes(directive(copying=False), copying=True, version="v") == passing_routes("v")


def test_where_nobody_can_have_a_key_nobody_is_copied() -> None:
    built = routes(directive(who=sampling((), "Skip", threshold=0)), copying=True, version="v")
    headers = {":method": "POST", ":path": PATHS[0], "x-request-id": "r", "content-length": "1"}
    assert chosen_route(built, headers)["name"] == "plain-4"


@pytest.mark.parametrize("key_header", ["x-conversation-id", "x-api-key"])
def test_a_copy_loses_every_credential_but_the_key_it_is_chosen_by_and_gains_its_marks(key_header: str) -> None:
    built = routes(directive(who=sampling((key_header,), threshold=0)), copying=True, version="v")
    headers = {":method": "POST", ":path": PATHS[0], key_header: "k", "content-length": "1"}
    (policy,) = chosen_route(built, headers)["route"]["request_mirror_policies"]
    mutations = policy["request_headers_mutations"]
    removed = {mutation["remove"] for mutation in mutations if "remove" in mutation}
    assert removed == {*CREDENTIAL_HEADERS, "expect"} - {key_header}
    marks = [mutation["append"] for mutation in mutations if "append" in mutation]
    assert [mark["header"] for mark in marks] == [
        {"key": "x-shadowrun-run", "value": "uid-1"},
        {"key": "x-shadowrun-window", "value": "4"},
        {"key": "x-envoy-upstream-rq-timeout-ms", "value": "10000"},
    ]
    assert {mark["append_action"] for mark in marks} == {"OVERWRITE_IF_EXISTS_OR_ADD"}


@given(st.integers(0, 10**10), st.integers(0, 10**11), st.integers(0, 3))
def test_the_number_pattern_accepts_exactly_the_integers_up_to_its_limit(limit: int, number: int, zeros: int) -> None:
    pattern = re.compile(integers_up_to(limit))
    for candidate in (number, limit - 1, limit, limit + 1):
        if candidate >= 0:
            assert (pattern.fullmatch("0" * zeros + str(candidate)) is not None) == (candidate <= limit)
    for nonsense in ("", "-1", "1.0", " 1", "1e1", "0x1"):
        assert pattern.fullmatch(nonsense) is None


def test_a_new_version_of_the_same_rules_is_new_content() -> None:
    one, two = (routes(directive(), copying=True, version=version) for version in ("1", "2"))
    assert one["resources"] != two["resources"]
