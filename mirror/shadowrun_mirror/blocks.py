"""Sums of a pair indicator by blocks of wall-clock time: mergeable, of constant size, exact. No clock, no I/O.

A block's id is floor(unix time / length), the same on every replica. The length is T0 * 2**level: when a series
would exceed `MAX_BLOCKS`, neighbouring blocks join (id // 2) and the level rises. Series of different levels merge
by raising the finer one first, so merging is associative and commutative, and every coarser length a judge may want
can be had from what is kept. Nothing is dropped: the sums over all blocks are the sums over all pairs.
"""

import msgspec

MAX_BLOCKS = 512


class BlockSeries(msgspec.Struct, kw_only=True):
    """`sums[id] = (pairs, sum of z)` with ids at `level`."""

    level: int = 0
    sums: dict[int, tuple[int, int]] = {}

    def add(self, base_id: int, z: int) -> None:
        """Count one pair in the block whose id at level 0 is `base_id`; z is -1, 0 or 1."""
        key = base_id >> self.level
        n, s = self.sums.get(key, (0, 0))
        self.sums[key] = (n + 1, s + z)
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
        return BlockSeries(level=self.level + shift, sums=sums)

    def merged(self, other: "BlockSeries") -> "BlockSeries":
        """Both together, at the coarser level of the two, coarser still where that is needed to stay bounded."""
        level = max(self.level, other.level)
        mine, others = self.at_level(level), other.at_level(level)
        for key, (n, s) in others.sums.items():
            n0, s0 = mine.sums.get(key, (0, 0))
            mine.sums[key] = (n0 + n, s0 + s)
        while len(mine.sums) > MAX_BLOCKS:
            mine = mine.at_level(mine.level + 1)
        return mine

    @property
    def pairs(self) -> int:
        """How many pairs the series has counted."""
        return sum(n for n, _ in self.sums.values())
