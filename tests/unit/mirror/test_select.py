import json
import uuid
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.config import CREDENTIAL_HEADERS, MODULO, Sampling
from shadowrun_mirror.copied import Headers
from shadowrun_mirror.facts import Fields, fields_of
from shadowrun_mirror.select import is_selected, key_hash

pytestmark = pytest.mark.mirror

seeds = st.integers(0, 2**64 - 1)
thresholds = st.integers(0, MODULO)
names = st.sampled_from([name.encode() for name in (*CREDENTIAL_HEADERS, "x-request-id", "x-other")])
heads = st.lists(st.tuples(names, st.binary(max_size=20)), max_size=6).map(tuple)


def sampling(threshold: int = 0, **changes: object) -> Sampling:
    plain = {"unit": "Conversation", "threshold": threshold, "seed": 99, "key_headers": ("x-conversation-id",)}
    return Sampling(**(plain | changes))  # type: ignore[arg-type]


def reference(value: bytes, seed: int, threshold: int) -> bool:
    return xxhash.xxh64(value, seed=seed).intdigest() % 1_000_000 >= threshold


def body(value: Any) -> Fields:
    fields = fields_of(json.dumps(value).encode())
    assert fields is not None
    return fields


@given(st.binary(min_size=1).filter(lambda v: v.strip(b" \t")), thresholds, seeds)
def test_the_rule_is_the_hash_of_the_trimmed_value(value: bytes, threshold: int, seed: int) -> None:
    rule = sampling(threshold, seed=seed)
    assert is_selected(rule, ((b"x-conversation-id", value),)) == reference(value.strip(b" \t"), seed, threshold)


def test_a_known_hash_decides() -> None:
    """xxh64("abc", 0) = 0x44bc2cf5ad770999, a published test value; its remainder is 572,249."""
    assert 0x44BC2CF5AD770999 % MODULO == 572_249
    headers = ((b"x-conversation-id", b"abc"),)
    assert is_selected(sampling(572_249, seed=0), headers)
    assert not is_selected(sampling(572_250, seed=0), headers)


@given(st.lists(st.binary(), min_size=2, max_size=4))
def test_repeated_lines_are_joined_with_a_comma(values: list[bytes]) -> None:
    headers = tuple((b"x-conversation-id", value) for value in values)
    expected = b",".join(value.strip(b" \t") for value in values).strip(b" \t")
    assert is_selected(sampling(500_000), headers) == reference(expected, 99, 500_000)


@given(heads, thresholds, thresholds, seeds, st.sampled_from(["Random", "Skip", "Lineage"]), st.none() | seeds)
def test_whatever_the_key_a_higher_rate_only_adds(
    headers: Headers, low: int, high: int, seed: int, missing: str, opening: int | None
) -> None:
    low, high = sorted((low, high))
    common: dict[str, object] = {"seed": seed, "key_headers": CREDENTIAL_HEADERS, "on_missing_key": missing}
    more = is_selected(sampling(low, **common), headers, opening=opening)
    fewer = is_selected(sampling(high, **common), headers, opening=opening)
    assert more or not fewer


def test_one_percent_is_a_part_of_five_percent() -> None:
    keys = [f"key-{n}".encode() for n in range(20_000)]
    one, five = (
        {key for key in keys if is_selected(sampling(MODULO - rate), ((b"x-conversation-id", key),))}
        for rate in (10_000, 50_000)
    )
    assert one < five
    assert len(one) == pytest.approx(200, rel=0.25)
    assert len(five) == pytest.approx(1000, rel=0.15)


def test_every_process_decides_alike() -> None:
    """The decision is a function of what is written down, with no state and no salt of the process."""
    headers = ((b"authorization", b"Bearer \xff\x00"),)
    rule = sampling(0, key_headers=CREDENTIAL_HEADERS, seed=3)
    assert key_hash(rule, headers, None) == xxhash.xxh64_intdigest(b"Bearer \xff\x00", seed=3)


@given(st.lists(st.sampled_from(CREDENTIAL_HEADERS), min_size=1, unique=True), st.randoms())
def test_the_first_credential_that_is_there_is_the_key_in_whatever_order_they_came(chosen: list[str], rng: Any) -> None:
    first = min(chosen, key=CREDENTIAL_HEADERS.index)
    lines = [(name.encode(), f"value of {name}".encode()) for name in chosen]
    empty = [(name.encode(), b" \t") for name in CREDENTIAL_HEADERS if name not in chosen]
    headers = [*lines, *empty]
    rng.shuffle(headers)
    rule = sampling(key_headers=CREDENTIAL_HEADERS)
    assert key_hash(rule, tuple(headers), None) == xxhash.xxh64_intdigest(f"value of {first}".encode(), seed=99)


@given(st.text(min_size=1) | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False))
def test_any_scalar_field_of_the_body_is_a_key(value: Any) -> None:
    rule = sampling(key_headers=(), key_field="user")
    expected = value.encode() if isinstance(value, str) else json.dumps(value).encode()
    assert key_hash(rule, (), body({"user": value})) == xxhash.xxh64_intdigest(expected, seed=99)


@pytest.mark.parametrize("value", [None, "", {}, [], {"id": "a"}, ["a"]])
def test_nothing_and_what_is_no_scalar_is_no_key(value: Any) -> None:
    rule = sampling(key_headers=(), key_field="user")
    assert key_hash(rule, (), body({"user": value})) is None
    assert key_hash(rule, (), body({"metadata": {"user": "a"}})) is None


def test_half_a_surrogate_is_no_key() -> None:
    fields = fields_of(rb'{"user":"\ud800"}')
    assert fields is None or key_hash(sampling(key_headers=(), key_field="user"), (), fields) is None


def test_the_same_text_is_the_same_key_however_it_is_written_and_wherever_it_stands() -> None:
    by_field = sampling(key_headers=("x-user",), key_field="user")
    escaped = fields_of(rb'{"user":"\u0061\u00e9"}')
    assert key_hash(by_field, (), escaped) == key_hash(by_field, ((b"x-user", "aé".encode()),), None)


def test_a_header_comes_before_the_body() -> None:
    rule = sampling(key_headers=("x-user",), key_field="user")
    found = key_hash(rule, ((b"x-user", b"head"),), body({"user": "body"}))
    assert found == xxhash.xxh64_intdigest(b"head", seed=99)


@pytest.mark.parametrize("missing", [(), ((b"x-conversation-id", b""),), ((b"x-conversation-id", b" \t"),)])
def test_an_empty_key_is_a_missing_key(missing: Headers) -> None:
    headers = (*missing, (b"x-request-id", b"some-id"))
    opening = xxhash.xxh64_intdigest(b"some opening")
    for threshold in (0, 250_000, 500_000, 750_000, MODULO):
        assert is_selected(sampling(threshold), headers, opening=opening) == reference(b"some-id", 99, threshold)
        assert not is_selected(sampling(threshold, on_missing_key="Skip"), headers, opening=opening)
        by_opening = sampling(threshold, on_missing_key="Lineage")
        assert is_selected(by_opening, headers, opening=opening) == (opening % MODULO >= threshold)
        assert is_selected(by_opening, headers) == reference(b"some-id", 99, threshold)


def test_with_nothing_to_go_by_a_copy_is_out() -> None:
    assert not is_selected(sampling(0), ())
    assert not is_selected(sampling(0, on_missing_key="Lineage"), ())


@given(st.integers(0, MODULO - 1), thresholds, st.sampled_from(["Random", "Skip", "Lineage"]))
def test_a_drawn_number_stands_in_where_there_is_neither_key_nor_id_and_nowhere_else(
    drawn: int, threshold: int, missing: str
) -> None:
    rule = sampling(threshold, on_missing_key=missing)
    assert is_selected(rule, (), drawn=drawn) == (missing != "Skip" and drawn >= threshold)
    for headers in (((b"x-conversation-id", b"a"),), ((b"x-request-id", b"a"),)):
        assert is_selected(rule, headers, drawn=drawn) == is_selected(rule, headers)


def test_a_class_may_have_a_rate_of_its_own_and_the_rates_are_nested() -> None:
    rule = sampling(MODULO - 10_000, class_thresholds={"long": MODULO - 50_000})
    copies = [((b"x-conversation-id", str(n).encode()),) for n in range(5000)]
    others = {head for head in copies if is_selected(rule, head)}
    long = {head for head in copies if is_selected(rule, head, class_name="long")}
    assert others < long
    assert long == {head for head in copies if is_selected(sampling(MODULO - 50_000), head)}


@pytest.mark.parametrize("percent", [1, 10, 50])
def test_the_share_is_the_rate(percent: int) -> None:
    rule = sampling(MODULO - percent * 10_000)
    ids = (str(uuid.UUID(int=n * 0x9E3779B97F4A7C15 % 2**128)).encode() for n in range(20_000))
    share = sum(is_selected(rule, ((b"x-conversation-id", key),)) for key in ids) / 20_000
    assert share == pytest.approx(percent / 100, rel=0.12)


def test_rate_zero_and_rate_all_are_exact() -> None:
    for n in range(2000):
        headers = ((b"x-conversation-id", str(n).encode()),)
        assert is_selected(sampling(0), headers)
        assert not is_selected(sampling(MODULO), headers)
