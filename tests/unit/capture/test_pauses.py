"""Pauses follow from the seed and the clock alone, in the share that was asked for."""

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.capture.pauses import is_paused, seconds_to_next_slot
from shadowrun_mirror.config import MODULO, Pauses

pytestmark = pytest.mark.path

NOW = 1_796_000_000.0


@given(st.integers(0, 2**64 - 1), st.integers(0, MODULO), st.integers(1, 600), st.floats(0, 4e9))
def test_a_slot_is_paused_by_the_hash_of_its_number(seed: int, share: int, slot_s: int, utc: float) -> None:
    expected = xxhash.xxh64_intdigest(str(int(utc // slot_s)).encode(), seed) % MODULO < share
    assert is_paused(Pauses(share=share, slot_s=slot_s), seed, utc) == expected


@given(st.integers(1, 600), st.integers(0, 2**35).map(lambda eighths: eighths / 8), st.floats(0, 0.99))
def test_the_answer_holds_until_the_next_slot(slot_s: int, utc: float, part: float) -> None:
    pauses = Pauses(share=MODULO // 2, slot_s=slot_s)
    left = seconds_to_next_slot(pauses, utc)
    assert 0 < left <= slot_s
    assert is_paused(pauses, 7, utc) == is_paused(pauses, 7, utc + part * left)


def test_the_share_is_kept_and_another_seed_pauses_at_other_times() -> None:
    pauses = Pauses(share=MODULO // 10, slot_s=10)
    drawn = [[is_paused(pauses, seed, NOW + 10 * slot) for slot in range(20_000)] for seed in (1, 2)]
    for each in drawn:
        assert 0.09 < sum(each) / len(each) < 0.11
    both = sum(one and two for one, two in zip(*drawn, strict=True))
    assert both / 20_000 < 0.02


def test_all_of_the_time_none_of_it_and_no_pauses_at_all() -> None:
    assert all(is_paused(Pauses(share=MODULO, slot_s=1), 3, NOW + slot) for slot in range(1000))
    assert not any(is_paused(Pauses(share=0, slot_s=1), 3, NOW + slot) for slot in range(1000))
    assert not is_paused(None, 3, NOW)
    assert seconds_to_next_slot(None, NOW) == float("inf")
