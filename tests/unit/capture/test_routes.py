"""The routes say what the directive says: a small interpreter of Envoy's matcher against the rule in words."""

import re
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.capture.routes import CREDENTIALS, integers_up_to, passing_routes, routes
from shadowrun_mirror.config import MODULO, CaptureRules, MissingKey, Sampling
from shadowrun_mirror.directive import CaptureDirective

pytestmark = pytest.mark.path

PATHS = ("/v1/chat/completions", "/v1/completions")
LIMIT = 65_536


def directive(
    *,
    copying: bool = True,
    window: int = 4,
    threshold: int = MODULO // 2,
    key_header: str = "x-conversation-id",
    on_missing_key: MissingKey = "Random",
) -> CaptureDirective:
    sampling = Sampling(
        unit="Conversation",
        threshold=threshold,
        seed=2**64 - 1,
        key_headers=(key_header,),
        on_missing_key=on_missing_key,
    )
    rules = CaptureRules(paths=PATHS, max_body_bytes=LIMIT, sampling=sampling)
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


def kind_in_words(headers: dict[str, str], missing: MissingKey) -> str:
    path = headers[":path"].partition("?")[0]
    shadow = any(
        member.partition(";")[0].replace(" ", "") == "shadow=true" for member in headers.get("baggage", "").split(",")
    )
    outside = headers[":method"] != "POST" or path not in PATHS or "upgrade" in headers
    if outside or shadow or "x-shadowrun-run" in headers:
        return "other"
    key = headers.get("x-conversation-id", "")
    if not key and missing == "Random":
        key = headers.get("x-request-id", "")
    if not key or xxhash.xxh64_intdigest(key.encode(), 2**64 - 1) % MODULO < MODULO // 2:
        return "plain-4"
    size = headers.get("content-length")
    return "sampled-4" if size is not None and int(size) <= LIMIT else "oversized-4"


requests = st.fixed_dictionaries(
    {
        ":method": st.sampled_from(["POST", "POST", "POST", "GET"]),
        ":path": st.sampled_from([*PATHS, PATHS[0] + "?a=/b", PATHS[0] + "/x", "/v1", "/V1/chat/completions"]),
    },
    optional={
        "x-conversation-id": st.text(max_size=12),
        "x-request-id": st.sampled_from(["", "r-1", "r-2", "r-3"]),
        "content-length": st.integers(0, 2 * LIMIT).map(str) | st.sampled_from(["0065536", "65537", "65536"]),
        "upgrade": st.just("websocket"),
        "x-shadowrun-run": st.sampled_from(["", "uid-1"]),
        "baggage": st.sampled_from(["a=b", "shadow=true", "a=b, shadow = true;p", "notshadow=true", "shadow=truely"]),
    },
)


@given(requests, st.sampled_from(["Random", "Skip"]))
def test_every_request_takes_the_route_the_rule_gives_it(headers: dict[str, str], missing: MissingKey) -> None:
    built = routes(directive(on_missing_key=missing), copying=True, version="v")
    assert chosen_route(built, headers)["name"] == kind_in_words(headers, missing)


@given(requests)
def test_all_routes_treat_customers_alike_and_only_sampled_ones_copy(headers: dict[str, str]) -> None:
    passing = chosen_route(passing_routes("v"), headers)
    route = chosen_route(routes(directive(), copying=True, version="v"), headers)
    copies = route["route"].pop("request_mirror_policies", [])
    assert route["route"] == passing["route"]
    assert bool(copies) == route["name"].startswith("sampled-")


@given(requests)
def test_without_a_lease_nothing_is_copied_and_scope_is_still_counted(headers: dict[str, str]) -> None:
    route = chosen_route(routes(directive(), copying=False, version="v"), headers)
    assert "request_mirror_policies" not in route["route"]
    expected = kind_in_words(headers, "Random")
    assert route["name"] == ("other" if expected == "other" else "plain-4")


def test_a_directive_that_says_no_lets_everything_pass_uncounted() -> None:
    assert routes(directive(copying=False), copying=True, version="v") == passing_routes("v")


@pytest.mark.parametrize("key_header", ["x-conversation-id", "x-api-key"])
def test_a_copy_loses_every_credential_but_the_key_it_is_chosen_by_and_gains_two_marks(key_header: str) -> None:
    built = routes(directive(threshold=0, key_header=key_header), copying=True, version="v")
    headers = {":method": "POST", ":path": PATHS[0], key_header: "k", "content-length": "1"}
    (policy,) = chosen_route(built, headers)["route"]["request_mirror_policies"]
    mutations = policy["request_headers_mutations"]
    removed = {mutation["remove"] for mutation in mutations if "remove" in mutation}
    assert removed == {*CREDENTIALS, "expect"} - {key_header}
    marks = [mutation["append"] for mutation in mutations if "append" in mutation]
    assert [mark["header"] for mark in marks] == [
        {"key": "x-shadowrun-run", "value": "uid-1"},
        {"key": "x-shadowrun-window", "value": "4"},
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
