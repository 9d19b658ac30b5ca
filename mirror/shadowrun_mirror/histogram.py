"""A mergeable log histogram of latencies: fixed bins, exact merge, bounded relative error. No clock, no I/O.

Bin k holds values in (GAMMA**(k-1), GAMMA**k] seconds with GAMMA = 2**(1/32), so a value is known to within about
1.1 %. Failures are kept beside the bins as +infinity, never left out. The same scheme as a Prometheus native
histogram of schema 5 and as DDSketch (Masson et al., VLDB 2019).
"""

import math

import msgspec

GAMMA = 2 ** (1 / 32)
_PER_LOG2 = 32


class Histogram(msgspec.Struct, kw_only=True):
    """Counts by bin; `failed` counts values of +infinity, `total` the sum of the finite ones in seconds."""

    bins: dict[int, int] = {}
    failed: int = 0
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one value. Infinity counts as failed; anything at or below a nanosecond falls into its bin."""
        if seconds == math.inf:
            self.failed += 1
            return
        index = math.ceil(math.log2(max(seconds, 1e-9)) * _PER_LOG2)
        self.total += seconds
        self.bins[index] = self.bins.get(index, 0) + 1

    @property
    def count(self) -> int:
        """All values, failed ones included."""
        return sum(self.bins.values()) + self.failed

    def merged(self, other: "Histogram") -> "Histogram":
        """Both together; associative and commutative."""
        bins = dict(self.bins)
        for index, count in other.bins.items():
            bins[index] = bins.get(index, 0) + count
        return Histogram(bins=bins, failed=self.failed + other.failed, total=self.total + other.total)

    def since(self, earlier: "Histogram") -> "Histogram":
        """What was counted after `earlier`, a snapshot of the same histogram."""
        bins = {index: n - earlier.bins.get(index, 0) for index, n in self.bins.items()}
        return Histogram(
            bins={index: n for index, n in bins.items() if n},
            failed=self.failed - earlier.failed,
            total=self.total - earlier.total,
        )

    def quantile(self, p: float) -> float:
        """Upper edge in seconds of the bin that holds the p-quantile (0 < p <= 1); +infinity where failures reach it.

        NaN when empty.
        """
        count = self.count
        if not count:
            return math.nan
        rank, seen = math.ceil(p * count), 0
        for index in sorted(self.bins):
            seen += self.bins[index]
            if seen >= rank:
                return float(GAMMA**index)
        return math.inf

    def share_at_most(self, seconds: float) -> float:
        """Share of all values (failed ones included) in bins whose upper edge is at most `seconds`."""
        count = self.count
        if not count:
            return math.nan
        return sum(n for index, n in self.bins.items() if GAMMA**index <= seconds * (1 + 1e-12)) / count
