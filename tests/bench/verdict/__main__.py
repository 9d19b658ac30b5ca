"""`python -m tests.bench.verdict [table ...] [--quick]`: how often the verdict errs, and how many pairs it takes.

Writes its tables into docs/benchmarks-verdict.md. With --quick it only shows that it runs; nothing is written. Exit
status 1 says that a goal was missed.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from scipy.special import ndtri
from scipy.stats import binomtest

from tests.bench.tables import replaced
from tests.bench.verdict.drops import played as failures
from tests.bench.verdict.play import FAIL_ALPHA, FEWEST, PASS_ALPHA, Outcome, noisy
from tests.bench.verdict.scenarios import (
    AT_THE_MARGIN,
    TABLES,
    Costs,
    DropLine,
    Drops,
    FalsePasses,
    Line,
    Noise,
    Power,
    Table,
)
from tests.bench.verdict.world import Numbers, World, pairs

_Line = TypeVar("_Line", Line, DropLine)
_Found = TypeVar("_Found")
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "benchmarks-verdict.md"
RUNS, POWER_RUNS = 1000, 200
FIRST_SEED = 2_000_000
"""None of the seeds by which the constants of `interval` were chosen."""
QUICK_RUNS, QUICK_PAIRS = 4, 600
_POWER = 0.8
_NOISE_LOOK = 100
_REFERENCE = 50_000


def played(line: Line, seeds: range) -> list[Outcome]:
    """The outcomes of the runs with these seeds."""
    return [line.method(line.world, pairs(line.world, np.random.default_rng(seed))) for seed in seeds]


def watched_control(line: Line, seeds: range) -> list[tuple[bool, bool]]:
    """Whether each control is called noisy at its end, and at any look."""
    drawn = ((line.world, pairs(line.world, np.random.default_rng(seed))) for seed in seeds)
    return [noisy(world, found, _NOISE_LOOK) for world, found in drawn]


def watched_failures(line: DropLine, seeds: range) -> list[Outcome]:
    """The outcomes of runs with requests that fail."""
    return [failures(line.world, np.random.default_rng(seed)) for seed in seeds]


def spread_out(executor: Executor, line: _Line, runs: int, of: Callable[[_Line, range], list[_Found]]) -> list[_Found]:
    """What `of` finds in so many runs, shared among processes."""
    step, first = max(1, runs // 20), FIRST_SEED
    parts = [executor.submit(of, line, range(first + at, first + min(at + step, runs))) for at in range(0, runs, step)]
    return [found for part in parts for found in part.result()]


def fixed_sample(world: World) -> float:
    """Pairs that one look needs for a power of 80 %, if the true mean and variance were known in advance.

    Both from a million pairs after 20 warm-ups, in blocks of 20 autocorrelation times of the noise.
    """
    length = math.ceil(20 * (1 + world.phi) / (1 - world.phi))
    blocks = np.concatenate([_means(replace(world, pairs=_REFERENCE), seed, length) for seed in range(20)])
    gap = float(blocks.mean()) - world.limit
    alpha = PASS_ALPHA if world.effect > AT_THE_MARGIN else FAIL_ALPHA
    variance = float(np.mean([part.var(ddof=1) for part in np.split(blocks, 20)])) * length
    return variance * ((float(ndtri(_POWER)) - float(ndtri(alpha))) / gap) ** 2


def _means(world: World, seed: int, length: int) -> Numbers:
    found = pairs(world, np.random.default_rng(seed))
    counted = len(found.z) // length * length
    weights, z = (part[:counted].reshape(-1, length) for part in (found.weight, found.z))
    mean = float((weights * z).sum() / weights.sum())
    return np.asarray(mean + (weights * (z - mean)).mean(axis=1) / weights.mean(), np.float64)


def false_passes(executor: Executor, table: FalsePasses, runs: int) -> tuple[str, bool]:
    """The table in Markdown, and whether its goals are met: neither exceeded by more than chance (1 %)."""
    rows, met = (
        [
            "| worse by exactly the margin | runs | Pass | 95 % interval | Fail | 95 % interval | goals | met |",
            _RULE * 8 + "|",
        ],
        True,
    )
    goal, said = "–", "–"
    for line in table.lines:
        found = [o.outcome for o in spread_out(executor, line, runs, played)]
        counts = [found.count("Pass"), found.count("Fail")]
        if table.goals is not None:
            good = all(
                binomtest(count, runs, level, alternative="greater").pvalue > 0.01
                for count, level in zip(counts, table.goals, strict=True)
            )
            met = met and good
            goal = ", ".join(f"≤ {level:.0%}" for level in table.goals)
            said = "yes" if good else "**no**"
        shares = " | ".join(f"{count / runs:.1%} | {_interval(count, runs)}" for count in counts)
        rows.append(f"| {line.what} | {runs} | {shares} | {goal} | {said} |")
    return "\n".join(rows), met


def _interval(count: int, runs: int) -> str:
    low, high = binomtest(count, runs).proportion_ci(method="wilson")
    return f"{low:.1%} – {high:.1%}"


def noise(executor: Executor, table: Noise, runs: int) -> tuple[str, bool]:
    """The table in Markdown, and whether equal controls are called noisy rarely enough, at a single look."""
    rows, met = (
        ["| control | runs | noisy at the end | 95 % interval | at any look | goal | met |", _RULE * 7 + "|"],
        True,
    )
    for line in table.lines:
        found = spread_out(executor, line, runs, watched_control)
        ends, ever = (sum(said) for said in zip(*found, strict=True))
        equal = line.world.control_effect == 0
        good = not equal or binomtest(ends, runs, table.goal, alternative="greater").pvalue > 0.01
        met = met and good
        goal, said = (f"≤ {table.goal:.0%}", "yes" if good else "**no**") if equal else ("–", "–")
        rows.append(
            f"| {line.what} | {runs} | {ends / runs:.1%} | {_interval(ends, runs)} | {ever / runs:.1%} |"
            f" {goal} | {said} |"
        )
    return "\n".join(rows), met


def drops(executor: Executor, table: Drops, runs: int) -> tuple[str, bool]:
    """The table in Markdown, and whether what is no dropping is rarely called one."""
    rows, met = (
        ["| what fails | runs | Fail | 95 % interval | median pairs | held back | goal | met |", _RULE * 8 + "|"],
        True,
    )
    for line in table.lines:
        outcomes = spread_out(executor, line, runs, watched_failures)
        found = [o.pairs if o.outcome == "Fail" else math.inf for o in outcomes]
        held = sum(o.outcome == "Open" for o in outcomes)
        hit = sum(map(math.isfinite, found))
        good = line.is_one or binomtest(hit, runs, table.goal, alternative="greater").pvalue > 0.01
        met = met and good
        median = _whole(float(np.quantile(found, 0.5, method="higher"))) if line.is_one else "–"
        goal, said = ("–", "–") if line.is_one else (f"≤ {table.goal:.0%}", "yes" if good else "**no**")
        rows.append(
            f"| {line.what} | {runs} | {hit / runs:.1%} | {_interval(hit, runs)} | {median} |"
            f" {held / runs:.1%} | {goal} | {said} |"
        )
    return "\n".join(rows), met


def costs(table: Costs) -> tuple[str, bool]:
    """The table in Markdown, and whether every goal is met. In this process: CPU time is what is measured."""
    rows, met = ["| what | cost | goal | met |", _RULE * 4 + "|"], True
    for line in table.lines:
        cost = line.measure()
        good = line.at_most is None or cost <= line.at_most
        met = met and good
        goal = "–" if line.at_most is None else f"≤ {line.at_most:g} {line.unit}"
        said = "–" if line.at_most is None else "yes" if good else "**no**"
        shown = f"{cost:,.0f}" if cost >= 100 else f"{cost:.1f}"
        rows.append(f"| {line.what} | {shown} {line.unit} | {goal} | {said} |")
    return "\n".join(rows), met


def power(executor: Executor, table: Power, runs: int) -> tuple[str, bool]:
    """The table in Markdown, and whether its goal is met where the judge judges."""
    rows, met = (
        [
            (
                "| true difference | right | wrong | median pairs | fixed sample | ratio | goal | met |"
                " 80 % of runs | ratio |"
            ),
            _RULE * 10 + "|",
        ],
        True,
    )
    for line in table.lines:
        right = "Pass" if line.world.effect > AT_THE_MARGIN else "Fail"
        found = spread_out(executor, line, runs, played)
        hit = sum(o.outcome == right for o in found)
        after = [o.pairs if o.outcome == right else math.inf for o in found]
        median, most = (float(np.quantile(after, share, method="higher")) for share in (0.5, _POWER))
        fixed = max(float(FEWEST), fixed_sample(line.world))
        held = table.goal if "two bands" not in line.what else None
        good = held is None or median <= held * fixed
        met = met and good
        wrong = sum(o.outcome not in (right, "") for o in found)
        rows.append(
            f"| {line.what} | {right} {hit / runs:.0%} | {wrong / runs:.1%} | {_whole(median)} | {_whole(fixed)} |"
            f" {_ratio(median, fixed)} | {'–' if held is None else f'≤ {held:g}'} |"
            f" {'–' if held is None else 'yes' if good else '**no**'} |"
            f" {_whole(most)} | {_ratio(most, fixed)} |"
        )
    return "\n".join(rows), met


_RULE = "|---"


def _whole(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "more"


def _ratio(value: float, fixed: float) -> str:
    return f"{value / fixed:.1f}" if math.isfinite(value) else "more"


def _quick(line: _Line) -> _Line:
    return replace(line, world=replace(line.world, pairs=QUICK_PAIRS))


def measured(executor: Executor, table: Table, *, quick: bool, runs: int = RUNS) -> tuple[str, bool]:
    """One table; a quick one shows only that it can be made."""
    runs = QUICK_RUNS if quick else min(POWER_RUNS, runs) if isinstance(table, Power) else runs
    if isinstance(table, Costs):
        return costs(table)
    if isinstance(table, Drops):
        return drops(executor, replace(table, lines=tuple(map(_quick, table.lines))) if quick else table, runs)
    chosen = replace(table, lines=tuple(map(_quick, table.lines))) if quick else table
    if isinstance(chosen, Noise):
        return noise(executor, chosen, runs)
    return false_passes(executor, chosen, runs) if isinstance(chosen, FalsePasses) else power(executor, chosen, runs)


def main(arguments: Sequence[str]) -> int:
    """Run them; 1 when a goal was missed, so that a script can tell."""
    names = {table.name.removeprefix("verdict-"): table for table in TABLES}
    parser = argparse.ArgumentParser(prog="python -m tests.bench.verdict", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="table", help=f"which ({', '.join(names)}); all without any")
    parser.add_argument("--quick", action="store_true", help="only see that they run; nothing is written")
    parser.add_argument("--runs", type=int, default=RUNS, help="of each line; fewer have wider intervals")
    given = parser.parse_args(arguments)
    unknown = set(given.names) - names.keys()
    if unknown:
        parser.error(f"no table is called {', '.join(sorted(unknown))}")
    all_met = True
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as executor:
        for name in given.names or names:
            started = time.monotonic()
            text, met = measured(executor, names[name], quick=given.quick, runs=given.runs)
            print(f"\n{names[name].name} ({time.monotonic() - started:.0f} s)\n\n{text}", flush=True)
            all_met = all_met and met
            if not given.quick:
                replaced(DOCUMENT, names[name].name, text)
    return int(not all_met and not given.quick)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
