"""Sums of a pair indicator by blocks of wall-clock time: mergeable, of constant size, exact. No clock, no I/O.

A block's id is floor(unix time / length), the same on every replica. The length is T0 * 2**level: when a series
would exceed `MAX_BLOCKS`, neighbouring blocks join (id // 2) and the level rises. Series of different levels merge
by raising the finer one first, so merging is associative and commutative, and every coarser length a judge may want
can be had from what is kept. Nothing is dropped: the sums over all blocks are the sums over all pairs.

A series may weigh its pairs by the size of their requests: in whole `STEPS` of the size that weighs most, 1 at least.
So sums stay exact, and no request weighs more than the heaviest size allows, however large it is.
"""

import msgspec

MAX_BLOCKS = 512
STEPS = 1000
"""The heaviest weight. A thousandth of it is a two-hundredth of a mean request: fine enough, and short in JSON."""


def weight_of(size: int, heaviest: int) -> int:
    """The weight of a request of `size` bytes, 1 to `STEPS`, where `heaviest` bytes and more weigh `STEPS`."""
    return max(1, min(STEPS, -(-size * STEPS // heaviest)))


class BlockSeries(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`sums[id] = (sum of weights, sum of weight * z)` with ids at `level`. A pair weighs 1, unless pairs are weighed.

    Then `weighed` is the number of pairs, and `even` the sum of weight * z of a challenger that had answered exactly as
    the baseline did. (z of a latency contains the margin, so that sum isn't 0.) `differing` and `squares` are the sums
    of the weights, and of their squares, of pairs whose z isn't 0.
    """

    level: int = 0
    sums: dict[int, tuple[int, int]] = {}
    weighed: int = 0
    even: int = 0
    differing: int = 0
    squares: int = 0

    def add(self, base_id: int, z: int, weight: int = 1) -> None:
        """Add `weight`, and `weight` times z, to the block whose id at level 0 is `base_id`."""
        key = base_id >> self.level
        n, s = self.sums.get(key, (0, 0))
        self.sums[key] = (n + weight, s + weight * z)
        if len(self.sums) > MAX_BLOCKS:
            self._rise()

    def add_weighed(self, base_id: int, z: int, weight: int, even: int = 0) -> None:
        """Count a pair by its weight; `even` is the z of a challenger equal to the baseline."""
        key = base_id >> self.level
        n, s = self.sums.get(key, (0, 0))
        self.sums[key] = (n + weight, s + weight * z)
        if len(self.sums) > MAX_BLOCKS:
            self._rise()
        self.weighed += 1
        self.even += weight * even
        if z:
            self.differing += weight
            self.squares += weight * weight

    def _rise(self) -> None:
        while len(self.sums) > MAX_BLOCKS:
            raised = self.at_level(self.level + 1)
            self.level, self.sums = raised.level, raised.sums

    def at_level(self, level: int) -> "BlockSeries":
        """The same sums in blocks of level `level` or, where that is finer than kept, of the kept one."""
        shift = max(0, level - self.level)
        sums: dict[int, tuple[int, int]] = {}
        for key, (n, s) in self.sums.items():
            n0, s0 = sums.get(key >> shift, (0, 0))
            sums[key >> shift] = (n0 + n, s0 + s)
        return msgspec.structs.replace(self, level=self.level + shift, sums=sums)

    def merged(self, other: "BlockSeries") -> "BlockSeries":
        """Both together, at the coarser level of the two, coarser still where that is needed to stay bounded."""
        level = max(self.level, other.level)
        mine, others = self.at_level(level), other.at_level(level)
        for key, (n, s) in others.sums.items():
            n0, s0 = mine.sums.get(key, (0, 0))
            mine.sums[key] = (n0 + n, s0 + s)
        mine.weighed, mine.even = self.weighed + other.weighed, self.even + other.even
        mine.differing, mine.squares = self.differing + other.differing, self.squares + other.squares
        while len(mine.sums) > MAX_BLOCKS:
            mine = mine.at_level(mine.level + 1)
        return mine

    @property
    def pairs(self) -> int:
        """How many pairs the series has counted."""
        return self.weighed or self.weight

    @property
    def weight(self) -> int:
        """The sum of their weights."""
        return sum(n for n, _ in self.sums.values())
