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
