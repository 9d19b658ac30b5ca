"""The status shows the reasons of drops that took the most requests; the report has them all."""

import msgspec
import pytest
from shadowrun_mirror.reasons import DropReason
from shadowrun_operator.api.status import MAX_DROPPED
from shadowrun_operator.judge.funnel import Count, funnel
from shadowrun_operator.judge.merge import merged
from shadowrun_operator.judge.summary import dropped_status

pytestmark = pytest.mark.verdict


def test_with_every_reason_at_once_the_smallest_are_left_out() -> None:
    dropped = {reason.value: Count(requests=n + 1, tokens=n) for n, reason in enumerate(DropReason)}
    shown = dropped_status(msgspec.structs.replace(funnel(merged((), ())), dropped=dropped))
    assert len(DropReason) > MAX_DROPPED, "else there would be nothing to leave out"
    assert len(shown) == MAX_DROPPED
    assert sorted(d.requests for d in shown) == list(range(len(DropReason) - MAX_DROPPED + 1, len(DropReason) + 1))
    assert [d.reason for d in shown] == [r for r in dropped if r in {d.reason for d in shown}], "in their usual order"


def test_of_equal_numbers_no_reason_is_shown_twice_and_none_too_many() -> None:
    dropped = {reason.value: Count(requests=5, tokens=1) for reason in DropReason}
    shown = dropped_status(msgspec.structs.replace(funnel(merged((), ())), dropped=dropped))
    assert len({d.reason for d in shown}) == len(shown) == MAX_DROPPED


def test_a_reason_without_a_request_is_not_shown() -> None:
    dropped = {"Shed": Count(requests=0), "Expired": Count(requests=2, tokens=3)}
    shown = dropped_status(msgspec.structs.replace(funnel(merged((), ())), dropped=dropped))
    assert [(d.reason, d.requests, d.tokens) for d in shown] == [("Expired", 2, 3)]
