"""Moments at which the process was too busy, whichever way that showed."""

import asyncio
import gc
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.lag import BUSY_OVER_S, PROBE_S, LoopLag

pytestmark = pytest.mark.mirror


class Times:
    """A clock and a CPU clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cpu = 0.0

    def lag(self, limit_s: float = 0.005) -> LoopLag:
        return LoopLag(lambda: limit_s, lambda: self.now, lambda: self.cpu)


@pytest.mark.parametrize(("late", "is_late"), [(0.0, False), (0.0049, False), (0.0051, True), (3.0, True)])
def test_a_stamp_is_late_when_a_probe_was_later_than_the_limit_then(late: float, is_late: bool) -> None:
    times = Times()
    lag = times.lag()
    times.now += late
    lag.probed(100.0, times.now)
    assert lag.late_at([]) == is_late, "now"
    times.now += 10.0
    for stamp in (100.0 - PROBE_S, 100.0, 100.0 + late, 100.0 + late + 0.005 + PROBE_S):
        assert lag.late_at([99.0, stamp, 105.0]) == is_late
    before, after = 100.0 - 1.1 * PROBE_S, 100.0 + late + 0.005 + 1.1 * PROBE_S
    assert not lag.late_at([before, after]), "one that lives through a late time is not wrong for that"
    assert not lag.late_at([])
    assert lag.histogram.count == 1
    assert lag.p50_and_max() == pytest.approx((late, late))


def test_a_probe_before_its_time_is_no_lag() -> None:
    lag = Times().lag()
    lag.probed(100.0, 99.0)
    assert lag.p50_and_max() == (0.0, 0.0)
    assert lag.histogram.total == 0.0


@given(
    late=st.lists(st.tuples(st.floats(0.0, 50.0), st.floats(0.006, 5.0)), max_size=30),
    stamps=st.lists(st.floats(0.0, 60.0), max_size=6),
)
def test_stamps_are_late_in_or_next_to_a_late_time_and_nowhere_else(
    late: list[tuple[float, float]], stamps: list[float]
) -> None:
    times = Times()
    lag = times.lag()
    ordered = sorted(late, key=sum)
    for due, by in ordered:
        lag.probed(due, due + by)
    times.now = 100.0
    assert lag.late_at(stamps) == any(
        due - PROBE_S <= stamp <= due + by + 0.005 + PROBE_S for due, by in ordered for stamp in stamps
    )


def test_more_late_times_than_are_kept_leave_nothing_unflagged() -> None:
    times = Times()
    lag = times.lag()
    for n in range(3000):
        lag.probed(float(n), n + 0.1)
    times.now = 4000.0
    assert lag.late_at([1000.5])
    assert lag.late_at([2999.05])
    assert not lag.late_at([2998.5])
    assert len(lag._late) == 1000


@pytest.mark.parametrize(("share", "is_late"), [(0.5, False), (0.79, False), (0.85, True), (2.0, True)])
def test_stamps_are_late_while_the_share_of_the_core_is_above_the_limit(share: float, is_late: bool) -> None:
    times = Times()
    lag = times.lag()
    while times.now < 100.0 + 2 * BUSY_OVER_S:
        lag.probed(times.now, times.now)
        times.now += PROBE_S
        times.cpu += share * PROBE_S
    assert lag.cpu_share == pytest.approx(share, rel=0.02)
    assert lag.late_at([]) == is_late
    for _ in range(int(4 * BUSY_OVER_S / PROBE_S)):  # calm again
        lag.probed(times.now, times.now)
        times.now += PROBE_S
    assert lag.late_at([100.0 + BUSY_OVER_S]) == is_late
    assert not lag.late_at([])


@pytest.mark.parametrize("lasted", [0.0, PROBE_S, 3 * PROBE_S, 30 * PROBE_S])
def test_of_a_busy_time_everything_is_flagged_and_of_a_calm_one_nothing(lasted: float) -> None:
    """Also what begins and ends between two samples of the share."""
    times = Times()
    lag = times.lag()
    busy, calm = (100.0 + BUSY_OVER_S, 100.0 + 4 * BUSY_OVER_S), 100.0 + 8 * BUSY_OVER_S
    settled = 1.3 * BUSY_OVER_S  # then the share is of nothing but what is now
    while times.now < calm:
        lag.probed(times.now, times.now)
        flagged = lag.late_at([times.now - lasted])
        if busy[0] + settled < times.now < busy[1]:
            assert flagged
        if times.now < busy[0] or times.now - lasted > busy[1] + settled:
            assert not flagged
        times.now += PROBE_S
        times.cpu += PROBE_S * (0.9 if busy[0] <= times.now < busy[1] else 0.1)


def test_the_share_is_of_the_last_half_second_only() -> None:
    times = Times()
    lag = times.lag()
    for busy in (True, False):
        for _ in range(int(2 * BUSY_OVER_S / PROBE_S)):
            lag.probed(times.now, times.now)
            times.now += PROBE_S
            times.cpu += PROBE_S if busy else 0.0
    assert lag.cpu_share == 0.0


async def test_a_stalled_loop_is_seen_by_the_probe_even_before_it_runs() -> None:
    lag = LoopLag(lambda: 0.02)
    watch = asyncio.create_task(lag.watch())
    await asyncio.sleep(0.05)
    started = time.monotonic()
    time.sleep(0.05)  # noqa: ASYNC251 - the stall
    assert lag.late_at([])
    await asyncio.sleep(0.02)
    assert lag.late_at([started])
    assert lag.late_at([started + 0.04])
    assert lag.p50_and_max()[1] >= 0.03
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    assert lag._due == math.inf


async def test_pauses_of_the_collector_count_and_the_callback_goes_with_the_watch() -> None:
    lag = LoopLag(lambda: -1.0)  # any pause is over it
    before = len(gc.callbacks)
    watch = asyncio.create_task(lag.watch())
    await asyncio.sleep(0)
    started = time.monotonic()
    gc.collect()
    assert len(gc.callbacks) == before + 1
    assert lag.collector_s > 0
    assert lag.late_at([started])
    pauses = lag.histogram.count
    await asyncio.sleep(5 * PROBE_S)
    assert lag.histogram.count > pauses
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    assert len(gc.callbacks) == before
