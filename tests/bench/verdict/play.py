"""A run watched by the real judge's estimates, and by other methods, after every block of pairs."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import groupby

import numpy as np
from scipy.special import ndtri
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_operator.judge.interval import PAIRS_PER_BLOCK, estimate
from shadowrun_operator.judge.rules import Criterion, Rules
from shadowrun_operator.judge.sequence import multiplier

from tests.bench.verdict.world import Pairs, Whole, World

PASS_ALPHA = Rules(criteria=()).pass_alpha
FAIL_ALPHA = Rules(criteria=()).fail_alpha
FEWEST = Criterion(name="", metric="TTFT", require="Better").min_pairs
_MINUTES = 15
_HOPELESS = 2.0


@dataclass(frozen=True)
class Outcome:
    """How a run ended ("" is open), and after how many pairs."""

    outcome: str
    pairs: int


Method = Callable[[World, Pairs], Outcome]


def by_the_judge(world: World, found: Pairs) -> Outcome:
    """The product's bounds, as `criteria` takes them, looked at after every block; the first outcome ends the run.

    Looks at which the mean is within `_HOPELESS` standard errors of the limit are passed over, for speed: no bound is
    ever closer than 2.7 errors of independent pairs.
    """
    series = [BlockSeries() for _ in range(world.replicas)]
    control, done = BlockSeries(), 0
    sums, squares = np.cumsum(found.z), np.cumsum(found.z * found.z)
    for count in _looks(len(found.z)):
        mean = float(sums[count - 1]) / count
        error = math.sqrt(max(float(squares[count - 1]) / count - mean * mean, 0.0) / count)
        if count < FEWEST or abs(mean - world.limit) < _HOPELESS * error:
            continue
        for replica, of_replica in enumerate(series):
            chosen = np.flatnonzero(found.replica[done:count] == replica) + done
            series[replica] = of_replica.merged(_series(found.second[chosen], found.z[chosen]))
        if found.control is not None:
            control = control.merged(_series(found.second[done:count], found.control[done:count]))
        done = count
        known = estimate(reduce(BlockSeries.merged, series), beside=[control])
        if known is None or not known.decidable:
            continue
        if known.mean > world.limit and known.lower(PASS_ALPHA) > world.limit:
            return Outcome("Pass", count)
        if known.mean < world.limit and known.upper(FAIL_ALPHA) < world.limit:
            return Outcome("Fail", count)
    return Outcome("", len(found.z))


def by_each_request(world: World, found: Pairs) -> Outcome:
    """A z test over pairs, repeated after every block as if each look were the only one and pairs independent."""
    sums, squares = np.cumsum(found.z), np.cumsum(found.z * found.z)
    for count in _looks(len(found.z)):
        if count < FEWEST:
            continue
        mean = float(sums[count - 1]) / count
        error = math.sqrt(max(float(squares[count - 1]) / count - mean * mean, 0.0) / count)
        if mean + float(ndtri(PASS_ALPHA)) * error > world.limit:
            return Outcome("Pass", count)
    return Outcome("", len(found.z))


def by_minutes(world: World, found: Pairs) -> Outcome:
    """Mann and Whitney's test on the means of minutes, the candidate's less the margin, repeated every minute."""
    minutes = (found.second - found.second[0]) // 60
    ends = np.flatnonzero(np.diff(minutes)) + 1
    allowed = math.log1p(world.margin)
    baseline, candidate = (
        np.array([float(part.mean()) for part in np.split(values, ends)])
        for values in (found.baseline, found.candidate - allowed)
    )
    for count in range(_MINUTES, len(ends) + 1):
        wins = float((candidate[:count, None] < baseline[None, :count]).sum())
        if (wins - count * count / 2) / math.sqrt(count * count * (2 * count + 1) / 12) > -float(ndtri(PASS_ALPHA)):
            return Outcome("Pass", int(ends[count - 1]))
    return Outcome("", len(found.z))


def by_two_bands(world: World, found: Pairs) -> Outcome:
    """A confidence sequence for each arm's own quantile, at half the level each; pairs are not used as pairs."""
    p = world.quantile or 0.5
    for count in _looks(len(found.z)):
        if count < FEWEST:
            continue
        margin = multiplier(count / PAIRS_PER_BLOCK, PASS_ALPHA / 2) * math.sqrt(p * (1 - p) / count)
        lowest, highest = math.floor(count * (p - margin)) - 1, math.ceil(count * (p + margin))
        if lowest < 0 or highest >= count:
            continue
        base = np.partition(found.baseline[:count], lowest)[lowest]
        ours = np.partition(found.candidate[:count], highest)[highest]
        if ours <= base + math.log1p(world.margin):
            return Outcome("Pass", count)
    return Outcome("", len(found.z))


def _looks(count: int) -> Iterator[int]:
    yield from range(PAIRS_PER_BLOCK, count + 1, PAIRS_PER_BLOCK)


def _series(seconds: Whole, z: Whole) -> BlockSeries:
    """The pairs' sums by second; as `BlockSeries.add` would count them one by one."""
    sums: dict[int, tuple[int, int]] = {}
    for second, group in groupby(zip(seconds.tolist(), z.tolist(), strict=True), key=lambda pair: pair[0]):
        values = [value for _, value in group]
        sums[second] = (len(values), sum(values))
    return BlockSeries(sums=sums)
