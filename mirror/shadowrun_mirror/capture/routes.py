"""The Envoy route configuration that follows from a directive: who is copied, how a copy is marked, how it is counted.

Pure: no file, no clock. It must not change anything on the way to the primary: every route leads to the same cluster
with the same settings, and they differ only in their name (under which Envoy counts) and in whether a copy is made.
"""

from typing import Any

from shadowrun_mirror import baggage
from shadowrun_mirror.config import CREDENTIAL_HEADERS, MODULO, REQUEST_ID, Sampling
from shadowrun_mirror.directive import CaptureDirective

ROUTE_CONFIG = "shadowrun"
"""Name under which the bootstrap asks for the route configuration."""

RUN_HEADER = "x-shadowrun-run"
WINDOW_HEADER = "x-shadowrun-window"
OTHER = "other"
"""Route name of everything that is out of scope or passes while a run is not observing; it is not evidence."""

_PATIENCE = ("x-envoy-upstream-rq-timeout-ms", "10000")
"""An order to Envoy itself: how long the mirror may take with a complete copy."""

_TYPE = "type.googleapis.com/"
_HEADER_INPUT = _TYPE + "envoy.type.matcher.v3.HttpRequestHeaderMatchInput"
_HASH = _TYPE + "envoy.extensions.matching.input_matchers.consistent_hashing.v3.ConsistentHashing"
_ROUTE = _TYPE + "envoy.config.route.v3.Route"
_ROUTE_CONFIGURATION = _TYPE + "envoy.config.route.v3.RouteConfiguration"
_PER_ROUTE = _TYPE + "envoy.config.route.v3.FilterConfig"

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
    return _response(version, _route(OTHER))


def routes(directive: CaptureDirective, *, copying: bool, version: str, paused: bool = False) -> Json:
    """The discovery response (xDS, JSON form) that Envoy is to follow under `directive`.

    `copying` is what the lease allows now, `paused` whether this is a slot in which nothing is copied on purpose. A
    directive that itself says no gives `passing_routes`: the run is not observing. One that says yes without a lease
    copies nothing but goes on counting what is in scope as not selected, so that customers' requests do not vanish
    from the funnel. `version` shows up in Envoy's statistics once applied.
    """
    if not directive.copying:
        return passing_routes(version)
    window, rules = directive.window, directive.rules
    if not copying:
        found = _route(f"plain-{window}")
    elif paused:
        found = _route(f"paused-{window}")
    else:
        fits = _header("content-length", {"safe_regex": _regex(integers_up_to(rules.max_body_bytes))})
        copied = _route(f"sampled-{window}", _copy_policy(directive))
        sized = {"matcher": _matcher((fits, copied), no_match=_route(f"oversized-{window}"))}
        chosen = _selected(rules.sampling)
        found = {"matcher": _matcher((chosen, sized), no_match=_route(f"plain-{window}"))} if chosen else sized
    return _response(version, {"matcher": _matcher((_in_scope(rules.paths), found), no_match=_route(OTHER))})


def _response(version: str, others: Json) -> Json:
    marked = _header("baggage", {"safe_regex": _regex(baggage.PATTERN)})
    matcher = _matcher((marked, _route(OTHER, filters=("baggage",))), no_match=others)
    configuration = {
        "@type": _ROUTE_CONFIGURATION,
        "name": ROUTE_CONFIG,
        # The version is part of the content too: Envoy takes no notice of a new version of the same content.
        "metadata": {"filter_metadata": {"shadowrun": {"version": version}}},
        "virtual_hosts": [{"name": "customers", "domains": ["*"], "matcher": matcher}],
    }
    return {"version_info": version, "resources": [configuration]}


def _matcher(*cases: tuple[Json, Json], no_match: Json) -> Json:
    """The first of `cases` (predicate, what follows) that holds, else `no_match`."""
    matchers = [{"predicate": predicate, "on_match": match} for predicate, match in cases]
    return {"matcher_list": {"matchers": matchers}, "on_no_match": no_match}


def _route(name: str, copies: Json | None = None, filters: tuple[str, ...] = ()) -> Json:
    """A way to the primary. `filters` are those of the bootstrap that are off elsewhere."""
    to_primary: Json = {
        "cluster": "primary",
        "timeout": "0s",
        "retry_policy": {"retry_on": "connect-failure,reset-before-request", "num_retries": 2},
    }
    if copies:
        to_primary["request_mirror_policies"] = [copies]
        filters = (*filters, "copied")
    route = {"@type": _ROUTE, "name": name, "match": {"prefix": "/"}, "route": to_primary}
    if filters:
        route["typed_per_filter_config"] = {each: {"@type": _PER_ROUTE, "config": {}} for each in filters}
    return {"action": {"name": name, "typed_config": route}}


def _copy_policy(directive: CaptureDirective) -> Json:
    kept = directive.rules.sampling.key_headers
    marks = ((RUN_HEADER, directive.run_uid), (WINDOW_HEADER, str(directive.window)), _PATIENCE)
    return {
        "cluster": "copies",
        "disable_shadow_host_suffix_append": True,
        "request_headers_mutations": [
            # The mirror strips these and more; this is the first of two, before a copy leaves the pod.
            *({"remove": name} for name in (*CREDENTIAL_HEADERS, "expect") if name not in kept),
            *(
                {"append": {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}}
                for key, value in marks
            ),
        ],
    }


def _in_scope(paths: tuple[str, ...]) -> Json:
    """A POST to one of the paths (any query), not an upgrade, and not itself a copy.

    Requests with shadow baggage have been set aside before.
    """
    by_path = [_header(":path", how) for path in paths for how in ({"exact": path}, {"prefix": path + "?"})]
    return _all(
        _header(":method", {"exact": "POST"}),
        _any(*by_path),
        _not(_present(RUN_HEADER)),
        _not(_present("upgrade")),
    )


def _selected(sampling: Sampling) -> Json | None:
    """Whether a request is copied; None = every one is.

    The key is the first of the key headers that is not empty, and its hash must be in the sampled share. Without a
    key: all are copied where the body may hold one, for the mirror to decide; else as `on_missing_key` says. The hash
    comes first: it is cheap, and most requests need no more.
    """
    cases: list[Json] = []
    missing: list[Json] = []  # no header so far is filled
    for name in sampling.key_headers:
        cases.append(_all(_hashed(name, sampling), _filled(name), *missing))
        missing.append(_not(_filled(name)))
    if sampling.needs_body:
        if not missing:
            return None
        cases.append(_all(*missing))
    elif sampling.on_missing_key == "Random" and REQUEST_ID not in sampling.key_headers:
        cases.append(_all(_hashed(REQUEST_ID, sampling), _filled(REQUEST_ID), *missing))
    return _any(*cases) if cases else _not(_present(":method"))  # nobody can have a key


def _hashed(name: str, sampling: Sampling) -> Json:
    # 64-bit integers are strings in the JSON form of protocol buffers.
    rule = {"@type": _HASH, "threshold": sampling.lowest_threshold, "modulo": MODULO, "seed": str(sampling.seed)}
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
    return {"and_matcher": {"predicate": list(predicates)}} if len(predicates) > 1 else predicates[0]


def _any(*predicates: Json) -> Json:
    return {"or_matcher": {"predicate": list(predicates)}} if len(predicates) > 1 else predicates[0]


def _not(predicate: Json) -> Json:
    return {"not_matcher": predicate}
