"""Synthetic pairs under load noise with a known true difference. No judging here.

The log latency of an arm is difficulty + load of all + noise of the arm (+ the candidate's shift). The difficulty is
the request's, equal for all arms; the noise is AR(1) from pair to pair, an arm's own, so that pairing can't remove it.

`effect` counts the true difference in margins: 0 equal arms, -1 worse by exactly the margin (a Pass is false), positive
better. For latencies the candidate's is (1 + margin)^-effect times the baseline's, so at -1 the share of the candidate
within (1 + margin) x is the baseline's within x, for every x and at every moment. For shares, `MISSED` of the
baseline's answers miss the SLO and the candidate's share is `effect` margins higher. `weighted`: pairs weigh by their
prompts, as the mirror has it; lengths of a trace make a latency, or (for shares) have nothing to do with it.

`nodes` counts, in margins, how much faster the candidate is for where it stands; with `crossover` that is the
baseline's from halfway on, as the arms have changed places.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.special import ndtri
from shadowrun_mirror.blocks import STEPS
from shadowrun_operator.judge.thresholds import HEAVIEST

from tests.bench.verdict.lengths import drawn

DIFFICULTY = 0.8
NOISE = 0.4
MISSED = 0.04
DAY_S = 86_400
WARM_UP = 400

Numbers = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class World:
    """What the pairs are drawn from. `quantile` None is WithinSLO. `shed`: share of requests that no arm gets."""

    phi: float = 0.0
    quantile: float | None = 0.95
    margin: float = 0.1
    effect: float = -1.0
    pairs: int = 4000
    per_second: float = 2.0
    lengths: str = ""
    diurnal: bool = False
    shed: float = 0.0
    replicas: int = 1
    control: bool = False
    control_effect: float = 0.0
    weighted: bool = False
    noise: float = NOISE
    nodes: float = 0.0
    crossover: bool = False

    @property
    def limit(self) -> float:
        """What the mean of z must exceed."""
        return 0.0 if self.quantile is not None else -self.margin


@dataclass(frozen=True)
class Pairs:
    """What was drawn: second, replica and weight of each pair, log latencies, z of the candidate and of the control.

    `limit` is the baseline's limit, as a log latency.
    """

    second: Whole
    replica: Whole
    baseline: Numbers
    candidate: Numbers
    z: Whole
    control: Whole | None
    weight: Whole
    limit: float

    def part(self, of: slice) -> "Pairs":
        """Some of them, in their order."""
        return Pairs(
            second=self.second[of],
            replica=self.replica[of],
            baseline=self.baseline[of],
            candidate=self.candidate[of],
            z=self.z[of],
            control=None if self.control is None else self.control[of],
            weight=self.weight[of],
            limit=self.limit,
        )


def autoregressive(count: int, phi: float, random: np.random.Generator) -> Numbers:
    """Stationary AR(1) of variance 1."""
    shocks = random.standard_normal(count) * math.sqrt(1 - phi * phi)
    start = np.array([phi * random.standard_normal()])
    return np.asarray(lfilter([1.0], [1.0, -phi], shocks, zi=start)[0], np.float64)


def pairs(world: World, random: np.random.Generator) -> Pairs:
    """One run: a warm-up that gives the baseline's limit, then `world.pairs` requests less what is shed."""
    count = WARM_UP + world.pairs
    seconds = _arrivals(world, count, random)
    waves = np.sin(2 * np.pi * seconds / DAY_S) if world.diurnal else np.zeros(count)
    load = 0.3 * waves + (0.3 * autoregressive(count, 0.98, random) if world.shed else 0.0)
    lengths = drawn(world.lengths, count, random) if world.lengths else np.ones(count)
    shared = _difficulty(world, lengths, random) + load
    scale = world.noise * (1 + 0.5 * waves)
    arms = [shared + scale * autoregressive(count, world.phi, random) for _ in range(3 if world.control else 2)]
    arms[1] = arms[1] + _shift(world, world.effect)
    if world.control:
        arms[2] = arms[2] + _shift(world, world.control_effect)
    for place, shift in enumerate(_by_nodes(world, count)):
        arms[place] = arms[place] + shift
    kept = np.arange(count) >= WARM_UP
    if world.shed:
        pressure = load + 0.1 * random.standard_normal(count)
        kept &= pressure < np.quantile(pressure[WARM_UP:], 1 - world.shed)
    limit = _limit(world, arms[0][:WARM_UP])
    ratio = math.log1p(world.margin) if world.quantile is not None else 0.0
    within = [arm <= limit + (ratio if i else 0.0) for i, arm in enumerate(arms)]
    z = [w[kept].astype(np.int64) - within[0][kept].astype(np.int64) for w in within[1:]]
    return Pairs(
        second=seconds[kept].astype(np.int64),
        replica=random.integers(0, world.replicas, int(kept.sum())),
        baseline=arms[0][kept],
        candidate=arms[1][kept],
        z=z[0],
        control=z[1] if world.control else None,
        weight=_weights(world, lengths)[kept],
        limit=limit,
    )


def _weights(world: World, lengths: Numbers) -> Whole:
    """As `blocks.weight_of`, by the mean of the warm-up; 1 each where pairs don't weigh by their prompts."""
    if not world.weighted:
        return np.ones(len(lengths), np.int64)
    steps = np.ceil(lengths * STEPS / (HEAVIEST * lengths[:WARM_UP].mean()))
    return np.asarray(steps.clip(1, STEPS), np.int64)


def _arrivals(world: World, count: int, random: np.random.Generator) -> Numbers:
    """Poisson arrivals; diurnal ones come ten times as often at the peak as at night."""
    times = np.cumsum(random.exponential(1 / world.per_second, count))
    if not world.diurnal:
        return times
    grid = np.linspace(0, 2 * times[-1], 4096)
    passed = grid - 0.82 * DAY_S / (2 * np.pi) * (np.cos(2 * np.pi * grid / DAY_S) - 1)
    return np.asarray(np.interp(times, passed, grid), np.float64)


def _difficulty(world: World, lengths: Numbers, random: np.random.Generator) -> Numbers:
    if not world.lengths or world.quantile is None:
        return DIFFICULTY * random.standard_normal(len(lengths))
    return np.asarray(np.log(0.05 + lengths / 8000), np.float64)


def _shift(world: World, effect: float) -> float:
    """What is added to a challenger's log latency."""
    if world.quantile is not None:
        return -effect * math.log1p(world.margin)
    spread = math.hypot(DIFFICULTY, world.noise)
    within = min(1 - 1e-9, 1 - MISSED + effect * world.margin)
    return spread * float(ndtri(1 - MISSED) - ndtri(within))


def _by_nodes(world: World, count: int) -> tuple[Numbers, Numbers]:
    """What is added to the baseline's and to the candidate's log latencies for where they stand."""
    faster = np.full(count, -world.nodes * math.log1p(world.margin))
    changed = (np.arange(count) >= WARM_UP + world.pairs // 2) & world.crossover
    return np.where(changed, faster, 0.0), np.where(changed, 0.0, faster)


def _limit(world: World, warm_up: Numbers) -> float:
    if world.quantile is not None:
        return float(np.quantile(warm_up, world.quantile))
    return math.hypot(DIFFICULTY, world.noise) * float(ndtri(1 - MISSED))
