"""What is taken for a mirror's mark is the same everywhere; only who writes a mark takes out more."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.baggage import PATTERN, claims_ours, is_ours, is_shadow

pytestmark = pytest.mark.mirror

pieces = st.sampled_from([b"shadow", b".run", b"Shadow", b" ", b"\t", b"=", b";", b",", b"x", b"%73hadow", b"\xff"])
lists = st.lists(pieces, max_size=8).map(b"".join)


@given(lists)
def test_the_pattern_the_door_and_the_rule_agree(baggage: bytes) -> None:
    entries = baggage.split(b",")
    marked = any(map(is_ours, entries))
    assert (re.fullmatch(PATTERN.encode(), baggage) is not None) == marked
    assert is_shadow(((b"baggage", baggage),)) == marked
    assert all(claims_ours(entry) for entry in entries if is_ours(entry))


@pytest.mark.parametrize("entry", [b"shadow", b"shadow=false", b"\tshadow ;p=1", b" shadow.run = other", b"shadow="])
def test_a_mark_is_known_by_its_key(entry: bytes) -> None:
    assert is_ours(entry)


@pytest.mark.parametrize("entry", [b"Shadow=1", b"shadows", b"a=shadow", b"a;shadow=1", b"shadow x=1", b"shadow-run=1"])
def test_other_keys_are_other_entries(entry: bytes) -> None:
    assert not is_ours(entry)
    assert not claims_ours(entry)


@pytest.mark.parametrize("entry", [b"%73hadow=1", b"shadow%2Erun=1", b"%20shadow=1", b"shadow+;p"])
def test_an_encoded_spelling_only_claims_to_be_one(entry: bytes) -> None:
    assert not is_ours(entry)
    assert claims_ours(entry)
