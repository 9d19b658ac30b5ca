"""Pairs and the primary's outcomes find each other, whichever comes first, in bounded memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.join import Outcome, OutcomeJoin, outcome_of, request_mark

pytestmark = pytest.mark.mirror


@pytest.mark.parametrize(
    ("status", "flags", "kind"),
    [
        (200, "-", "answered"),
        (204, "", "answered"),
        (302, "-", "answered"),
        (400, "-", "refused"),
        (429, "RL", "refused"),
        (500, "-", "failed"),
        (503, "UF,URX", "failed"),
        (0, "UC", "failed"),
        (0, "-", "failed"),
        (0, "DC", "cut"),
        (200, "DC", "cut"),
        (503, "UF,DC", "cut"),
        (200, "DCX", "answered"),
    ],
)
def test_what_became_of_the_original(status: int, flags: str, kind: str) -> None:
    assert outcome_of(status, flags, 0.5) == Outcome(kind=kind, first_byte_s=0.5)  # type: ignore[arg-type]


def test_no_request_id_is_kept_and_no_mark_stands_for_none() -> None:
    assert request_mark(b"a") == request_mark(b"a") != request_mark(b"b")
    assert 0 < request_mark(b"") < 2**64


OUTCOME = outcome_of(200, "-", None)
halves = st.lists(st.tuples(st.booleans(), st.integers(1, 30)), max_size=200)


@given(halves, st.integers(1, 8))
def test_both_sides_are_bounded_whatever_comes(run: list[tuple[bool, int]], bound: int) -> None:
    joined: OutcomeJoin[int] = OutcomeJoin(bound)
    for is_pair, mark in run:
        if is_pair:
            joined.pair(mark, mark)
        else:
            assert joined.outcome(mark, OUTCOME) in (None, mark)
        assert len(joined._pairs) <= bound
        assert len(joined._outcomes) <= bound
        assert not joined._pairs.keys() & joined._outcomes.keys()


@given(st.permutations([(side, mark) for side in ("pair", "outcome") for mark in range(1, 8)]))
def test_within_the_bound_every_two_halves_meet_once_in_any_order(order: list[tuple[str, int]]) -> None:
    joined: OutcomeJoin[int] = OutcomeJoin(8)
    met = []
    for side, mark in order:
        if side == "pair":
            met += [mark] if joined.pair(mark, mark) is not None else []
        else:
            met += [mark] if joined.outcome(mark, OUTCOME) is not None else []
    assert sorted(met) == list(range(1, 8))


def test_the_oldest_half_is_forgotten_first() -> None:
    joined: OutcomeJoin[str] = OutcomeJoin(2)
    for mark in (1, 2, 3):
        joined.pair(mark, str(mark))
    assert joined.outcome(1, OUTCOME) is None
    assert joined.outcome(2, OUTCOME) == "2"
    assert joined.outcome(2, OUTCOME) is None
