"""When a run may begin and at which hours it copies, as `spec.schedule` says. Pure; instants are UTC seconds.

A daily window is a span of local time on each day of a calendar. On the day on which clocks are changed it is as much
longer or shorter as the day is; a time that such a day does not have stands for the one an hour later.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from shadowrun_operator.api.conditions import Reason
from shadowrun_operator.api.life import DailyWindow
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.observation import Observation

LONGEST_S = 7 * 86400.0
"""A start deadline in hours of a daily window is never further away on the wall."""


@dataclass(frozen=True)
class Pause:
    """Why nothing is copied for now although the run goes on."""

    reason: Reason
    message: str


def pause(spec: Spec, now: float) -> Pause | None:
    """Whether copying is paused: by hand, or because the hour is not one of the daily window."""
    if spec.suspend:
        return Pause(Reason.SUSPENDED, "Copying is paused by spec.suspend")
    window = _window(spec)
    if window is None:
        return None
    begins, _ = _span(window, now)
    if begins <= now:
        return None
    return Pause(Reason.OUTSIDE_WINDOW, f"Copying is paused until {times.written(begins)} by {_said(window)}")


def copy_until(spec: Spec, now: float) -> float | None:
    """When copying that goes on now has to pause; None where no window says so."""
    window = _window(spec)
    return None if window is None else _span(window, now)[1]


def changes(spec: Spec, now: float) -> list[float]:
    """The instants ahead at which the daily window opens or closes next."""
    window = _window(spec)
    return [] if window is None else [at for at in _span(window, now) if at > now]


def waits_until(spec: Spec, now: float) -> float | None:
    """When a run may begin; None where it may now."""
    begins = max(now, _start_time(spec) or now)
    window = _window(spec)
    if window is not None:
        begins = max(begins, _span(window, begins)[0])
    return begins if begins > now else None


def start_deadline(seen: Observation) -> float:
    """Until when a first pair must be counted: `startDeadline` after the creation, or after a later `startTime`.

    With a daily window only its hours count, so that a run which begins late on one day has the next one too; but no
    more than `LONGEST_S`, so that a window of minutes does not let it wait, and its arms stand, for years.
    """
    created, spec = seen.run.metadata.creation_timestamp, seen.run.spec
    since = times.seconds(created) if created else seen.now
    return deadline_after(spec, max(since, _start_time(spec) or since))


def deadline_after(spec: Spec, since: float) -> float:
    """When `startDeadline` has passed since then, in hours of the daily window where there is one."""
    window, left = _window(spec), float(spec.start_deadline.seconds)
    if window is None:
        return since + left
    latest = since + LONGEST_S
    for begins, ends in _spans(window, since):
        begins = max(begins, since)
        if begins >= latest:
            break
        if left <= ends - begins:
            return min(begins + left, latest)
        left -= ends - begins
    return latest


def _start_time(spec: Spec) -> float | None:
    text = spec.schedule.start_time if spec.schedule else None
    return None if text is None else times.seconds(text)


def _window(spec: Spec) -> DailyWindow | None:
    return spec.schedule.daily_window if spec.schedule else None


def _span(window: DailyWindow, now: float) -> tuple[float, float]:
    """Begin and end of the window that is open now, or else of the next one."""
    return next(_spans(window, now))


def _spans(window: DailyWindow, now: float) -> Iterator[tuple[float, float]]:
    """All that end after `now`, one after another."""
    zone = ZoneInfo(window.time_zone)
    begins, ends = time.fromisoformat(window.begins), time.fromisoformat(window.ends)
    over_midnight = timedelta(days=0 if begins < ends else 1)
    day = times.instant(now).astimezone(zone).date() - timedelta(days=1)
    while True:
        span = _at(day, begins, zone), _at(day + over_midnight, ends, zone)
        if span[1] > now:
            yield span
        day += timedelta(days=1)


def _at(day: date, clock: time, zone: ZoneInfo) -> float:
    return datetime.combine(day, clock, zone).timestamp()


def _said(window: DailyWindow) -> str:
    return f"spec.schedule.dailyWindow ({window.begins} to {window.ends}, {window.time_zone})"
