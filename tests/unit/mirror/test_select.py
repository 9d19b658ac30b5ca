import uuid

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.config import MODULO, Sampling
from shadowrun_mirror.select import is_selected

pytestmark = pytest.mark.mirror


def sampling(threshold: int = 0, **changes: object) -> Sampling:
    plain = {"unit": "Conversation", "threshold": threshold, "seed": 99, "key_headers": ("x-conversation-id",)}
    return Sampling(**(plain | changes))  # type: ignore[arg-type]


def reference(value: bytes, seed: int, threshold: int) -> bool:
    return xxhash.xxh64(value, seed=seed).intdigest() % 1_000_000 >= threshold


@given(st.binary(min_size=1).filter(lambda v: v.strip(b" \t")), st.integers(0, MODULO), st.integers(0, 2**64 - 1))
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


@given(st.binary(min_size=1), st.integers(0, MODULO), st.integers(0, MODULO))
def test_a_higher_rate_only_adds(value: bytes, low: int, high: int) -> None:
    low, high = sorted((low, high))
    headers = ((b"x-conversation-id", value), (b"x-request-id", b"r"))
    assert is_selected(sampling(low), headers) or not is_selected(sampling(high), headers)


@pytest.mark.parametrize("missing", [(), ((b"x-conversation-id", b""),), ((b"x-conversation-id", b" \t"),)])
def test_an_empty_key_is_a_missing_key(missing: tuple[tuple[bytes, bytes], ...]) -> None:
    headers = (*missing, (b"x-request-id", b"some-id"))
    for threshold in (0, 250_000, 500_000, 750_000, MODULO):
        assert is_selected(sampling(threshold), headers) == reference(b"some-id", 99, threshold)
        assert not is_selected(sampling(threshold, on_missing_key="Skip"), headers)


def test_with_nothing_to_go_by_a_copy_is_out() -> None:
    assert not is_selected(sampling(0), ())


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
