"""A run watched by the real judge's estimates, and by other methods, after every block of pairs."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np
from scipy.special import ndtri
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.histogram import Histogram
from shadowrun_operator.judge.interval import PAIRS_PER_BLOCK, estimate
from shadowrun_operator.judge.noise import NOISE_ALPHA, Expected, expected_of_latency
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
    running = _Running(found.z, found.weight)
    for count in _looks(len(found.z)):
        mean, error = running.at(count)
        if count < FEWEST or abs(mean - world.limit) < _HOPELESS * error:
            continue
        for replica, of_replica in enumerate(series):
            chosen = np.flatnonzero(found.replica[done:count] == replica) + done
            _count(world, found, found.z, chosen, of_replica)
        if found.control is not None:
            _count(world, found, found.control, np.arange(done, count), control)
        done = count
        known = estimate(reduce(BlockSeries.merged, series), beside=[control])
        if known is None or not known.decidable:
            continue
        if known.mean > world.limit and known.lower(PASS_ALPHA) > world.limit:
            return Outcome("Pass", count)
        if known.mean < world.limit and known.upper(FAIL_ALPHA) < world.limit:
            return Outcome("Fail", count)
    return Outcome("", len(found.z))


def by_halves(world: World, found: Pairs) -> Outcome:
    """As `halves` joins two of them, each watched by the judge: an outcome is that of both, or there is none."""
    middle = len(found.z) // 2
    first, second = (by_the_judge(world, found.part(part)) for part in (slice(middle), slice(middle, None)))
    if first.outcome == second.outcome != "":
        return Outcome(second.outcome, middle + second.pairs)
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


def noisy(world: World, found: Pairs, every: int) -> tuple[bool, bool]:
    """What the rule NoisyBaseline says of the control: at the end, and at any look of each `every` pairs."""
    if found.control is None:
        raise ValueError("a world without a control has no noise to find")
    control, known, done, said = BlockSeries(), Histogram(), 0, [False]
    for count in range(every, len(found.z) + 1, every):
        _count(world, found, found.control, np.arange(done, count), control)
        for log_latency in found.baseline[done:count].tolist():
            known.add(math.exp(log_latency))
        done, estimated = count, estimate(control)
        if count < FEWEST or estimated is None or not estimated.decidable:
            continue
        expected = Expected(tolerated=world.margin / 2)
        if world.quantile is not None:
            expected = expected_of_latency(known, math.exp(found.limit), 1 + world.margin)
        said.append(expected.is_missed(estimated, NOISE_ALPHA / 2))
    return said[-1], any(said)


class _Running:
    """Weighted mean of z and its error for independent pairs, at any number of them."""

    def __init__(self, z: Whole, weight: Whole) -> None:
        w = weight.astype(np.float64)
        self._sums = [np.cumsum(part) for part in (w, w * z, w * w, w * w * z, w * w * z * z)]

    def at(self, count: int) -> tuple[float, float]:
        w, wz, ww, wwz, wwzz = (float(part[count - 1]) for part in self._sums)
        mean = wz / w
        return mean, math.sqrt(max(wwzz - 2 * mean * wwz + mean * mean * ww, 0.0)) / w


def _looks(count: int) -> Iterator[int]:
    yield from range(PAIRS_PER_BLOCK, count + 1, PAIRS_PER_BLOCK)


def _count(world: World, found: Pairs, z: Whole, chosen: Whole, series: BlockSeries) -> None:
    """Add these pairs to a series, as a mirror does."""
    for second, outcome, weight in zip(
        found.second[chosen].tolist(), z[chosen].tolist(), found.weight[chosen].tolist(), strict=True
    ):
        if world.weighted:
            series.add_weighed(second, outcome, weight, 0)
        else:
            series.add(second, outcome)
