"""The Envoy route configuration that follows from a directive: who is copied, how a copy is marked, how it is counted.

Pure: no file, no clock. It must not change anything on the way to the primary: every route leads to the same cluster
with the same settings, and they differ only in their name (under which Envoy counts) and in whether a copy is made.
"""

from typing import Any

from shadowrun_mirror.config import MODULO, Sampling
from shadowrun_mirror.directive import CaptureDirective

ROUTE_CONFIG = "shadowrun"
"""Name under which the bootstrap asks for the route configuration."""

RUN_HEADER = "x-shadowrun-run"
WINDOW_HEADER = "x-shadowrun-window"
OTHER = "other"
"""Route name of everything that is out of scope or passes while a run is not observing; it is not evidence."""

CREDENTIALS = (
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "x-auth-token",
    "x-access-token",
)
"""Taken off every copy before it leaves the pod. The mirror strips these and more again; this is the first of two."""

_TYPE = "type.googleapis.com/"
_HEADER_INPUT = _TYPE + "envoy.type.matcher.v3.HttpRequestHeaderMatchInput"
_HASH = _TYPE + "envoy.extensions.matching.input_matchers.consistent_hashing.v3.ConsistentHashing"
_ROUTE = _TYPE + "envoy.config.route.v3.Route"
_ROUTE_CONFIGURATION = _TYPE + "envoy.config.route.v3.RouteConfiguration"
_SHADOW_BAGGAGE = r"(.*,)?\s*shadow\s*=\s*true\s*([,;].*)?"

Json = dict[str, Any]


def integers_up_to(limit: int) -> str:
    """A regular expression (RE2, whole match) for the decimal integers 0..limit, leading zeros allowed."""
    digits = str(limit)
    shorter = [f"[0-9]{{1,{len(digits) - 1}}}"] if len(digits) > 1 else []
    below = []
    for place, digit in enumerate(digits):
        if digit != "0":
            rest = len(digits) - place - 1
            below.append(f"{digits[:place]}[0-{int(digit) - 1}]" + (f"[0-9]{{{rest}}}" if rest else ""))
    return "0*(?:" + "|".join([*shorter, *below, digits]) + ")"


def passing_routes(version: str) -> Json:
    """Everything passes, nothing is copied, nothing is evidence. `version` names this state in Envoy's statistics."""
    return _response(version, {"on_no_match": _route(OTHER)})


def routes(directive: CaptureDirective, *, copying: bool, version: str) -> Json:
    """The discovery response (xDS, JSON form) that Envoy is to follow under `directive`.

    `copying` is what the lease allows now. A directive that itself says no gives `passing_routes`: the run is not
    observing. One that says yes without a lease copies nothing but goes on counting what is in scope as not selected,
    so that customers' requests do not vanish from the funnel. `version` shows up in Envoy's statistics once applied.
    """
    if not directive.copying:
        return passing_routes(version)
    window, rules = directive.window, directive.rules
    plain = _route(f"plain-{window}")
    found = plain
    if copying:
        copied = _route(f"sampled-{window}", _copy_policy(directive))
        fits = _header("content-length", {"safe_regex": _regex(integers_up_to(rules.max_body_bytes))})
        sized = {"matcher": _matcher(fits, copied, _route(f"oversized-{window}"))}
        found = {"matcher": _matcher(_selected(rules.sampling), sized, plain)}
    return _response(version, _matcher(_in_scope(rules.paths), found, _route(OTHER)))


def _response(version: str, matcher: Json) -> Json:
    configuration = {
        "@type": _ROUTE_CONFIGURATION,
        "name": ROUTE_CONFIG,
        # The version is part of the content too: Envoy takes no notice of a new version of the same content.
        "metadata": {"filter_metadata": {"shadowrun": {"version": version}}},
        "virtual_hosts": [{"name": "customers", "domains": ["*"], "matcher": matcher}],
    }
    return {"version_info": version, "resources": [configuration]}


def _matcher(predicate: Json, match: Json, no_match: Json) -> Json:
    return {"matcher_list": {"matchers": [{"predicate": predicate, "on_match": match}]}, "on_no_match": no_match}


def _route(name: str, copies: Json | None = None) -> Json:
    to_primary: Json = {
        "cluster": "primary",
        "timeout": "0s",
        "retry_policy": {"retry_on": "connect-failure,reset-before-request", "num_retries": 2},
    }
    if copies:
        to_primary["request_mirror_policies"] = [copies]
    route = {"@type": _ROUTE, "name": name, "match": {"prefix": "/"}, "route": to_primary}
    return {"action": {"name": name, "typed_config": route}}


def _copy_policy(directive: CaptureDirective) -> Json:
    kept = directive.rules.sampling.key_headers
    marks = ((RUN_HEADER, directive.run_uid), (WINDOW_HEADER, str(directive.window)))
    return {
        "cluster": "copies",
        "disable_shadow_host_suffix_append": True,
        "request_headers_mutations": [
            *({"remove": name} for name in (*CREDENTIALS, "expect") if name not in kept),
            *(
                {"append": {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}}
                for key, value in marks
            ),
        ],
    }


def _in_scope(paths: tuple[str, ...]) -> Json:
    """A POST to one of the paths (any query), not an upgrade, and not itself a copy or part of a shadow request."""
    by_path = [_header(":path", how) for path in paths for how in ({"exact": path}, {"prefix": path + "?"})]
    shadow = _header("baggage", {"safe_regex": _regex(_SHADOW_BAGGAGE)})
    return _all(
        _header(":method", {"exact": "POST"}),
        {"or_matcher": {"predicate": by_path}},
        _not(_present(RUN_HEADER)),
        _not(_present("upgrade")),
        _not(shadow),
    )


def _selected(sampling: Sampling) -> Json:
    """Whether the key's hash is in the sampled share; without a key, as `on_missing_key` says."""
    by_key = _all(_filled(sampling.key_headers[0]), _hashed(sampling.key_headers[0], sampling))
    if sampling.on_missing_key == "Skip" or sampling.key_headers[0] == "x-request-id":
        return by_key
    by_chance = _all(_not(_filled(sampling.key_headers[0])), _filled("x-request-id"), _hashed("x-request-id", sampling))
    return {"or_matcher": {"predicate": [by_key, by_chance]}}


def _hashed(name: str, sampling: Sampling) -> Json:
    # 64-bit integers are strings in the JSON form of protocol buffers.
    rule = {"@type": _HASH, "threshold": sampling.threshold, "modulo": MODULO, "seed": str(sampling.seed)}
    test = {"name": "envoy.matching.matchers.consistent_hashing", "typed_config": rule}
    return {"single_predicate": {"input": _input(name), "custom_match": test}}


def _filled(name: str) -> Json:
    return _header(name, {"safe_regex": _regex("(?s).+")})


def _present(name: str) -> Json:
    return _header(name, {"safe_regex": _regex("(?s).*")})


def _header(name: str, value_match: Json) -> Json:
    return {"single_predicate": {"input": _input(name), "value_match": value_match}}


def _input(name: str) -> Json:
    return {"name": name, "typed_config": {"@type": _HEADER_INPUT, "header_name": name}}


def _regex(pattern: str) -> Json:
    return {"google_re2": {}, "regex": pattern}


def _all(*predicates: Json) -> Json:
    return {"and_matcher": {"predicate": list(predicates)}}


def _not(predicate: Json) -> Json:
    return {"not_matcher": predicate}
