"""The lease: copying needs a fresh confirmation, never outlives the expiry, and never goes back to an older version."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.capture.lease import Instant, Standing, boot_lease
from shadowrun_mirror.config import CaptureRules, Sampling
from shadowrun_mirror.directive import CaptureDirective

pytestmark = pytest.mark.path

START = Instant(wall=1_000_000.0, monotonic=50.0)


def told(
    version: int = 1, *, copying: bool = True, expiry: float = START.wall + 3600, uid: str = "u"
) -> CaptureDirective:
    sampling = Sampling(unit="Request", threshold=0, seed=1)
    rules = CaptureRules(paths=("/x",), max_body_bytes=1, sampling=sampling)
    return CaptureDirective(
        version=version, run_uid=uid, window=version, copying=copying, expiry=expiry, lease_s=10.0, rules=rules
    )


def after(seconds: float, wall_jump: float = 0.0) -> Instant:
    return Instant(wall=START.wall + seconds + wall_jump, monotonic=START.monotonic + seconds)


def test_a_companion_starts_without_copying_even_from_a_boot_file_that_says_copy() -> None:
    assert boot_lease(told(copying=False), START).standing(START) == Standing.NOT_ASKED
    assert boot_lease(told(), START).standing(START) == Standing.NO_LEASE


def test_a_confirmation_lasts_for_the_lease_and_no_longer() -> None:
    lease = boot_lease(told(copying=False), START).renewed(told(2), after(5))
    assert lease.standing(after(14.9)) == Standing.COPYING
    assert lease.standing(after(15)) == Standing.NO_LEASE
    assert lease.renewed(told(2), after(16)).standing(after(17)) == Standing.COPYING


def test_a_directive_that_says_no_stops_at_once() -> None:
    lease = boot_lease(told(), START).renewed(told(2), after(1)).renewed(told(3, copying=False), after(2))
    assert lease.standing(after(2)) == Standing.NOT_ASKED


@pytest.mark.parametrize("answer", [told(1), told(9, uid="another run")])
def test_an_older_version_or_another_run_neither_changes_nor_renews(answer: CaptureDirective) -> None:
    lease = boot_lease(told(copying=False), START).renewed(told(2), after(1))
    assert lease.renewed(answer, after(9)) == lease
    assert lease.renewed(answer, after(9)).standing(after(11)) == Standing.NO_LEASE


def test_the_expiry_holds_on_the_wall_clock() -> None:
    lease = boot_lease(told(), START).renewed(told(expiry=START.wall + 5), START)
    assert lease.standing(after(4.9)) == Standing.COPYING
    assert lease.standing(after(5)) == Standing.EXPIRED
    assert lease.standing(after(1, wall_jump=5)) == Standing.EXPIRED


def test_the_expiry_holds_when_the_wall_clock_is_set_back_however_often_it_is_confirmed() -> None:
    answer = told(expiry=START.wall + 5)
    lease = boot_lease(answer, START)
    for second in range(5):
        lease = lease.renewed(answer, after(second, wall_jump=-1000.0 * second))
        assert lease.standing(after(second, wall_jump=-1000.0 * second)) == Standing.COPYING
    assert lease.standing(after(5, wall_jump=-5000)) == Standing.EXPIRED


@given(st.floats(-500, 500), st.floats(-500, 500))
def test_copying_ends_by_whichever_clock_is_first_the_mirror_s_or_capture_s(mirror: float, capture: float) -> None:
    """Each is so much ahead of the true time; nobody else is there to end the run."""
    answer, step = told(expiry=START.wall + 600), 4.0
    lease, last = boot_lease(answer, after(0, wall_jump=capture)), 0.0
    for second in (step * i for i in range(300)):
        now = after(second, wall_jump=capture)
        over = START.wall + second + mirror >= answer.expiry
        lease = lease.renewed(msgspec.structs.replace(answer, copying=not over), now)
        if lease.standing(now) == Standing.COPYING:
            last = second
    assert 600 - max(mirror, capture) - 2 * step <= last <= 600 - max(mirror, capture)


@given(
    st.lists(st.tuples(st.floats(0, 30), st.floats(-10_000, 10_000), st.floats(-100, 100)), max_size=20),
    st.floats(1, 500),
)
def test_no_jump_of_the_wall_clock_ever_lengthens_the_end(
    story: list[tuple[float, float, float]], first_s: float
) -> None:
    """By true time, which the monotonic clock keeps: an end may only be moved by as much as its directive moves it."""
    expiry, now = START.wall + first_s, 0.0
    lease = boot_lease(told(1, expiry=expiry), START)
    for passed, jump, moved in story:
        now += passed
        expiry += moved
        lease = lease.renewed(told(2, expiry=expiry), after(now, wall_jump=jump))
        left = expiry - (START.wall + now)
        assert lease.ends - (START.monotonic + now) <= left + 1e-3
        late = Instant(wall=0.0, monotonic=START.monotonic + now + left + 1e-3)
        assert lease.standing(late) == Standing.EXPIRED


def test_an_expired_lease_outranks_a_fresh_confirmation() -> None:
    lease = boot_lease(told(expiry=START.wall), START).renewed(told(2, expiry=START.wall), after(1))
    assert lease.standing(after(1)) == Standing.EXPIRED


steps = st.lists(
    st.tuples(st.floats(0, 30), st.integers(0, 6), st.booleans(), st.sampled_from(["u", "v"]), st.booleans()),
    max_size=30,
)


@given(steps)
def test_whatever_happens_copying_means_a_recent_confirmation_of_the_highest_version(
    story: list[tuple[float, int, bool, str, bool]],
) -> None:
    lease, now = boot_lease(told(0, copying=False, expiry=START.wall + 200), START), 0.0
    confirmed: list[tuple[float, CaptureDirective]] = []
    for passed, version, copying, uid, heard in story:
        now += passed
        if heard:
            answer = told(version, copying=copying, expiry=START.wall + 200, uid=uid)
            if uid == "u" and version >= lease.directive.version:
                confirmed.append((now, answer))
            before = lease.directive.version
            lease = lease.renewed(answer, after(now))
            assert lease.directive.version >= before
        if lease.standing(after(now)) == Standing.COPYING:
            when, what = confirmed[-1]
            assert now - when < 10.0
            assert what == lease.directive
            assert what.copying
            assert now < 200


def test_a_higher_version_may_move_the_expiry() -> None:
    lease = boot_lease(told(expiry=START.wall + 100), START)
    shorter = lease.renewed(msgspec.structs.replace(told(2), expiry=START.wall + 20), after(10))
    assert shorter.renewed(shorter.directive, after(19)).standing(after(20)) == Standing.EXPIRED
    assert replace(shorter, directive=told(2, expiry=1e12)).standing(after(20)) == Standing.EXPIRED
