"""The mean of z over pairs, and one-sided bounds of it that hold at every look. Statistics only, no verdict.

The mean is a ratio of two sums over J blocks of time, R = sum(s) / sum(n), so no block is dropped and none weighs more
than its pairs; with s = sum(w z) and n = sum(w) where pairs have weights w. Its error takes blocks as the unit:
variance by linearisation, J / (J - 1) * sum((s_j - R n_j)^2) / N^2 (Cochran, Sampling Techniques, 3rd ed., 6.3). The
wider of two bounds holds, k being that of `sequence`:

* by blocks: k standard errors, k being exchanged for the same tail of Student's t (J - 1 degrees of freedom).
* by counts: means whose likelihood ratio against the pairs won and lost is k^2 or less (`likelihood`); or k^2 of the
  first bound times the factor by which blocks vary more than independent pairs would, where that is more. It is the
  wider one where few pairs differ, and keeps a width where none does.

Where many pairs differ, the two agree. With weights, counts are weights in units of u = sum(w^2) / sum(w), over the
pairs that differ and one more of the greatest weight (Fay and Feuer, Statistics in Medicine 16, 1997, have that for
rates of unequal parts). Where none differs u is the greatest weight, and the bound that of so many pairs of that
weight: of all ways to spread the weight over pairs, the one that leaves most to chance.

Length of a block: the shortest multiple of the finest one kept that has at least `PAIRS_PER_BLOCK` pairs a block, and
`TIMES` times the autocorrelation time (`autocorrelation`), both on average over the blocks that have pairs. The time is
the longer one of z's own and of those given as `beside` (the control's), each over the finest blocks kept, at most 512.
It is estimated anew from all the evidence at every look, so that a judge needs no memory. Below `MIN_BLOCKS` nothing is
decided.

Short runs have no `FULL_BLOCKS` of such length. For them, the longest blocks of which there are `FEW_BLOCKS` (else
`MIN_BLOCKS`) are taken, and the first kind of bound takes the variance `CAUTION` times, or twice their autocorrelation
time where that is more: load may move more slowly than so short a run can show. That holds for a single look too. And
at levels below `USUAL_ALPHA`, so for Fail and for the control, Student's t has no more degrees of freedom than there
are times `FREE_TIMES` as long as the autocorrelation time (but `LEAST_FREEDOM`), nor than blocks of `PAIRS_PER_BLOCK`
(but `SHORT_FREEDOM`): blocks that correlate know their own variance worse than their number says, and that shows far
out in the tail. So large effects are found in half a minute, and small ones only when there is enough to know the
noise. The numbers are from simulation (`tests/bench`).
"""

import math
from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from shadowrun_mirror.blocks import STEPS, BlockSeries

from shadowrun_operator.judge.autocorrelation import autocorrelation_time
from shadowrun_operator.judge.likelihood import distance, highest_mean
from shadowrun_operator.judge.sequence import multiplier, of_few

MIN_BLOCKS = 15
FULL_BLOCKS = 24
FEW_BLOCKS = 18
PAIRS_PER_BLOCK = 20
TIMES = 10.0
CAUTION = 4.5
USUAL_ALPHA = 0.05
SHORT_FREEDOM = 10
LEAST_FREEDOM = 8
FREE_TIMES = 6.0


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of z over pairs, in [-1, 1], with what its bounds need.

    `won` and `lost` are pairs by sign, net within the finest blocks kept, of `trials`: all pairs, or their weight in
    units of u (see above). `error` is the standard error. `units` counts
    blocks of the length required, however long those taken are. `full` is how many pairs it takes until blocks are as
    long as they should be, `caution` what the variance is multiplied by until then, and `freedom` the most degrees of
    freedom that the variance has until then.
    """

    mean: float
    error: float
    pairs: int
    blocks: int
    block_s: int
    won: float
    lost: float
    trials: float
    units: float
    full: int
    caution: float = 1.0
    freedom: float = SHORT_FREEDOM

    @property
    def decidable(self) -> bool:
        """Whether there are enough blocks for a bound to mean anything."""
        return self.blocks >= MIN_BLOCKS

    def lower(self, alpha: float) -> float:
        """With probability 1 - `alpha` never above the true mean, at whichever looks. -1 where nothing can be said."""
        return -self._mirrored.upper(alpha)

    def upper(self, alpha: float) -> float:
        """With probability 1 - `alpha` never below the true mean, at whichever looks. 1 where nothing can be said."""
        if self.blocks < 2:
            return 1.0
        return self._upper(multiplier(self.units, alpha), self._freedom(alpha))

    def once(self, alpha: float) -> tuple[float, float]:
        """Both bounds, each at level `alpha`, for a single look: narrower, with the same caution in a short run."""
        if self.blocks < 2:
            return -1.0, 1.0
        z, freedom = -float(ndtri(alpha)), self._freedom(alpha)
        return -self._mirrored._upper(z, freedom), self._upper(z, freedom)

    def _freedom(self, alpha: float) -> float:
        short = self.caution > 1 and alpha < USUAL_ALPHA
        return min(self.blocks - 1, self.freedom) if short else self.blocks - 1

    @property
    def _mirrored(self) -> "Estimate":
        return msgspec.structs.replace(self, mean=-self.mean, won=self.lost, lost=self.won)

    def _upper(self, multiple: float, freedom: float) -> float:
        of_blocks = of_few(multiple, freedom)
        variance = (self.won + self.lost) / self.trials - self.mean * self.mean
        inflation = self.error * self.error * self.trials / variance if variance > 1e-12 else 0.0
        reach = max(multiple * multiple, inflation * of_blocks * of_blocks)
        by_blocks = min(1.0, self.mean + of_blocks * math.sqrt(self.caution) * self.error)
        if distance(self.trials, self.won, self.lost, by_blocks) >= reach:  # then counts leave less open
            return by_blocks
        by_counts = highest_mean(self.trials, self.won, self.lost, reach)
        return max(by_blocks, by_counts)


class _Blocks(msgspec.Struct, frozen=True):
    """A series in the order of time, in blocks of `length` finest ones; only blocks that have pairs.

    `weights` and `sums` are those of `BlockSeries`; `pairs` is how many pairs they are of in all.
    """

    length: int
    ids: NDArray[np.int64]
    weights: NDArray[np.int64]
    sums: NDArray[np.int64]
    pairs: int

    @property
    def residuals(self) -> NDArray[np.float64]:
        """What each block's sum has beyond its share of the mean."""
        mean = float(self.sums.sum()) / float(self.weights.sum())
        return np.asarray(self.sums - mean * self.weights, np.float64)

    def joined(self, length: int) -> "_Blocks":
        """In blocks of `length` of these, counted from the epoch as all are, so that replicas agree."""
        ids = self.ids // length
        starts = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1])))
        weights, sums = (np.add.reduceat(values, starts) for values in (self.weights, self.sums))
        return _Blocks(self.length * length, ids[starts], weights, sums, self.pairs)


def estimate(series: BlockSeries, block_s: int = 1, beside: Iterable[BlockSeries] = ()) -> Estimate | None:
    """The estimate from a series whose finest block lasts `block_s` seconds; None without any pair."""
    if not series.sums:
        return None
    finest = _blocks(series)
    correlated = max(_correlated_pairs(blocks) for blocks in (finest, *(_blocks(o) for o in beside if o.sums)))
    needed = max(float(PAIRS_PER_BLOCK), TIMES * correlated)
    taken = _long_enough(finest, needed)
    settled = len(taken.ids) >= FULL_BLOCKS
    if not settled:
        taken = _as_there_are(finest)
    pairs, count, residuals = finest.pairs, len(taken.ids), taken.residuals
    weight, unit = int(finest.weights.sum()), _unit(series)
    error = math.sqrt(float(residuals @ residuals) * count / (count - 1)) / weight if count > 1 else 0.0
    return Estimate(
        mean=int(finest.sums.sum()) / weight,
        error=error,
        pairs=pairs,
        blocks=count,
        block_s=(block_s << series.level) * taken.length,
        won=int(finest.sums.clip(0).sum()) / unit,
        lost=int((-finest.sums).clip(0).sum()) / unit,
        trials=weight / unit,
        units=max(float(count), pairs / needed),
        full=math.ceil(FULL_BLOCKS * needed),
        caution=1.0 if settled else max(CAUTION, 2 * autocorrelation_time(residuals)),
        freedom=_freedom(pairs, correlated),
    )


def _freedom(pairs: int, correlated: float) -> float:
    """Degrees of freedom of a short run's variance, far out: as many as there are parts that don't correlate."""
    most = max(SHORT_FREEDOM, pairs / PAIRS_PER_BLOCK)
    return min(most, max(LEAST_FREEDOM, pairs / (FREE_TIMES * correlated))) if correlated else most


def _unit(series: BlockSeries) -> float:
    """The weight that counts as one pair where few differ; 1 where all weigh 1."""
    return (series.squares + STEPS * STEPS) / (series.differing + STEPS) if series.weighed else 1.0


def _blocks(series: BlockSeries) -> _Blocks:
    ids = np.fromiter(series.sums.keys(), np.int64, len(series.sums))
    values = np.array(list(series.sums.values()), np.int64)
    order = ids.argsort()
    weights, sums = values[order, 0], values[order, 1]
    return _Blocks(1, ids[order], weights, sums, series.weighed or int(weights.sum()))


def _correlated_pairs(blocks: _Blocks) -> float:
    """The autocorrelation time in pairs; 0 where there is none."""
    time = autocorrelation_time(blocks.residuals)
    return time * blocks.pairs / len(blocks.ids) if time > 1 else 0.0


def _long_enough(finest: _Blocks, needed: float) -> _Blocks:
    """Blocks with the pairs that are needed; fewer than `FULL_BLOCKS` where there are none such."""
    length, taken = 1, finest
    while len(taken.ids) >= FULL_BLOCKS and finest.pairs < needed * len(taken.ids):
        length = max(length + 1, math.ceil(length * needed * len(taken.ids) / finest.pairs))
        taken = finest.joined(length)
    return taken


def _as_there_are(finest: _Blocks) -> _Blocks:
    """The longest blocks that leave `FEW_BLOCKS`, else `MIN_BLOCKS`; the finest where there are fewer."""
    count = len(finest.ids)
    for least in (FEW_BLOCKS, MIN_BLOCKS):
        for length in range(count // least, 0, -1):
            taken = finest.joined(length)
            if len(taken.ids) >= least:
                return taken
    return finest
