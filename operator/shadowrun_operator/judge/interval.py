"""One look at a mean over blocks: the estimate, and one-sided bounds at any level. Statistics only, no verdict.

The mean of z over all pairs is a ratio of two sums over J blocks of time, R = sum(s) / sum(n), so no block is dropped
and none weighs more than its pairs. Pairs of one block share load and thus aren't independent; blocks are taken to be.

* t bound: variance by linearisation of the ratio, J / (J - 1) * sum((s_j - R n_j)^2) / N^2 (Cochran, Sampling
  Techniques, 3rd ed., 6.3), Student's t with J - 1 degrees of freedom.
* score bound: the t bound is too short where only some dozens of pairs differ (their distribution is skewed; by
  simulation 7 % instead of 5 % with 20 pairs lost and none won) and of no width where none does. So the variance is
  also taken as it would be if the bound were true: that of won and lost pairs at their likeliest shares given their
  difference (Tango, Statistics in Medicine 17, 1998), times the factor, at least 1, by which blocks vary more than
  independent pairs would. Without any pair that differs this is the rule of three.

The wider of the two holds. Where many pairs differ they agree.

Block length: the finest of the dyadic lengths that has `PAIRS_PER_BLOCK` pairs a block and at most `MOST_BLOCKS`
blocks, provided `GOOD_BLOCKS` remain; else the coarsest that leaves `GOOD_BLOCKS`; else the finest there is. Below
`MIN_BLOCKS` nothing is decided. The bounds hold for a single look at an end that doesn't depend on the results.
"""

import math

import msgspec
from scipy.special import stdtrit
from shadowrun_mirror.blocks import BlockSeries

MIN_BLOCKS = 8
GOOD_BLOCKS = 15
MOST_BLOCKS = 60
PAIRS_PER_BLOCK = 20
_STEPS = 40


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of z over pairs, in [-1, 1], with what its bounds need.

    `won` and `lost` are pairs by sign, net within the finest blocks kept. `error` is the standard error.
    """

    mean: float
    error: float
    pairs: int
    blocks: int
    block_s: int
    won: int
    lost: int

    @property
    def decidable(self) -> bool:
        """Whether there are enough blocks for a bound to mean anything."""
        return self.blocks >= MIN_BLOCKS

    def lower(self, alpha: float) -> float:
        """The true mean is below this with a probability of at most `alpha`. -1 where nothing can be said."""
        return -_upper(-self.mean, self.error, self.pairs, self.blocks, self.lost, self.won, alpha)

    def upper(self, alpha: float) -> float:
        """The true mean is above this with a probability of at most `alpha`. 1 where nothing can be said."""
        return _upper(self.mean, self.error, self.pairs, self.blocks, self.won, self.lost, alpha)


def estimate(series: BlockSeries, block_s: int = 1) -> Estimate | None:
    """The estimate from a series whose finest block lasts `block_s` seconds; None without any pair."""
    pairs = series.pairs
    if not pairs:
        return None
    chosen = blocks_of(series)
    mean = sum(s for _, s in chosen.sums.values()) / pairs
    count = len(chosen.sums)
    squares = math.fsum((s - mean * n) ** 2 for n, s in chosen.sums.values())
    error = math.sqrt(squares * count / (count - 1)) / pairs if count > 1 else 0.0
    return Estimate(
        mean=mean,
        error=error,
        pairs=pairs,
        blocks=count,
        block_s=block_s << chosen.level,
        won=sum(max(s, 0) for _, s in series.sums.values()),
        lost=sum(max(-s, 0) for _, s in series.sums.values()),
    )


def blocks_of(series: BlockSeries) -> BlockSeries:
    """The series at the block length that the estimate uses; see the module's text."""
    ladder = [series]
    while len(ladder[-1].sums) > 1:
        ladder.append(ladder[-1].at_level(ladder[-1].level + 1))
    pairs = series.pairs
    good = [rung for rung in ladder if len(rung.sums) >= GOOD_BLOCKS]
    long = [rung for rung in good if len(rung.sums) <= MOST_BLOCKS and pairs >= PAIRS_PER_BLOCK * len(rung.sums)]
    if long:
        return long[0]
    return good[-1] if good else ladder[0]


def _upper(mean: float, error: float, pairs: int, blocks: int, won: int, lost: int, alpha: float) -> float:
    if blocks < 2:
        return 1.0
    t = float(stdtrit(blocks - 1, 1 - alpha))
    return min(1.0, max(mean + t * error, _score_upper(mean, error, pairs, won, lost, t)))


def _score_upper(mean: float, error: float, pairs: int, won: int, lost: int, t: float) -> float:
    """The largest mean that lies within `t` standard errors of the one seen, each error taken at that larger mean."""
    variance = (won + lost) / pairs - mean * mean
    inflation = max(1.0, error * error * pairs / variance) if variance > 1e-12 else 1.0
    inside, outside = mean, 1.0
    for _ in range(_STEPS):
        tried = (inside + outside) / 2
        if tried - mean <= t * math.sqrt(inflation * _variance(pairs, won, lost, tried) / pairs):
            inside = tried
        else:
            outside = tried
    return outside


def _variance(pairs: int, won: int, lost: int, difference: float) -> float:
    """Variance of z if the shares of pairs won and lost differ by `difference` and are else the likeliest ones.

    The share lost, q, is the larger root of 2 n q^2 + ((2n - won + lost) d - won - lost) q - lost d (1 - d) = 0.
    """
    b = (2 * pairs - won + lost) * difference - won - lost
    c = -lost * difference * (1 - difference)
    q = (math.sqrt(max(0.0, b * b - 8 * pairs * c)) - b) / (4 * pairs)
    return max(0.0, 2 * q + difference - difference * difference)
