"""Sums by blocks of time: mergeable, bounded, exact."""

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.blocks import MAX_BLOCKS, STEPS, BlockSeries, weight_of

from tests.unit.evidence.evidences import pair_lists, series, weighed_series

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


@given(weighed_series(), weighed_series(), weighed_series(), st.integers(0, 4))
def test_merging_weighed_series_is_associative_and_commutative(
    a: BlockSeries, b: BlockSeries, c: BlockSeries, level: int
) -> None:
    one = a.at_level(level)
    assert one.merged(b) == b.merged(one)
    assert one.merged(b).merged(c) == one.merged(b.merged(c))
    assert one.merged(b).pairs == a.pairs + b.pairs
    assert one.merged(BlockSeries()) == one


@given(st.lists(st.tuples(st.integers(0, 3000), st.sampled_from((-1, 0, 1)), st.integers(1, STEPS)), max_size=40))
def test_weights_are_summed_exactly_in_any_order(pairs: list[tuple[int, int, int]]) -> None:
    one, other = BlockSeries(), BlockSeries()
    for (at, z, weight), series_of_it in [*((p, one) for p in pairs), *((p, other) for p in reversed(pairs))]:
        series_of_it.add_weighed(at, z, weight, 1)
    assert one == other
    assert (one.weight, one.pairs) == (sum(w for _, _, w in pairs), len(pairs))
    assert sums(one) == (sum(w for _, _, w in pairs), sum(w * z for _, z, w in pairs))
    assert msgspec.json.decode(msgspec.json.encode(one), type=BlockSeries) == one
    if pairs:
        assert (one.weighed, one.even) == (len(pairs), one.weight)
    assert one.differing == sum(w for _, z, w in pairs if z)
    assert one.squares == sum(w * w for _, z, w in pairs if z)


def test_a_weight_grows_with_the_size_up_to_the_heaviest() -> None:
    assert [weight_of(size, 20_000) for size in (0, 1, 20, 21, 10_000, 20_000, 20_001, 10**9)] == [
        1, 1, 1, 2, 500, STEPS, STEPS, STEPS
    ]  # fmt: skip


def test_only_weighed_series_keep_more_than_sums() -> None:
    plain, weighed = series([(3, 1)]), BlockSeries()
    weighed.add_weighed(3, 0, 7, 0)
    assert msgspec.json.encode(plain) == b'{"sums":{"3":[1,1]}}'
    assert msgspec.json.encode(weighed) == b'{"sums":{"3":[7,0]},"weighed":1}'
