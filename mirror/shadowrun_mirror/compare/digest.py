"""Digest: what is kept of an answer once it has ended, to be compared: types, lengths and keyed hashes. Pure.

The key is drawn when the process starts and is nowhere but here, so a digest says nothing to anybody else. Names of
fields are hashed too: in a text that is JSON they are content.

Outside of such texts a field that is null or empty is as good as one that is not there: engines differ in that, and so
do streams from answers in one piece. Inside of them null is a value.
"""

import hashlib
import secrets
from array import array
from collections.abc import Iterable
from typing import Any

import msgspec

from shadowrun_mirror.compare.paths import Paths

MAX_PARTS = 1024
"""Most values of an answer that is compared; `_NUMBERS` of a list of them are one. So many take three to five
milliseconds, in which no other answer is read: no more than the least lag for which a pair is flagged."""
_NUMBERS = 16

_KEY = secrets.token_bytes(32)
_WHOLE = 2**53
_NOTHING: Paths = {}


class Digest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Of one value: its type, its length and a hash of it; of an object its fields, of a list its members.

    `bag` is set for a list of numbers, which has no members here: its hash whatever their order.
    """

    kind: str
    length: int
    mark: bytes
    fields: dict[bytes, "Digest"] = {}
    members: tuple["Digest", ...] = ()
    bag: bytes = b""


class TooManyPartsError(Exception):
    """An answer has more values than are compared."""


def digest(answer: Any, left_out: Paths, ordered: bool) -> Digest:
    """The digest of a decoded answer. Raises `TooManyPartsError`, and `RecursionError` for one that is too deep.

    `ordered`: the order inside lists matters.
    """
    return _Maker(ordered).made(answer, left_out, outside=True)


class _Maker:
    """Makes the digest of one answer. `outside`: not inside a text that is JSON."""

    def __init__(self, ordered: bool) -> None:
        self._ordered = ordered
        self._left = MAX_PARTS

    def made(self, value: Any, left_out: Paths, *, outside: bool) -> Digest:
        self._left -= 1
        if self._left < 0:
            raise TooManyPartsError
        if isinstance(value, dict):
            return self._object(value, left_out, outside)
        if isinstance(value, list):
            return self._list(value, left_out, outside)
        if isinstance(value, str):
            inside = _json_in(value) if outside else None
            return _text(value) if inside is None else self.made(inside, left_out, outside=False)
        return _scalar(value)

    def _object(self, value: dict[str, Any], left_out: Paths, outside: bool) -> Digest:
        fields = {}
        for name, field in value.items():
            below = left_out.get(name, _NOTHING)
            if below is not None and not (outside and _is_nothing(field)):
                made = self.made(field, below, outside=outside)
                if not (outside and made.kind == "object" and not made.fields):  # all of it was left out
                    fields[_hash(b"name", _bytes(name))] = made
        marks = sorted(name + field.mark for name, field in fields.items())
        return Digest(kind="object", length=len(fields), mark=_hash(b"object", *marks), fields=fields)

    def _list(self, value: list[Any], left_out: Paths, outside: bool) -> Digest:
        if all(type(member) in (int, float) for member in value):
            try:
                numbers = array("d", [number + 0.0 for number in value])  # no -0.0
            except OverflowError:
                pass  # a whole number beyond all floats
            else:
                if numbers.tolist() == value:  # no whole number that a float rounds
                    return self._numbers(numbers)
        members = tuple(self.made(member, left_out, outside=outside) for member in value)
        marks: Iterable[bytes] = (member.mark for member in members)
        marks = marks if self._ordered else sorted(marks)
        return Digest(kind="list", length=len(members), mark=_hash(b"list", *marks), members=members)

    def _numbers(self, numbers: "array[float]") -> Digest:
        self._left -= len(numbers) // _NUMBERS
        if self._left < 0:
            raise TooManyPartsError
        bag = _hash(b"bag", array("d", sorted(numbers)).tobytes())
        mark = _hash(b"numbers", numbers.tobytes()) if self._ordered else bag
        return Digest(kind="list", length=len(numbers), mark=mark, bag=bag)


def _text(text: str) -> Digest:
    return Digest(kind="text", length=len(text), mark=_hash(b"text", _bytes(text)))


def _scalar(value: bool | int | float | None) -> Digest:
    if value is None:
        return Digest(kind="null", length=0, mark=_hash(b"null"))
    if isinstance(value, bool):
        return Digest(kind="boolean", length=0, mark=_hash(b"boolean", str(value).encode()))
    if isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE:
        value = int(value)  # 1.0 is 1
    return Digest(kind="number", length=0, mark=_hash(b"number", repr(value).encode()))


def _json_in(text: str) -> Any:
    """The object or list that a text is; None where it is just text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, (str, list, dict)) and not value)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _hash(kind: bytes, *parts: bytes) -> bytes:
    made = hashlib.blake2b(kind, digest_size=16, key=_KEY)
    made.update(b"\0")
    for part in parts:
        made.update(part)
    return made.digest()
