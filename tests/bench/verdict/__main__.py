"""`python -m tests.bench.verdict [table ...] [--quick]`: how often the verdict errs, and how many pairs it takes.

Writes its tables into docs/benchmarks-verdict.md. With --quick it only shows that it runs; nothing is written. Exit
status 1 says that a goal was missed.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.special import ndtri
from scipy.stats import binomtest

from tests.bench.tables import replaced
from tests.bench.verdict.play import FAIL_ALPHA, FEWEST, PASS_ALPHA, Outcome
from tests.bench.verdict.scenarios import AT_THE_MARGIN, TABLES, FalsePasses, Line, Power
from tests.bench.verdict.world import Numbers, World, pairs

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "benchmarks-verdict.md"
RUNS, POWER_RUNS = 1000, 200
FIRST_SEED = 2_000_000
"""None of the seeds by which the constants of `interval` were chosen."""
QUICK_RUNS, QUICK_PAIRS = 4, 600
_POWER = 0.8
_REFERENCE = 50_000


def played(line: Line, first: int, runs: int) -> list[Outcome]:
    """The outcomes of the runs with these seeds."""
    return [
        line.method(line.world, pairs(line.world, np.random.default_rng(seed)))
        for seed in range(FIRST_SEED + first, FIRST_SEED + first + runs)
    ]


def spread_out(executor: Executor, line: Line, runs: int) -> list[Outcome]:
    """The same, shared among processes."""
    step = max(1, runs // 20)
    parts = [executor.submit(played, line, at, min(step, runs - at)) for at in range(0, runs, step)]
    return [outcome for part in parts for outcome in part.result()]


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
    drawn = pairs(world, np.random.default_rng(seed)).z
    return np.asarray(drawn[: len(drawn) // length * length].reshape(-1, length).mean(axis=1), np.float64)


def false_passes(executor: Executor, table: FalsePasses, runs: int) -> tuple[str, bool]:
    """The table in Markdown, and whether its goal is met: not beyond it by more than chance (1 %)."""
    rows, met = (
        ["| worse by exactly the margin | runs | Pass | 95 % interval | Fail | goal for Pass | met |", _RULE * 7 + "|"],
        True,
    )
    for line in table.lines:
        found = [o.outcome for o in spread_out(executor, line, runs)]
        passed = binomtest(found.count("Pass"), runs, table.goal or 0.5, alternative="greater")
        low, high = binomtest(found.count("Pass"), runs).proportion_ci(method="wilson")
        good = table.goal is None or passed.pvalue > 0.01
        met = met and good
        goal = "–" if table.goal is None else f"≤ {table.goal:.0%}"
        said = "–" if table.goal is None else "yes" if good else "**no**"
        rows.append(
            f"| {line.what} | {runs} | {found.count('Pass') / runs:.1%} | {low:.1%} – {high:.1%} |"
            f" {found.count('Fail') / runs:.1%} | {goal} | {said} |"
        )
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
        found = spread_out(executor, line, runs)
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


def _quick(table: FalsePasses | Power) -> FalsePasses | Power:
    lines = tuple(replace(line, world=replace(line.world, pairs=QUICK_PAIRS)) for line in table.lines)
    return replace(table, lines=lines)


def measured(executor: Executor, table: FalsePasses | Power, *, quick: bool) -> tuple[str, bool]:
    """One table; a quick one shows only that it can be made."""
    chosen = _quick(table) if quick else table
    if isinstance(chosen, FalsePasses):
        return false_passes(executor, chosen, QUICK_RUNS if quick else RUNS)
    return power(executor, chosen, QUICK_RUNS if quick else POWER_RUNS)


def main(arguments: Sequence[str]) -> int:
    """Run them; 1 when a goal was missed, so that a script can tell."""
    names = {table.name.removeprefix("verdict-"): table for table in TABLES}
    parser = argparse.ArgumentParser(prog="python -m tests.bench.verdict", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="table", help=f"which ({', '.join(names)}); all without any")
    parser.add_argument("--quick", action="store_true", help="only see that they run; nothing is written")
    given = parser.parse_args(arguments)
    unknown = set(given.names) - names.keys()
    if unknown:
        parser.error(f"no table is called {', '.join(sorted(unknown))}")
    all_met = True
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as executor:
        for name in given.names or names:
            started = time.monotonic()
            text, met = measured(executor, names[name], quick=given.quick)
            print(f"\n{names[name].name} ({time.monotonic() - started:.0f} s)\n\n{text}", flush=True)
            all_met = all_met and met
            if not given.quick:
                replaced(DOCUMENT, names[name].name, text)
    return int(not all_met and not given.quick)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
