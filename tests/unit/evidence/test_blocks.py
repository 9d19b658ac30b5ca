"""Sums by blocks of time: mergeable, bounded, exact."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.blocks import MAX_BLOCKS, BlockSeries

from tests.unit.evidence.evidences import pair_lists, series

pytestmark = pytest.mark.verdict

Pairs = list[tuple[int, int]]


def sums(found: BlockSeries) -> tuple[int, int]:
    return sum(n for n, _ in found.sums.values()), sum(s for _, s in found.sums.values())


@given(pair_lists, pair_lists, pair_lists)
def test_merging_is_associative_and_commutative(a: Pairs, b: Pairs, c: Pairs) -> None:
    one, two, three = series(a), series(b), series(c)
    assert one.merged(two) == two.merged(one)
    assert one.merged(two).merged(three) == one.merged(two.merged(three))


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4), pair_lists, pair_lists, pair_lists)
def test_merging_series_of_different_levels_does_not_depend_on_the_order(
    i: int, j: int, k: int, a: Pairs, b: Pairs, c: Pairs
) -> None:
    one, two, three = series(a).at_level(i), series(b).at_level(j), series(c).at_level(k)
    assert one.merged(two) == two.merged(one)
    assert one.merged(two).merged(three) == one.merged(two.merged(three))


def test_merging_is_associative_where_the_bound_on_blocks_bites() -> None:
    one, two, three = (series([(i, 1) for i in range(k, 3 * MAX_BLOCKS, 4)]) for k in (0, 1, 2))
    assert one.merged(two).merged(three) == one.merged(two.merged(three)) == three.merged(one).merged(two)
    assert one.merged(two).merged(three).level > 0


@given(pair_lists, st.randoms(use_true_random=False))
def test_the_order_of_pairs_does_not_matter(pairs: Pairs, draw: Random) -> None:
    shuffled = list(pairs)
    draw.shuffle(shuffled)
    assert series(shuffled) == series(pairs)


@given(pair_lists, pair_lists)
def test_two_replicas_together_are_one_that_saw_everything(a: Pairs, b: Pairs) -> None:
    assert series(a).merged(series(b)) == series(a + b)


@given(pair_lists, st.integers(0, 14))
def test_coarser_blocks_keep_the_sums(pairs: Pairs, level: int) -> None:
    found = series(pairs)
    coarse = found.at_level(level)
    assert sums(coarse) == sums(found) == (len(pairs), sum(z for _, z in pairs))
    assert coarse.level == level
    assert set(coarse.sums) == {i >> level for i in found.sums}


@pytest.mark.parametrize("gap", [1, 2, 3600, 2**20])
def test_blocks_stay_bounded_however_long_and_sparse_a_run_is(gap: int) -> None:
    ids = [i * gap for i in range(2 * MAX_BLOCKS + 100)]
    whole = BlockSeries()
    for base_id in ids:
        whole.add(base_id, 1)
        assert len(whole.sums) <= MAX_BLOCKS
    assert sums(whole) == (len(ids), len(ids))


@given(st.sets(st.integers(0, 40), min_size=1), st.integers(1, 9), st.randoms(use_true_random=False))
def test_the_order_of_pairs_does_not_matter_where_the_bound_bites(odd: set[int], gap: int, draw: Random) -> None:
    pairs = [(i * gap, 1) for i in range(MAX_BLOCKS + 40) if i not in odd]
    shuffled = list(pairs)
    draw.shuffle(shuffled)
    parts = series(shuffled[::2]), series(shuffled[1::2])
    assert series(shuffled) == series(pairs) == parts[0].merged(parts[1])


def test_a_level_finer_than_kept_is_the_kept_one() -> None:
    found = series([(8, 1), (9, -1)]).at_level(2)
    assert found.at_level(0) == found
