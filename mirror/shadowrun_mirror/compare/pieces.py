"""Pieces: a JSON object that comes bit by bit, put together within a bound. Pure; holds what was said.

How a text was cut into pieces leaves no trace in what comes of them.
"""

from io import StringIO
from typing import Any

import msgspec

_SCALAR = 16
"""What a number, or a field by its name, is taken to hold, in bytes."""

Json = dict[str, Any]


class TooLongError(Exception):
    """There is more than the bound allows."""


class Pieces:
    """Puts together within `room` bytes; beyond that every method raises `TooLongError`."""

    def __init__(self, room: int) -> None:
        self._room = room

    def append(self, into: Json, name: str, text: str) -> None:
        """Append to a text, which begins where there was none."""
        known = into.get(name)
        if not isinstance(known, StringIO):
            known = into[name] = StringIO(newline="")
            self._take(_SCALAR)
        known.write(text)
        self._take(len(text.encode("utf-8", "surrogatepass")))

    def put(self, into: Json, name: str, value: Any) -> None:
        """Set a field to a whole value. Null says nothing, and what was said before is not taken back by it."""
        if value is None:
            return
        if name not in into:
            self._take(_SCALAR)
        if isinstance(value, (str, list, dict)):
            if not value:
                return
            if into.get(name) != value:
                self._take(_size(value))
        into[name] = value

    def add(self, into: Json, name: str, member: Any) -> None:
        """Append to a list, which begins where there was none."""
        into.setdefault(name, []).append(member)
        self._take(_size(member))

    def member(self, into: Json, name: str, index: int) -> Json:
        """The object with this index in a list, which is in their order; a new one where there was none."""
        members: list[Json] = into.setdefault(name, [])
        place = len(members)
        while place and members[place - 1]["index"] > index:
            place -= 1
        if not place or members[place - 1]["index"] != index:
            members.insert(place, {"index": index})
            self._take(2 * _SCALAR)
            return members[place]
        return members[place - 1]

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise TooLongError


def put_together(value: Any) -> Any:
    """The whole, with texts as texts."""
    if isinstance(value, StringIO):
        return value.getvalue()
    if isinstance(value, dict):
        return {name: put_together(field) for name, field in value.items()}
    if isinstance(value, list):
        return [put_together(member) for member in value]
    return value


def by_index(members: Any) -> Any:
    """A list whose members say their place, in that order; anything else as it is."""
    if not isinstance(members, list) or not all(isinstance(m, dict) and type(m.get("index")) is int for m in members):
        return members
    return sorted(members, key=lambda member: int(member["index"]))


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))
