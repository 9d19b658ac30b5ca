"""What a bench yields: lines of numbers, each against a named reference of the same run; and their form in a document.

No measuring here.
"""

import math
import re
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

_CONFIDENCE = 0.95

Unit = Literal["×", "ms", "MiB", "pairs/s", "%", "requests"]


@dataclass(frozen=True)
class Line:
    """One measured thing: a value for each round, in `unit`; × is a ratio to `reference`."""

    what: str
    values: tuple[float, ...]
    unit: Unit = "×"
    reference: str = "–"
    at_most: float | None = None  # the goal, for the median
    at_least: float | None = None  # the same

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the goal is met, both where there are two; None without one."""
        if self.at_most is None and self.at_least is None:
            return None
        low = -math.inf if self.at_least is None else self.at_least
        return low <= self.median <= (math.inf if self.at_most is None else self.at_most)

    @property
    def interval(self) -> tuple[float, float]:
        """Between which values the true median lies, 95 times in 100: the order statistics a coin's tosses point to.

        Exact for rounds that do not depend on each other, whatever they are distributed like; with less than six there
        is no such interval, and it is from the lowest to the highest.
        """
        ordered, outside = sorted(self.values), 0
        chance = 0.5 ** len(ordered)  # that all lie on one side of the median
        while 2 * chance <= 1 - _CONFIDENCE:
            outside += 1
            chance += math.comb(len(ordered), outside) * 0.5 ** len(ordered)
        place = max(0, outside - 1)
        return ordered[place], ordered[-1 - place]

    def cells(self, *, interval: bool = False) -> tuple[str, ...]:
        """what, reference, median, spread (or the median's interval), goal, met."""
        lowest, highest = self.interval if interval else (min(self.values), max(self.values))
        spread = f"{_number(lowest)} – {_number(highest)}" if len(self.values) > 1 else "–"
        goals = {"≤": self.at_most, "≥": self.at_least}
        goal = ", ".join(f"{sign} {_number(limit)} {self.unit}" for sign, limit in goals.items() if limit is not None)
        met = {None: "–", True: "yes", False: "**no**"}[self.met]
        return (self.what, self.reference, f"{_number(self.median)} {self.unit}", spread, goal or "–", met)


@dataclass(frozen=True)
class Table:
    """One bench's result. `conditions`: what it was measured under, in a sentence or two.

    `interval`: of many short rounds, say between what the median lies instead of what the lowest and highest were.
    """

    name: str
    conditions: str
    lines: list[Line] = field(default_factory=list)
    rounds: int = 0  # 0: as many as the values of most lines
    interval: bool = False

    def markdown(self, machine: str) -> str:
        spread = "its 95 % interval" if self.interval else "lowest – highest"
        rows = [
            f"| what | against, in the same run | median | {spread} | goal | met |",
            "|---|---|---|---|---|---|",
            *(f"| {' | '.join(line.cells(interval=self.interval))} |" for line in self.lines),
        ]
        rounds = self.rounds or statistics.mode(len(line.values) for line in self.lines)
        return "\n".join([*rows, "", f"{self.conditions} Rounds: {rounds}. Machine: {machine}."])


def write(document: Path, table: Table, machine: str) -> None:
    """Put the table between its markers in the document. Raises `ValueError` when the markers are not there."""
    replaced(document, table.name, table.markdown(machine))


def replaced(document: Path, name: str, new: str) -> None:
    """Put text between the markers of that name. Raises `ValueError` when they are not there."""
    text = document.read_text(encoding="utf-8")
    begin, end = f"<!-- bench {name} -->", f"<!-- end of {name} -->"
    found = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not found.search(text):
        raise ValueError(f"{document} has no place for {name}")
    document.write_text(found.sub(lambda _: f"{begin}\n{new}\n{end}", text), encoding="utf-8")


def ratios(values: list[float], references: list[float]) -> tuple[float, ...]:
    """Round by round."""
    return tuple(value / reference for value, reference in zip(values, references, strict=True))


def _number(value: float) -> str:
    """Three significant digits, and no exponent."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}" if value == 0 else str(value)
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 4)}f}"
