"""Hours of the day and the week are those of the blocks that pairs were counted in."""

from datetime import UTC, datetime

import msgspec
import pytest
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_operator.judge.hours import hour_counts, hours
from shadowrun_operator.judge.rules import Criterion

from tests.unit.judge.synthetic import DEFAULT_RULES, Recorder

pytestmark = pytest.mark.verdict

SHORT = msgspec.structs.replace(DEFAULT_RULES, min_duration_s=3600)


def recorder(*times: tuple[datetime, int], level: int = 0) -> Recorder:
    made = Recorder()
    series = BlockSeries(level=level, sums={int(at.timestamp()) >> level: (pairs, 0) for at, pairs in times})
    fewer = BlockSeries(level=level, sums={key: (n // 2, 0) for key, (n, _) in series.sums.items()})
    made.windows[1].pairs = {"candidate": {"all": series, "long": fewer}}
    return made


MONDAY = datetime(2026, 11, 30, 9, 30, tzinfo=UTC)


def test_hours_and_days_are_named_with_the_busiest_first() -> None:
    made = recorder((MONDAY, 10), (MONDAY.replace(hour=10), 40), (MONDAY.replace(hour=23, day=29), 20))
    found = hours(SHORT, made.merged())
    assert (found.of_the_day, found.days, found.of_the_week) == ((9, 10, 23), ("Mon", "Sun"), 3)
    assert found.peaks == (10, 23, 9)
    assert "21 were not seen" in found.note
    assert "minDuration 3600 s" in found.note


def test_a_spec_that_asks_for_a_day_is_not_said_to_have_asked_for_less() -> None:
    assert "minDuration" not in hours(DEFAULT_RULES, recorder((MONDAY, 1)).merged()).note


def test_a_whole_day_leaves_nothing_to_say() -> None:
    found = hours(SHORT, recorder(*((MONDAY.replace(hour=h), 5) for h in range(24))).merged())
    assert (len(found.of_the_day), found.note) == (24, "")


def test_long_blocks_count_for_the_hour_they_have_their_middle_in() -> None:
    assert hours(SHORT, recorder((MONDAY, 1), level=9).merged()).of_the_day == (9,)


def criterion(name: str, traffic_class: str) -> Criterion:
    return Criterion(name=name, metric="WithinSLO", traffic_class=traffic_class, require="NotWorse", margin=0.05)


def test_the_pairs_of_an_hour_are_those_of_all_classes_and_of_none_twice() -> None:
    names = {"long-slo": "long", "long-tpot": "long", "short-slo": "short", "all": ""}
    rules = msgspec.structs.replace(SHORT, criteria=tuple(criterion(*named) for named in names.items()))
    at = {hour: int(MONDAY.replace(hour=hour).timestamp()) for hour in (9, 10)}
    made = Recorder()
    made.windows[1].pairs = {
        "candidate": {
            "long-slo": BlockSeries(sums={at[9]: (40, 0)}),
            "long-tpot": BlockSeries(sums={at[9]: (30, 0)}),
            "short-slo": BlockSeries(sums={at[9]: (50, 0)}),
            "all": BlockSeries(sums={at[9]: (80, 0), at[10]: (85, 0)}),
        }
    }
    assert hour_counts(rules, made.merged()) == {(0, 9): 90, (0, 10): 85}


def test_a_run_without_pairs_has_no_hours() -> None:
    assert hours(SHORT, Recorder().merged()).of_the_day == ()
