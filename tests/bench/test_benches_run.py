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


def test_a_table_without_a_place_is_an_error(tmp_path: Path) -> None:
    document = tmp_path / "benchmarks.md"
    document.write_text("nothing")
    with pytest.raises(ValueError, match="no place for one"):
        write(document, Table("one", "", [Line("x", (1.0,))]), "")


def test_the_description_names_cores_and_kernel() -> None:
    assert " cores, Linux " in description()
