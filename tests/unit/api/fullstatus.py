"""A status with every list full and every string as long as it may be: the worst case for size and for pruning."""

from typing import Any

from shadowrun_operator.api.crd import structural
from shadowrun_operator.api.status import Status

TIME = "2026-11-30T12:00:00Z"


def full_status() -> Status:
    """Made from the schema, so that a new field is in it without anybody thinking of it."""
    return Status.model_validate(_filled(structural(Status), 0))


def _filled(schema: dict[str, Any], place: int) -> Any:
    """A value at the bounds of its schema; `place` makes the entries of a keyed list differ."""
    if "enum" in schema:
        choices = schema["enum"]
        return choices[place % len(choices)]
    kind = schema["type"]
    if kind == "object":
        return {name: _filled(field, place) for name, field in schema["properties"].items()}
    if kind == "array":
        return [_filled(schema["items"], number) for number in range(schema["maxItems"])]
    if kind == "string":
        return TIME if "T" in schema.get("pattern", "") else (chr(ord("a") + place % 26) * schema["maxLength"])
    return {"integer": schema.get("maximum"), "boolean": False}[kind]
