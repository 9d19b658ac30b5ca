"""What was selected and never measured could have been anything: the bounds say how much that matters."""

import pytest
from shadowrun_mirror.evidence import Amount
from shadowrun_operator.judge.missing import WorstCase

from tests.unit.judge.synthetic import faster, judged, recorded

pytestmark = pytest.mark.verdict


def worst(shed: int, oversized: int = 0) -> dict[str, WorstCase]:
    recorder = recorded(candidate=faster)
    recorder.drop(1, "Shed", shed)
    report = judged(recorder, oversized=Amount(requests=oversized, bytes=100_000 * oversized))
    return {w.criterion: w for w in report.worst_cases}


def test_with_nothing_missing_the_bounds_are_the_mean_itself() -> None:
    for found in worst(0).values():
        assert (found.missing, found.share) == (0, 0.0)
        assert found.low == found.high
        assert found.holds


def test_every_missing_request_may_have_been_lost_or_won() -> None:
    (found, *_) = worst(150).values()
    assert (found.missing, found.selected, found.share) == (150, 750, 0.2)
    mean = (found.low + found.high) / 2 / 0.8
    assert found.low == pytest.approx(0.8 * mean - 0.2)
    assert found.high == pytest.approx(0.8 * mean + 0.2)


def test_what_was_too_large_is_missing_too() -> None:
    (found, *_) = worst(0, oversized=200).values()
    assert (found.missing, found.selected) == (200, 800)


def test_a_criterion_that_passed_need_not_hold_at_worst() -> None:
    assert [w.holds for w in worst(600).values()] == [False] * 4
    assert worst(40)["faster"].holds
