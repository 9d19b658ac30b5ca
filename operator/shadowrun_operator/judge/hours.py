"""`Hours`: at which hours of the day and the week pairs were counted, from the blocks of time they were counted in.

UTC. An hour is known to within half a block: blocks are seconds long in a run of minutes and up to some thousand
seconds in a run of weeks. Busy hours are those with the most pairs; the share that is copied is the same at all hours
(unless it was lowered, which the report says), so they were the customers' busy hours too. It decides nothing.
"""

from collections import Counter

import msgspec
import numpy as np
from shadowrun_mirror.blocks import BlockSeries

from shadowrun_operator.judge.merge import Merged
from shadowrun_operator.judge.rules import Rules

DAY_S = 86_400
_PEAKS = 3
_EPOCH_DAY = 3  # the first of January 1970 was a Thursday
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class Hours(msgspec.Struct, frozen=True, kw_only=True):
    """Hours of the day (0 to 23) and days of the week (Mon to Sun) with pairs; the busiest hours, busiest first.

    `of_the_week` counts different hours of the week, of 168. `note` says what was not seen.
    """

    of_the_day: tuple[int, ...] = ()
    days: tuple[str, ...] = ()
    of_the_week: int = 0
    peaks: tuple[int, ...] = ()
    note: str = ""


def hours(rules: Rules, evidence: Merged) -> Hours:
    """The hours in which pairs were counted."""
    counts = hour_counts(rules, evidence)
    by_hour: Counter[int] = Counter()
    for (_, hour), pairs in counts.items():
        by_hour[hour] += pairs
    peaks = sorted(by_hour, key=lambda hour: (-by_hour[hour], hour))[:_PEAKS]
    seen = tuple(sorted(by_hour))
    return Hours(
        of_the_day=seen,
        days=tuple(name for day, name in enumerate(_DAYS) if any(d == day for d, _ in counts)),
        of_the_week=len(counts),
        peaks=tuple(peaks),
        note=_note(rules, len(seen)) if seen else "",
    )


def hour_counts(rules: Rules, evidence: Merged) -> Counter[tuple[int, int]]:
    """Pairs by (day of the week, hour).

    Every criterion has a series of its own, of the pairs of its class (or of all) that it says something of. So a class
    has as many pairs in an hour as its fullest series, and all have as many as the classes together, or as the fullest
    series over all classes where that has more: not every class needs a criterion.
    """
    classes = {c.name: c.traffic_class for c in rules.criteria}
    fullest: dict[str, Counter[tuple[int, int]]] = {}
    for name, series in evidence.counted.pairs.get(rules.candidate, {}).items():
        of_class = fullest.setdefault(classes.get(name, ""), Counter())
        of_class |= _of_series(series, rules.block_s)
    pooled = fullest.pop("", Counter())
    return sum(fullest.values(), Counter()) | pooled


def _of_series(series: BlockSeries, block_s: int) -> Counter[tuple[int, int]]:
    counts: Counter[tuple[int, int]] = Counter()
    length, count = block_s << series.level, len(series.sums)
    middles = (2 * np.fromiter(series.sums, np.int64, count) + 1) * length  # in half seconds
    weights = np.fromiter((weight for weight, _ in series.sums.values()), np.int64, count)
    per_pair = int(weights.sum()) / series.pairs if series.weighed else 1
    hours_since, places = np.unique(middles // 7200, return_inverse=True)
    for hour, weight in zip(hours_since.tolist(), np.bincount(places, weights).tolist(), strict=True):
        counts[(hour // 24 + _EPOCH_DAY) % 7, hour % 24] += round(weight / per_pair) or 1
    return counts


def _note(rules: Rules, seen: int) -> str:
    if seen == 24:
        return ""
    asked = rules.min_duration_s
    why = f" The spec asks for no whole day (minDuration {asked} s)." if asked < DAY_S else ""
    why += f" It copies from {rules.daily_window} only." if rules.daily_window else ""
    return f"Of the 24 hours of a day {24 - seen} were not seen: the verdict says nothing about their load.{why}"
