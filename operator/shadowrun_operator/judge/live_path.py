"""Whether copying harms customers: their errors and times to first byte while copying is on, against paused slots.

The slots are drawn at random, so whatever the primary does by itself falls on both kinds alike. What customers met is
cut into blocks of time, each long enough that half a paused slot is expected in it. A metric is a share of bad requests
(`on_bad / on` against `off_bad / off`), and harm is that the shares differ by more than the limit beyond chance:

* errors: bad is an error, and the tolerated difference is the limit in points.
* latency: bad is a first byte later than t for `off`, later than (1 + limit) t for `on`, where t is the p50 (and in a
  second metric the p90) of `off` as known before the block; the tolerated difference is 0. Bins of a histogram are
  enough for that, and it needs no mean, which a single stalled request could move.

The standard error takes blocks as the unit (variance of a ratio by linearisation, Cochran, Sampling Techniques, 3rd
ed., 6.3), so requests of one slot that share their fate count as one observation. An outage of the primary spoils on
and paused slots alike unless, by the draw, none of its slots is paused: k blocks without one have a probability of
exp(-k/2), and k bad blocks among good ones are sqrt(k) standard errors, of probability exp(-k/2) too. That is what the
length of the blocks is for: a shorter one would take such an outage for proof. The error is never taken to be smaller
than the score variance at the limit itself (Farrington and Manning, Statistics in Medicine 9, 1990), for paused slots
without a single bad request prove little.

The test is looked at again and again, for days. Its bound is the one-sided normal mixture of asymptotic confidence
sequences (Waudby-Smith et al., Time-uniform central limit theory, Annals of Statistics 52, 2024): valid at all looks
together, at `ALPHA` shared among the metrics. The normal quantile is exchanged for Student's t with one degree of
freedom less than there are blocks with paused requests.

The time before copying began serves only as a coarse bound, and only until there are `MIN_BLOCKS` with paused requests
(a quarter of an hour), `COARSE_S` at the most: compared with another time, any trouble of the primary looks like harm.
So it counts for gross trouble alone, where the paused slots so far do not show the same. Pure; whether to end is not
decided here.
"""

import math
from typing import Self

import msgspec
from scipy.special import ndtr, stdtrit
from shadowrun_mirror.evidence import LivePath
from shadowrun_mirror.histogram import GAMMA, Histogram

from shadowrun_operator.judge.figures import percent, seconds
from shadowrun_operator.judge.rules import LivePathLimits

ALPHA = 0.001
"""Probability, over the whole run and all metrics, of taking an equal path for a harmed one."""
QUANTILES = (0.5, 0.9)
MIN_BLOCKS = 8
"""Fewest blocks with paused requests."""
MIN_REQUESTS = 100
"""Fewest requests with copying on, and fewest paused ones."""
COARSE_REQUESTS = 200
"""Against the time before, fewest requests with copying on."""
COARSE_S = 3600.0
"""Against the time before, seconds since the first copy: rare pauses must not let an old hour judge a new one."""
COARSE_POINTS = 0.2
"""Gross trouble: the share of errors rose by so much more than is allowed,"""
COARSE_SHARE = 0.5
COARSE_FACTOR = 3.0
"""or such a share of first bytes came later than so many times what is allowed over the p90 before."""
_BEFORE = 50
_SHARPEST_AT = 30
"""Blocks at which the bound is as narrow as it can be; elsewhere it is a little wider."""


class Moments(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over blocks of x = (on, bad on, off, bad off), and of the products of its parts (upper triangle by rows)."""

    blocks: int = 0
    off_blocks: int = 0
    sums: tuple[int, int, int, int] = (0, 0, 0, 0)
    products: tuple[int, ...] = (0,) * 10

    def plus(self, on: int, on_bad: int, off: int, off_bad: int) -> Self:
        """With one more block."""
        x = (on, on_bad, off, off_bad)
        pairs = [x[i] * x[j] for i in range(4) for j in range(i, 4)]
        a, b, c, d = self.sums
        return type(self)(
            blocks=self.blocks + 1,
            off_blocks=self.off_blocks + (off > 0),
            sums=(a + on, b + on_bad, c + off, d + off_bad),
            products=tuple(old + new for old, new in zip(self.products, pairs, strict=True)),
        )

    @property
    def shares(self) -> tuple[float, float]:
        """Shares of bad requests, on and off."""
        on, on_bad, off, off_bad = self.sums
        return on_bad / on if on else 0.0, off_bad / off if off else 0.0


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """What has been seen of customers so far. `on` and `off` are the totals at `closed`, when the last block ended.

    `before` is what was counted before anything was copied, which began at `began`. Times are UTC seconds.
    """

    closed: float
    began: float = 0.0
    before: LivePath
    on: LivePath
    off: LivePath
    errors: Moments = Moments()
    latency: tuple[Moments, ...] = (Moments(),) * len(QUANTILES)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison as it stands: shares of bad requests, their difference, and how far it may be off by chance."""

    metric: str
    on: float
    off: float
    difference: float
    margin: float
    tolerated: float

    @property
    def harmed(self) -> bool:
        """Whether the difference exceeds what is tolerated beyond chance."""
        return self.difference - self.margin > self.tolerated


def watched(watch: Watch | None, on: LivePath, off: LivePath, now: float, limits: LivePathLimits) -> Watch | None:
    """The watch after another look: the same one until its block is over; None until anything was copied.

    `on` and `off` are the totals as of `now`. A block in which nothing was copied (the run is suspended) or in which
    counters fell back (some were lost) compares nothing and is left out.
    """
    if watch is None:
        return None if not on.requests else Watch(closed=now, began=now, before=off, on=on, off=off)
    if now - watch.closed < limits.block_s:
        return watch
    on_requests, off_requests = on.requests - watch.on.requests, off.requests - watch.off.requests
    if on_requests <= 0 or off_requests < 0:
        return msgspec.structs.replace(watch, closed=now, on=on, off=off)
    errors = watch.errors.plus(on_requests, on.errors - watch.on.errors, off_requests, off.errors - watch.off.errors)
    latency = tuple(
        _with_latencies(moments, q, watch, on, off, limits.latency or 0.0)
        for moments, q in zip(watch.latency, QUANTILES, strict=True)
    )
    return msgspec.structs.replace(watch, closed=now, on=on, off=off, errors=errors, latency=latency)


def compared(watch: Watch, limits: LivePathLimits) -> tuple[Comparison, ...]:
    """Every comparison that has enough to say something."""
    named = [("errors", watch.errors, limits.errors or 0.0)] if limits.errors is not None else []
    if limits.latency is not None:
        named += [(f"first byte p{100 * q:.0f}", m, 0.0) for q, m in zip(QUANTILES, watch.latency, strict=True)]
    found = (comparison(name, m, tolerated, ALPHA / (1 + len(QUANTILES))) for name, m, tolerated in named)
    return tuple(f for f in found if f is not None)


def comparison(metric: str, moments: Moments, tolerated: float, alpha: float) -> Comparison | None:
    """One comparison, with a margin that holds at all looks together; None below the least counts."""
    on, _, off, _ = moments.sums
    if moments.off_blocks < MIN_BLOCKS or on < MIN_REQUESTS or off < MIN_REQUESTS:
        return None
    share, other = moments.shares
    margin = _boundary(moments.off_blocks, alpha) * _standard_error(moments, tolerated)
    return Comparison(metric=metric, on=share, off=other, difference=share - other, margin=margin, tolerated=tolerated)


def harm(watch: Watch | None, on: LivePath, off: LivePath, now: float, limits: LivePathLimits) -> str | None:
    """A sentence with the numbers where customers are worse off than is tolerated. `on`, `off`: totals as of now."""
    if watch is None:
        return None
    found = [f for f in compared(watch, limits) if f.harmed]
    if found:
        return _errors_sentence(watch, found[0]) if found[0].metric == "errors" else _latency_sentence(watch, limits)
    if watch.errors.off_blocks >= MIN_BLOCKS or now - watch.began > COARSE_S:
        return None
    return _coarse_errors(watch, on, off, limits) or _coarse_latency(watch, on, off, limits)


def _with_latencies(
    moments: Moments, quantile: float, watch: Watch, on: LivePath, off: LivePath, limit: float
) -> Moments:
    """The block's answers against the quantile of all paused ones before it; left out while those are too few."""
    known = watch.off.first_byte
    if known.count < MIN_REQUESTS:
        return moments
    edge = known.quantile(quantile)
    on_now, off_now = on.first_byte.since(watch.on.first_byte), off.first_byte.since(watch.off.first_byte)
    return moments.plus(on_now.count, _later(on_now, edge, limit), off_now.count, _later(off_now, edge, 0.0))


def _later(histogram: Histogram, edge: float, limit: float) -> int:
    """How many values lie beyond (1 + limit) times the upper edge of a bin, that limit rounded up to whole bins."""
    if not math.isfinite(edge):
        return histogram.failed
    index = round(math.log(edge, GAMMA)) + math.ceil(math.log(1 + limit, GAMMA) - 1e-9)
    return histogram.failed + sum(n for k, n in histogram.bins.items() if k > index)


def _standard_error(moments: Moments, tolerated: float) -> float:
    """The larger of the error by blocks and the score error at the limit, inflated as blocks vary."""
    on, on_bad, off, off_bad = moments.sums
    share, other = moments.shares
    weights = (-share / on, 1 / on, other / off, -1 / off)
    entries = iter(moments.products)
    square = 0.0
    for i in range(4):
        for j in range(i, 4):
            square += (1 if i == j else 2) * weights[i] * weights[j] * next(entries)
    by_blocks = max(0.0, square) * moments.off_blocks / (moments.off_blocks - 1)
    independent = share * (1 - share) / on + other * (1 - other) / off
    inflation = max(1.0, by_blocks / independent) if independent > 0 else 1.0
    off_0 = min(1.0, max(0.0, (on_bad + off_bad - tolerated * on) / (on + off)))
    on_0 = min(1.0, off_0 + tolerated)
    return math.sqrt(max(by_blocks, inflation * (on_0 * (1 - on_0) / on + off_0 * (1 - off_0) / off)))


def _boundary(blocks: int, alpha: float) -> float:
    """How many standard errors the difference must exceed, at any look."""
    width = -2 * math.log(2 * alpha)
    a = blocks * (width + math.log1p(width)) / _SHARPEST_AT
    z = math.sqrt(2 * (a + 1) / a * math.log1p(math.sqrt(a + 1) / (2 * alpha)))
    return -float(stdtrit(blocks - 1, float(ndtr(-z))))


def _errors_sentence(watch: Watch, found: Comparison) -> str:
    on, on_bad, off, off_bad = watch.errors.sums
    return (
        f"Copying costs customers errors: {percent(on_bad, on)} of {on} requests with copying on,"
        f" {percent(off_bad, off)} of {off} in paused slots, {100 * found.difference:.1f} points more and at least"
        f" {100 * (found.difference - found.margin):.1f}; {100 * found.tolerated:g} allowed."
    )


def _latency_sentence(watch: Watch, limits: LivePathLimits) -> str:
    on, off = watch.on.first_byte, watch.off.first_byte.since(watch.before.first_byte)
    said = ", ".join(
        f"p{100 * q:.0f} {seconds(on.quantile(q))} against {seconds(off.quantile(q))}"
        f" ({100 * (on.quantile(q) / off.quantile(q) - 1):+.0f}%)"
        for q in QUANTILES
    )
    return (
        f"Copying costs customers time to the first byte: {said}, over {on.count} requests with copying on and"
        f" {off.count} in paused slots; {100 * (limits.latency or 0.0):+g}% allowed."
    )


def _coarse_errors(watch: Watch, on: LivePath, off: LivePath, limits: LivePathLimits) -> str | None:
    before, paused = watch.before, off.requests - watch.before.requests
    if limits.errors is None or before.requests < _BEFORE or on.requests < COARSE_REQUESTS:
        return None
    now, then = on.errors / on.requests, before.errors / before.requests
    since = (off.errors - before.errors) / paused if paused > 0 else 0.0
    if now - max(then, since) <= limits.errors + COARSE_POINTS:
        return None
    return (
        f"Customers' errors rose with copying: {percent(on.errors, on.requests)} of {on.requests} requests,"
        f" {percent(before.errors, before.requests)} of {before.requests} before copying began and"
        f" {percent(since, 1)} of {max(0, paused)} in paused slots; {100 * limits.errors:g} points more allowed."
    )


def _coarse_latency(watch: Watch, on: LivePath, off: LivePath, limits: LivePathLimits) -> str | None:
    before = watch.before.first_byte
    if limits.latency is None or before.count < _BEFORE or on.first_byte.count < COARSE_REQUESTS:
        return None
    edge, factor = before.quantile(QUANTILES[-1]), COARSE_FACTOR * (1 + limits.latency)
    paused = off.first_byte.since(before)
    slow = _later(on.first_byte, edge, factor - 1) / on.first_byte.count
    slow_off = _later(paused, edge, factor - 1) / paused.count if paused.count > 0 else 0.0
    if slow <= COARSE_SHARE or slow_off > slow / 2:
        return None
    return (
        f"Customers' first byte came later with copying: after {seconds(factor * edge)} for {percent(slow, 1)} of"
        f" {on.first_byte.count} requests and {percent(slow_off, 1)} of {max(0, paused.count)} in paused slots; before"
        f" copying began {QUANTILES[-1]:.0%} came within {seconds(edge)}; {100 * limits.latency:+g}% allowed."
    )
