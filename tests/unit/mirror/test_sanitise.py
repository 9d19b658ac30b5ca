import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.sanitise import (
    STRIPPED,
    STRIPPED_PREFIXES,
    arm_headers,
    marked_baggage,
    sanitised,
    without_query,
)

pytestmark = pytest.mark.mirror

_NAMES = """
authorization x-api-key api-key x-goog-api-key cookie set-cookie proxy-authorization x-auth-token
x-access-token anthropic-user-profile-id x-continuum-resolved-user-profile-id x-user-id x-tenant x-org-id
x-backend x-continuum-route x-forwarded-for x-forwarded-host x-forwarded-proto x-real-ip forwarded
x-vllm-priority host connection keep-alive transfer-encoding content-length content-type accept-encoding
upgrade te trailer proxy-connection x-shadowrun-run x-shadowrun-window x-envoy-attempt-count
x-forwarded-access-token x-forwarded-user x-auth-request-access-token x-amzn-oidc-data x-original-authorization
x-envoy-expected-rq-timeout-ms x-gateway-destination-endpoint x-gateway-destination-endpoint-subset
x-gateway-inference-objective x-gateway-inference-fairness-id x-gateway-model-name x-prefiller-host-port
x-prefiller-url x-encoder-hosts-ports x-data-parallel-host-port x-kv-cache-source-host-port
x-llm-d-prefiller-host-port x-session-token
"""
NEVER = _NAMES.split()
"""Written out once more, so that losing one from the code fails here."""
_PREFIXES = """
x-continuum- x-shadowrun- x-envoy- x-forwarded- x-auth-request- x-amzn-oidc- x-original-authorization x-gateway-
x-llm-d-
"""
PREFIXES = _PREFIXES.split()


def spelled(draw: st.DrawFn, name: str) -> bytes:
    letters = [
        draw(st.sampled_from((char.lower(), char.upper()))) if char.isalpha() else draw(st.sampled_from("-_"))
        for char in name
    ]
    pad = st.text(" \t", max_size=2)
    return (draw(pad) + "".join(letters) + draw(pad)).encode()


@st.composite
def spellings(draw: st.DrawFn, name: str) -> bytes:
    return spelled(draw, name)


@st.composite
def never_names(draw: st.DrawFn) -> bytes:
    return spelled(draw, draw(st.sampled_from(NEVER)))


@st.composite
def prefixed_names(draw: st.DrawFn) -> bytes:
    prefix = draw(st.sampled_from(PREFIXES))
    return spelled(draw, prefix + draw(st.text("abcxyz-", max_size=10)))


def plain(name: bytes) -> bytes:
    return name.strip(b" \t").lower().replace(b"_", b"-")


def is_stripped(name: bytes) -> bool:
    """Whether a header of this name, sent alone, leaves nothing but our mark."""
    return sanitised(((name, b"value"),), "run") == ((b"baggage", b"shadow=true,shadow.run=run"),)


free_names = st.from_regex(rb"\A[A-Za-z][A-Za-z0-9_-]{0,20}\Z").filter(
    lambda name: (
        plain(name) not in STRIPPED and not plain(name).startswith(STRIPPED_PREFIXES) and plain(name) != b"baggage"
    )
)
values = st.binary(max_size=30)


@given(never_names() | prefixed_names())
def test_no_spelling_of_a_name_that_must_stay_passes(name: bytes) -> None:
    assert is_stripped(name)


@given(
    st.lists(st.tuples(never_names() | prefixed_names(), st.just(b"canary")), max_size=8),
    st.lists(st.tuples(free_names, values), max_size=8),
    st.randoms(),
)
def test_what_may_pass_passes_in_order_and_byte_for_byte_and_nothing_else(
    never: list[tuple[bytes, bytes]], free: list[tuple[bytes, bytes]], shuffle: object
) -> None:
    mixed = [*never, *free]
    shuffle.shuffle(mixed)  # type: ignore[attr-defined]
    kept = [(name, value) for name, value in mixed if (name, value) in free and not is_stripped(name)]
    *passed, mark = sanitised(tuple(mixed), "run")
    assert passed == [pair for pair in kept if plain(pair[0]) != b"baggage"]
    assert mark == (b"baggage", b"shadow=true,shadow.run=run")
    assert all(value != b"canary" for name, value in passed if (name, value) not in free)


def test_headers_named_by_connection_stay_here() -> None:
    headers = ((b"Connection", b"close, X-Hop"), (b"x-hop", b"1"), (b"X_Hop", b"2"), (b"x-other", b"3"))
    assert sanitised(headers, "run")[:-1] == ((b"x-other", b"3"),)


@given(spellings("x-customer-id"))
def test_the_header_that_names_the_customer_stays_here_in_any_spelling(name: bytes) -> None:
    headers = ((name, b"canary"), (b"x-customer", b"1"))
    assert sanitised(headers, "run", [b"x-customer-id"])[:-1] == ((b"x-customer", b"1"),)
    assert sanitised(headers, "run")[:-1] == headers


@pytest.mark.parametrize("query", [b"", b"?", b"?api_key=k", b"?a=b?c=/d"])
def test_no_query_passes(query: bytes) -> None:
    assert without_query(b"/v1/completions" + query) == b"/v1/completions"


def test_repeated_headers_are_all_kept() -> None:
    headers = ((b"x-a", b"1"), (b"x-b", b"2"), (b"x-a", b"3"))
    assert sanitised(headers, "run")[:-1] == headers


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], b"shadow=true,shadow.run=r"),
        ([b""], b"shadow=true,shadow.run=r"),
        ([b"a=1"], b"a=1,shadow=true,shadow.run=r"),
        ([b"a=1;p=q , b=2"], b"a=1;p=q , b=2,shadow=true,shadow.run=r"),
        ([b"a=1", b"b=2"], b"a=1,b=2,shadow=true,shadow.run=r"),
        ([b"shadow=false"], b"shadow=true,shadow.run=r"),
        ([b" shadow = false ;x=y,a=1"], b"a=1,shadow=true,shadow.run=r"),
        ([b"shadow.run=other,a=1", b"shadow"], b"a=1,shadow=true,shadow.run=r"),
        ([b"%73hadow=false,shadow%2Erun=x"], b"shadow=true,shadow.run=r"),
        ([b"shadows=1,my.shadow=2,Shadow=3"], b"shadows=1,my.shadow=2,Shadow=3,shadow=true,shadow.run=r"),
    ],
)
def test_baggage_keeps_other_entries_and_ends_with_our_mark(lines: list[bytes], expected: bytes) -> None:
    assert marked_baggage(lines, "r") == expected


entries = st.from_regex(rb"\A[ \t]?[a-z]{1,8}[ \t]?=[ \t]?[!-+\--:<-\[\]-~]{0,20}(;[a-z]=[0-9])?\Z").filter(
    lambda entry: entry.split(b"=")[0].strip() != b"shadow"
)
claims = st.sampled_from([b"shadow=false", b" shadow = 1", b"shadow.run=evil", b"shadow;p=1", b"%73hadow=0"])


@given(st.lists(st.lists(entries | claims, min_size=1, max_size=5), max_size=4))
def test_any_baggage_comes_out_with_exactly_one_mark(lines: list[list[bytes]]) -> None:
    result = marked_baggage([b",".join(line) for line in lines], "r").split(b",")
    others = [entry for line in lines for entry in line if b"shadow" not in entry and b"%73" not in entry]
    assert result == [*others, b"shadow=true", b"shadow.run=r"]


def test_too_much_baggage_is_cut_at_its_end_so_that_the_mark_arrives() -> None:
    many = marked_baggage([b",".join(b"k%d=v" % n for n in range(400))], "r").split(b",")
    assert len(many) == 180
    assert many[:2] == [b"k0=v", b"k1=v"]
    large = marked_baggage([b"a=" + b"x" * 5000 + b",b=" + b"y" * 5000], "r")
    assert len(large) <= 8192
    assert large.startswith(b"a=xxx")
    assert large.endswith(b",shadow=true,shadow.run=r")


def test_an_arm_is_asked_for_an_answer_without_compression() -> None:
    common = sanitised(((b"accept-encoding", b"gzip, br"),), "run")
    assert [value for name, value in arm_headers(common, None) if name == b"accept-encoding"] == [b"identity"]


def test_the_arms_own_credential_is_the_only_one() -> None:
    common = sanitised(((b"authorization", b"Bearer customer"), (b"x-a", b"1")), "run")
    assert [value for name, value in arm_headers(common, "own") if name == b"authorization"] == [b"Bearer own"]
    names = [b"x-a", b"baggage", b"content-type", b"accept-encoding"]
    assert [name for name, _ in arm_headers(common, None)] == names
