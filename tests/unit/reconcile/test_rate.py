"""The rate comes down to what the run is meant to select: never up, never for a burst, hardly below by chance."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shadowrun_mirror.evidence import Amount, ClassEvidence, Evidence, Source, Window
from shadowrun_operator.judge.facts import RateChange
from shadowrun_operator.reconcile.judging import stored_report
from shadowrun_operator.reconcile.rate import PERIOD_S, WHOLE, Pace, asked, paced, selected_count

from tests.unit.reconcile.world import World

pytestmark = pytest.mark.operator


def run_of(pairs_a_second: Callable[[float], float], target: float, minutes: int, seed: int = 1) -> Pace:
    """Looks every three seconds while so many pairs a second would be selected at the whole rate."""
    draw, pace, selected, now = random.Random(seed), Pace(), 0, 0.0
    for _ in range(minutes * 20):
        expected = 3 * pairs_a_second(now) * pace.share / WHOLE
        selected += sum(draw.random() < expected / 200 for _ in range(200))
        now += 3.0
        pace = paced(pace, selected, now, target)
    return pace


@pytest.mark.parametrize("seed", range(4))
def test_a_rate_ten_times_too_high_comes_down_to_the_target_and_not_below_it(seed: int) -> None:
    pace = run_of(lambda now: 20.0, 2.0, 40, seed)
    assert 0.095 * WHOLE <= pace.share <= 0.13 * WHOLE
    assert pace.changes[0].at <= 5 * PERIOD_S + 3


def test_a_rate_at_the_target_stays_whole() -> None:
    assert run_of(lambda now: 2.0, 2.0, 120).changes == ()


def test_a_burst_of_two_minutes_lowers_nothing() -> None:
    assert run_of(lambda now: 30.0 if 600 <= now < 720 else 1.0, 2.0, 30).changes == ()


def test_what_was_lowered_at_the_peak_stays_lowered() -> None:
    pace = run_of(lambda now: 8.0 if now < 1200 else 0.5, 2.0, 60)
    assert pace.share < 0.4 * WHOLE
    assert all(change.at < 1500 for change in pace.changes)


def test_without_a_target_nothing_is_remembered() -> None:
    assert paced(Pace(), 10**6, 60.0, None) == Pace()


@pytest.mark.parametrize(("selected", "now"), [(0, 70.0), (9000, 500.0)])
def test_a_period_that_says_nothing_begins_anew(selected: int, now: float) -> None:
    pace = Pace(marks=((0.0, 5), (5.0, 100)))
    assert paced(pace, selected, now, 1.0).marks == ((now, selected),)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(1, 200)), max_size=40), st.floats(0.001, 100))
def test_the_share_never_rises_and_every_change_is_kept(steps: list[tuple[int, float]], target: float) -> None:
    pace, selected, now = Pace(), 0, 0.0
    for more, seconds in steps:
        selected, now, before = selected + more, now + seconds, pace
        pace = paced(pace, selected, now, target)
        assert 1 <= pace.share <= before.share
        assert pace.changes[: len(before.changes)] == before.changes
        assert len(pace.marks) <= 5
    shares = [change.share for change in pace.changes]
    assert shares == sorted(set(shares), reverse=True)
    assert len(shares) <= 145  # a step below a tenth is not made, and no share is below a millionth


LOWERED = Pace(marks=((0.0, 5),), changes=(RateChange(at=1.0, share=200_000, rate=100_000),))
"""10 % in the spec, of which a fifth is copied."""


@pytest.mark.parametrize(("rate", "share"), [(10_000, WHOLE), (20_000, WHOLE), (50_000, 400_000), (200_000, 100_000)])
def test_another_rate_in_the_spec_copies_what_it_asks_for_and_never_more_than_before(rate: int, share: int) -> None:
    pace = asked(LOWERED, rate, 9.0)
    assert pace.changes == (*LOWERED.changes, RateChange(at=9.0, share=share, rate=rate))
    assert pace.marks == ()


@given(st.integers(1, WHOLE), st.integers(1, WHOLE), st.integers(1, WHOLE))
def test_what_is_copied_after_another_rate_is_the_lesser_of_both(before: int, share: int, rate: int) -> None:
    pace = asked(Pace(changes=(RateChange(at=1.0, share=share, rate=before),)), rate, 9.0)
    copied = rate * pace.share
    limit = rate * WHOLE if share == WHOLE else min(rate * WHOLE, before * share)
    assert copied <= max(limit, rate)
    assert copied > limit - 2 * rate


def test_a_rate_that_was_never_lowered_may_be_raised_and_the_same_rate_is_no_change() -> None:
    begun = asked(Pace(), 10_000, 1.0)
    assert begun.changes == (RateChange(at=1.0, share=WHOLE, rate=10_000),)
    assert asked(begun, 10_000, 2.0) is begun
    assert asked(begun, 90_000, 3.0).share == WHOLE


def test_a_change_of_the_rate_is_in_the_report_with_its_time() -> None:
    world = World.with_spec()
    world.until("Running")
    world.body["spec"]["sampling"]["rate"] = "20%"
    at = world.now
    world.until("Complete")
    report = stored_report(world.observe())
    assert report is not None
    assert [(c.rate, c.share) for c in report.facts.rates] == [(500_000, WHOLE), (200_000, WHOLE)]
    assert report.facts.rates[1].at == at
    assert report.circumstances.rates == report.facts.rates


def test_what_the_mirrors_excluded_was_not_selected() -> None:
    part = ClassEvidence(
        received=Amount(requests=10),
        excluded={"NotSelected": Amount(requests=4), "ModelNotListed": Amount(requests=1)},
        dropped={"Shed": Amount(requests=2)},
        admitted=Amount(requests=3),
    )
    evidence = Evidence(
        run_uid="run",
        source=Source(pod="m", pod_uid="u", epoch="e", sequence=1, time=0.0),
        config_version=1,
        copying=True,
        expired=False,
        windows={n: Window(id=n, classes={"default": part, "long": part}) for n in (0, 1)},
    )
    assert selected_count({"u/e": evidence}) == 20
