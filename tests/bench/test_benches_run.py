"""Every bench runs and yields numbers, in seconds; what the numbers are says nothing, and nothing is written."""

import asyncio
import math
from pathlib import Path

import pytest

from tests.bench.__main__ import BENCHES, DOCUMENT
from tests.bench.effort import QUICK
from tests.bench.machine import description
from tests.bench.tables import Line, Table, write

pytestmark = pytest.mark.mirror


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_runs_and_yields_numbers(name: str) -> None:
    table = asyncio.run(BENCHES[name](QUICK))
    assert table.name == name
    assert table.lines
    for line in table.lines:
        assert line.values
        assert all(math.isfinite(value) for value in line.values), line.what
        assert line.unit != "×" or all(value > 0 for value in line.values), line.what
    assert f"<!-- bench {name} -->" in DOCUMENT.read_text(encoding="utf-8")


def test_a_table_takes_its_place_in_the_document_and_leaves_the_rest(tmp_path: Path) -> None:
    document = tmp_path / "benchmarks.md"
    document.write_text("before\n<!-- bench one -->\nold\n<!-- end of one -->\nafter\n")
    lines = [Line("a cost", (1.5, 1.0, 2.0), reference="another", at_most=1.2), Line("a time", (0.0123,), "ms")]
    write(document, Table("one", "Some conditions.", lines, rounds=3), "2 cores")
    text = document.read_text()
    assert "| a cost | another | 1.50 × | 1.00 – 2.00 | ≤ 1.20 × | **no** |" in text
    assert "| a time | – | 0.0123 ms | – | – | – |" in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "Some conditions. Rounds: 3. Machine: 2 cores." in text


@pytest.mark.parametrize(("value", "met"), [(0.96, False), (0.97, True), (1.03, True), (1.04, False)])
def test_a_goal_may_have_two_sides(value: float, met: bool) -> None:
    line = Line("a number", (value,), reference="another", at_least=0.97, at_most=1.03)
    assert line.met is met
    assert "≤ 1.03 ×, ≥ 0.970 ×" in line.cells()


# From tables of the binomial distribution: the k-th lowest and highest of so many.
@pytest.mark.parametrize(("rounds", "place"), [(2, 1), (5, 1), (6, 1), (9, 2), (12, 3), (20, 6), (40, 14), (60, 22)])
def test_the_interval_of_a_median_is_between_two_of_its_rounds(rounds: int, place: int) -> None:
    line = Line("a cost", tuple(float(value) for value in range(rounds, 0, -1)))
    assert line.interval == (place, rounds + 1 - place)


def test_a_table_of_many_rounds_says_between_what_the_medians_lie() -> None:
    lines = [Line("a cost", tuple(1 + value / 100 for value in range(1, 21)), reference="another", at_most=1.2)]
    text = Table("one", "Some conditions.", lines, interval=True).markdown("2 cores")
    assert "| median | its 95 % interval |" in text
    assert "| a cost | another | 1.10 × | 1.06 – 1.15 | ≤ 1.20 × | yes |" in text


def test_a_table_without_a_place_is_an_error(tmp_path: Path) -> None:
    document = tmp_path / "benchmarks.md"
    document.write_text("nothing")
    with pytest.raises(ValueError, match="no place for one"):
        write(document, Table("one", "", [Line("x", (1.0,))]), "")


def test_the_description_names_cores_and_kernel() -> None:
    assert " cores, Linux " in description()
