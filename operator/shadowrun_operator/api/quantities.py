"""Durations, latencies, percents, frequencies and sizes as the resource writes them: strings with one exact meaning.

Every type is a `str`, so it is stored as it was written; parsing is exact and uses no floating point where a decision
depends on it. Amounts in other objects are read as Kubernetes writes them. This module must not know any field of the
resource.
"""

import re
from decimal import Decimal
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

MILLION = 1_000_000
"""Percents are kept in millionths of the whole: 1% is 10,000 of them, and 0.0001% is one."""


class Quantity(str):
    """A string that must match `PATTERN` within the length bounds; `ValueError` otherwise."""

    __slots__ = ()

    PATTERN: ClassVar[str]
    MIN_LENGTH: ClassVar[int] = 1
    MAX_LENGTH: ClassVar[int]
    MEANING: ClassVar[str]

    def __new__(cls, value: str) -> Self:
        """The value itself, once it is known to be well formed."""
        if not cls.MIN_LENGTH <= len(value) <= cls.MAX_LENGTH or re.fullmatch(cls.PATTERN, value) is None:
            raise ValueError(f"{value!r} is not {cls.MEANING}")
        return super().__new__(cls, value)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls, core_schema.str_schema(), serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": cls.PATTERN, "minLength": cls.MIN_LENGTH, "maxLength": cls.MAX_LENGTH}


class Duration(Quantity):
    """Whole hours, minutes and seconds in Go's notation: 168h, 90s, 1h30m."""

    __slots__ = ()

    PATTERN = "^([0-9]{1,5}h)?([0-9]{1,6}m)?([0-9]{1,7}s)?$"
    MIN_LENGTH = 2
    MAX_LENGTH = 21
    MEANING = "a duration in hours, minutes and seconds such as 168h, 90s or 1h30m"

    @property
    def seconds(self) -> int:
        """Length in seconds."""
        units = {"h": 3600, "m": 60, "s": 1}
        return sum(int(number) * units[unit] for number, unit in re.findall("([0-9]+)([hms])", self))


class Latency(Quantity):
    """Seconds or milliseconds in Go's notation: 2s, 100ms, 1s500ms."""

    __slots__ = ()

    PATTERN = "^([0-9]{1,5}s)?([0-9]{1,6}ms)?$"
    MIN_LENGTH = 2
    MAX_LENGTH = 14
    MEANING = "a latency in seconds and milliseconds such as 2s or 100ms"

    @property
    def milliseconds(self) -> int:
        """Length in milliseconds."""
        units = {"s": 1000, "ms": 1}
        return sum(int(number) * units[unit] for number, unit in re.findall("([0-9]+)(ms|s)", self))

    @property
    def seconds(self) -> float:
        """Length in seconds, the nearest float."""
        return self.milliseconds / 1000


class Percent(Quantity):
    """A share from 0% to 100% with at most four decimals: 1%, 0.5%, 99.95%."""

    __slots__ = ()

    PATTERN = r"^(100(\.0{1,4})?|[0-9]{1,2}(\.[0-9]{1,4})?)%$"
    MIN_LENGTH = 2
    MAX_LENGTH = 9
    MEANING = "a percentage from 0% to 100% with at most four decimals, such as 1% or 0.5%"

    @property
    def millionths(self) -> int:
        """Exact share of the whole in millionths: 1% is 10,000."""
        whole, _, decimals = self[:-1].partition(".")
        return int(whole) * 10_000 + int(decimals.ljust(4, "0"))


class PerSecond(Quantity):
    """A frequency with at most three decimals: 2, 0.5, 12.25 times a second."""

    __slots__ = ()

    PATTERN = r"^[0-9]{1,5}(\.[0-9]{1,3})?$"
    MAX_LENGTH = 9
    MEANING = "a number of times a second with at most three decimals, such as 2 or 0.5"

    @property
    def thousandths(self) -> int:
        """Exact number of times in a thousand seconds: 0.5 is 500."""
        whole, _, decimals = self.partition(".")
        return int(whole) * 1000 + int(decimals.ljust(3, "0"))


class Size(Quantity):
    """A number of bytes below 100Mi, with Ki or Mi: 64Ki, 1Mi, 4096."""

    __slots__ = ()

    PATTERN = "^([1-9][0-9]{0,7}|[1-9][0-9]{0,4}Ki|[1-9][0-9]?Mi)$"
    MAX_LENGTH = 8
    MEANING = "a size below 100Mi such as 64Ki or 1Mi"

    @property
    def bytes(self) -> int:
        """Number of bytes."""
        units = {"Ki": 1 << 10, "Mi": 1 << 20}
        return int(self[:-2]) * units[self[-2:]] if self.endswith("i") else int(self)


def kubernetes_quantity(written: object) -> Decimal | None:
    """The exact value of an amount as Kubernetes writes it, such as 2, "3k", "1.5Gi" or "2e3"; None for anything else.

    The notation is that of `resource.Quantity` of the Kubernetes API.
    """
    found = _AMOUNT.fullmatch(str(written))
    if found is None:
        return None
    number, exponent, suffix = found.groups()
    return Decimal(number).scaleb(int(exponent or 0)) * _SUFFIXES[suffix or ""]


_AMOUNT = re.compile(
    r"([+-]?(?:[0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30}))(?:[eE]([+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i))?"
)
_SUFFIXES = (
    {"": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": Decimal(1000)}
    | {unit: Decimal(1000) ** power for power, unit in enumerate("MGTPE", 2)}
    | {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)}
)
