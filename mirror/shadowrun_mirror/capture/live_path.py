"""How customers fared, from what Envoy counted when their requests ended. Pure.

Envoy keeps a histogram of the microseconds to the first byte of each answered request, and a counter of every request
that went wrong by status and response flags; both by route.
"""

import math
import re
from collections.abc import Iterable

import msgspec

from shadowrun_mirror.evidence import LivePath
from shadowrun_mirror.histogram import GAMMA, Histogram

FIRST_BYTE = re.compile(r"shadowrun\.first_byte\.route\.([a-z]+)-(\d+)")
TROUBLES = re.compile(r"shadowrun\.troubles\.route\.([a-z]+)-(\d+)\.status\.(\d+)\.flags\.(.+)")

_MICROSECOND = 1e-6
_PER_LOG2 = round(1 / math.log2(GAMMA))
_CUSTOMER_LEFT = "DC"


class Bucket(msgspec.Struct):
    """One bucket of Envoy's own log-linear histogram: `count` values in [lower_bound, lower_bound + width)."""

    lower_bound: float
    width: float
    count: int


class Trouble(msgspec.Struct, frozen=True):
    """Requests that ended in one way. `status` 0: nothing was answered."""

    status: int
    flags: frozenset[str]
    count: int

    @property
    def unanswered(self) -> bool:
        """Whether the customer got no status at all."""
        return self.status < 100

    @property
    def is_error(self) -> bool:
        """Whether something was wrong on this side: a customer who leaves before the answer has not met an error."""
        return not (self.unanswered and _CUSTOMER_LEFT in self.flags)


def trouble(status: str, flags: str, count: int) -> Trouble:
    """From the tags of one counter."""
    return Trouble(int(status), frozenset(flags.split(",")), count)


def live_path(buckets: Iterable[Bucket], troubles: Iterable[Trouble]) -> LivePath:
    """Both counts of one group of routes as evidence."""
    first_byte = first_byte_histogram(buckets)
    ended = list(troubles)
    return LivePath(
        requests=first_byte.count + sum(each.count for each in ended if each.unanswered),
        errors=sum(each.count for each in ended if each.is_error),
        first_byte=first_byte,
    )


def first_byte_histogram(buckets: Iterable[Bucket]) -> Histogram:
    """The same values in our bins, seconds.

    A bucket of Envoy's is up to five of our bins wide, so its values are spread over them evenly; no value is lost.
    """
    bins: dict[int, int] = {}
    total = 0.0
    for bucket in buckets:
        low, width = bucket.lower_bound * _MICROSECOND, bucket.width * _MICROSECOND
        total += bucket.count * (low + width / 2)
        given = 0
        index = _bin(low)
        while given < bucket.count:
            share = (GAMMA**index - low) / width if width else 1.0
            below = min(bucket.count, math.floor(bucket.count * share + 0.5)) if share < 1 else bucket.count
            if below > given:
                bins[index] = bins.get(index, 0) + below - given
                given = below
            index += 1
    return Histogram(bins=bins, total=total)


def _bin(seconds: float) -> int:
    return math.ceil(math.log2(max(seconds, 1e-9)) * _PER_LOG2)
