"""Every table of the verdict's bench can be made, in seconds, and has its place; its numbers say nothing here."""

from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from shadowrun_mirror.blocks import STEPS

from tests.bench.verdict.__main__ import DOCUMENT, measured
from tests.bench.verdict.lengths import TOKENS, drawn
from tests.bench.verdict.play import by_the_judge
from tests.bench.verdict.scenarios import TABLES, Table
from tests.bench.verdict.world import World, pairs

pytestmark = pytest.mark.verdict


class Here(Executor):
    """Runs what it is given at once, in this process."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_can_be_made(table: Table) -> None:
    text, _ = measured(Here(), table, quick=True)
    assert len(text.splitlines()) == 2 + len(table.lines)
    assert f"<!-- bench {table.name} -->" in DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "world",
    [World(quantile=0.5), World(phi=0.98), World(quantile=None, margin=0.03), World(shed=0.3), World(diurnal=True)],
)
def test_at_the_margin_the_mean_of_z_is_the_limit(world: World) -> None:
    means = [float(pairs(world, np.random.default_rng(seed)).z.mean()) for seed in range(60)]
    error = float(np.std(means, ddof=1)) / 60**0.5
    assert abs(float(np.mean(means)) - world.limit) < 4 * error


@pytest.mark.parametrize("quantile", [0.5, 0.95, None])
def test_at_the_margin_the_weighted_mean_is_the_limit_too(quantile: float | None) -> None:
    world = World(quantile=quantile, margin=0.05, weighted=True, lengths="mooncake")
    drawn = [pairs(world, np.random.default_rng(seed)) for seed in range(60)]
    means = [float((found.weight * found.z).sum() / found.weight.sum()) for found in drawn]
    error = float(np.std(means, ddof=1)) / 60**0.5
    assert abs(float(np.mean(means)) - world.limit) < 4 * error
    assert {int(found.weight.max()) for found in drawn} == {STEPS}


def test_replicas_are_judged_as_one() -> None:
    world = World(effect=3.0, quantile=0.5, pairs=600, replicas=4)
    found = pairs(world, np.random.default_rng(3))
    together = replace(found, replica=np.zeros_like(found.replica))
    outcome = by_the_judge(world, found)
    assert outcome == by_the_judge(replace(world, replicas=1), together)
    assert outcome.outcome == "Pass"


@pytest.mark.parametrize("name", TOKENS)
def test_lengths_have_the_quantiles_of_their_trace(name: str) -> None:
    lengths = drawn(name, 20_000, np.random.default_rng(1))
    assert float(np.median(lengths)) == pytest.approx(TOKENS[name][6], rel=0.05)
    assert float(lengths.max()) <= TOKENS[name][-1] * 1.001
