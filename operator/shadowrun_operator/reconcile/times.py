"""Instants as the resource writes them and as UTC seconds. Pure: reads no clock."""

from datetime import UTC, datetime

from shadowrun_operator.api.conditions import timestamp


def instant(seconds: float) -> datetime:
    """UTC seconds as an instant."""
    return datetime.fromtimestamp(seconds, UTC)


def written(seconds: float) -> str:
    """UTC seconds as the API server writes them, whole seconds."""
    return timestamp(instant(seconds))


def seconds(text: str) -> float:
    """UTC seconds of an RFC 3339 string; raises `ValueError`."""
    return datetime.fromisoformat(text).timestamp()


def length(seconds_: float) -> str:
    """A length of time for people: `90s`, `12m`, `1h30m`."""
    whole = round(seconds_)
    if whole < 120:
        return f"{whole}s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m"
