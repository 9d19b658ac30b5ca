"""When an arm is left alone, and when it is tried again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.breaker import MAX_WAIT_S, Breaker
from shadowrun_mirror.reasons import FailureReason

pytestmark = pytest.mark.mirror

COUNTED = list(FailureReason)
"""Any failure before a head below 500, whatever its name."""


def opened(at: float = 0.0, failures: int = 3) -> Breaker:
    breaker = Breaker(failures=failures, first_wait_s=1.0)
    for _ in range(failures):
        assert breaker.allows(at)
        breaker.ended(FailureReason.CONNECT, at)
    return breaker


@pytest.mark.parametrize("failure", COUNTED)
def test_it_opens_after_so_many_failures_in_a_row(failure: FailureReason) -> None:
    breaker = Breaker(failures=3)
    for _ in range(3):
        assert breaker.allows(0.0)
        breaker.ended(failure, 0.0)
    assert breaker.state == "open"
    assert not breaker.allows(0.0)


@pytest.mark.parametrize("completed", [True, False])
def test_a_head_or_a_completed_answer_begins_the_row_anew(completed: bool) -> None:
    breaker = Breaker(failures=3)
    for _ in range(2):
        for failure in COUNTED[:2]:
            breaker.ended(failure, 0.0)
        if completed:
            breaker.ended(None, 0.0)
        else:
            breaker.answered()
    assert breaker.state == "closed"


def test_the_head_of_the_probes_answer_closes_it_though_the_answer_takes_long() -> None:
    breaker = opened(at=0.0)
    assert breaker.allows(1.0)
    breaker.answered()
    assert [breaker.allows(1.0), breaker.allows(1.0)] == [True, True]


def test_after_the_wait_one_request_and_no_other_is_the_probe() -> None:
    breaker = opened(at=10.0)
    assert not breaker.allows(10.99)
    assert [breaker.allows(11.0), breaker.allows(11.0), breaker.allows(99.0)] == [True, False, False]


def test_a_probe_that_is_answered_closes_it_and_the_next_wait_is_short_again() -> None:
    breaker = opened(at=0.0, failures=1)
    assert breaker.allows(1.0)
    breaker.ended(FailureReason.TIMEOUT, 1.0)
    assert breaker.allows(3.0)
    breaker.ended(None, 3.0)
    assert breaker.allows(3.0)
    breaker.ended(FailureReason.TIMEOUT, 4.0)
    assert not breaker.allows(4.9)
    assert breaker.allows(5.0)


def test_the_wait_doubles_with_every_failed_probe_up_to_a_bound() -> None:
    breaker, now, waits = opened(at=0.0), 0.0, []
    for _ in range(8):
        started = now
        while not breaker.allows(now):
            now += 0.25
        waits.append(now - started)
        breaker.ended(FailureReason.CONNECT, now)
    assert waits == [1, 2, 4, 8, 16, MAX_WAIT_S, MAX_WAIT_S, MAX_WAIT_S]


def test_requests_sent_before_it_opened_say_nothing_new_when_they_fail_but_close_it_when_answered() -> None:
    breaker = opened(at=0.0)
    for _ in range(10):
        breaker.ended(FailureReason.TIMEOUT, 0.5)
    assert breaker.state == "open"
    assert breaker.allows(1.0)
    again = opened(at=0.0)
    again.ended(None, 0.5)
    assert again.allows(0.5)


def test_a_probe_given_up_without_an_outcome_leaves_room_for_the_next() -> None:
    breaker = opened(at=0.0)
    assert breaker.allows(1.0)
    breaker.unused(1.5)
    assert breaker.allows(1.5)
    closed = Breaker()
    closed.unused(0.0)
    assert closed.allows(0.0)


steps = st.lists(st.tuples(st.floats(0, 5), st.sampled_from([*COUNTED, *COUNTED, None])), max_size=200)


@given(steps)
def test_an_arm_is_never_left_alone_for_longer_than_the_bound(run: list[tuple[float, FailureReason | None]]) -> None:
    """Each step: time passes, and if a request may be sent it is, and ends at once."""
    breaker, now, sent_at = Breaker(failures=2), 0.0, 0.0
    for passed, outcome in run:
        now += passed
        if breaker.allows(now):
            breaker.ended(outcome, now)
            sent_at = now
        assert now - sent_at < MAX_WAIT_S + 5


@given(steps)
def test_while_answers_come_it_never_opens(run: list[tuple[float, FailureReason | None]]) -> None:
    breaker, now = Breaker(failures=2), 0.0
    for passed, outcome in run:
        now += passed
        assert breaker.allows(now)
        breaker.ended(outcome, now)
        breaker.ended(None, now)
