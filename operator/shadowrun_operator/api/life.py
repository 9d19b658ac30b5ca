"""Blocks of the spec about the life of a run: when it begins, at which hours it copies, what is kept after its end.

Bounds and rules only; the spec as a whole is in `spec`. This module must not decide anything.
"""

from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from shadowrun_operator.api.block import Block, rules
from shadowrun_operator.api.quantities import Duration


def _instant(value: str) -> str:
    """The value, once it is known to be a day and a time that exist; `ValueError` otherwise."""
    datetime.fromisoformat(value)
    return value


def _zone(value: str) -> str:
    """The value, once it is known to be a time zone; `ValueError` otherwise."""
    try:
        ZoneInfo(value)
    except (KeyError, OSError) as error:
        raise ValueError(f"{value!r} is not a time zone") from error
    return value


Instant = Annotated[
    str,
    StringConstraints(
        pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})$", max_length=25
    ),
    AfterValidator(_instant),
]
TimeOfDay = Annotated[str, StringConstraints(pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$", max_length=5)]
TimeZone = Annotated[
    str,
    StringConstraints(pattern="^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}$", min_length=1, max_length=64),
    AfterValidator(_zone),
]

_KEPT = "duration(self) > duration('0s') && duration(self) <= duration('24h')"


class DailyWindow(Block):
    """The hours of every day in which copies are made; outside them copying pauses, and the clock goes on."""

    model_config = ConfigDict(
        json_schema_extra=rules(("self.from != self.to", "dailyWindow needs two different times, from and to"))
    )

    begins: TimeOfDay = Field(alias="from")
    """Local time at which copying begins, such as 09:00."""
    ends: TimeOfDay = Field(alias="to")
    """Local time at which copying pauses; one before `from` is of the next day."""
    time_zone: TimeZone = Field(
        default="Etc/UTC",
        json_schema_extra=rules(
            ("timestamp('2000-01-01T00:00:00Z').getHours(self) >= 0", "timeZone is not the name of a time zone")
        ),
    )
    """Name of the time zone, such as Europe/Zurich."""


class Schedule(Block):
    """When a run may begin, and at which hours it copies."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            ("has(self.startTime) || has(self.dailyWindow)", "schedule needs startTime, dailyWindow or both")
        )
    )

    start_time: Instant | None = Field(
        default=None,
        json_schema_extra=rules(
            ("timestamp(self) > timestamp('2000-01-01T00:00:00Z')", "startTime is not an instant of a calendar")
        ),
    )
    """Instant before which nothing is created; startDeadline counts from here."""
    daily_window: DailyWindow | None = None
    """Hours of the day in which copies are made; the run begins in the first of them."""


class KeepArms(Block):
    """For debugging: arms that stay after the end, without copies."""

    length: Duration = Field(
        alias="for", json_schema_extra=rules((_KEPT, "keepArms.for must be above 0s and at most 24h"))
    )
    """How long after the end the arms stay."""
