"""Requests that fail, by length or not, watched by the test for DroppedHardRequests after every block of pairs.

Who fails is drawn request by request, or in waves (an arm is away for a while). Lengths are those of a public trace; in
`runs_of_length` neighbours are alike, as when a batch of documents comes. No judging here: the product's own test does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.evidence import Amount
from shadowrun_operator.judge.funnel import ArmCounts, Count
from shadowrun_operator.judge.hard_drops import block_level, matters, scores

from tests.bench.verdict.lengths import SHARES, TOKENS
from tests.bench.verdict.play import Outcome
from tests.bench.verdict.world import Whole, autoregressive

Flags = NDArray[np.bool_]
_LOOK = 20
_BYTES = 4


@dataclass(frozen=True)
class Failing:
    """What fails: shares of the requests. `*_longest` are the longest ones, `*_any` any, by chance; `away` is the
    length in seconds of times in which the candidate answers nothing, `every` how far apart they begin on average."""

    candidate_longest: float = 0.0
    candidate_any: float = 0.0
    baseline_longest: float = 0.0
    baseline_any: float = 0.0
    both_longest: float = 0.0  # each arm fails one of these with probability 1/2, by itself
    away: float = 0.0
    every: float = 600.0
    runs_of_length: float = 0.0  # correlation of neighbours' lengths
    lengths: str = "mooncake"
    pairs: int = 4000
    per_second: float = 2.0
    scopes: int = 1  # classes and their sum, among which the level is shared


def played(world: Failing, random: np.random.Generator) -> Outcome:
    """Fail at the first look that says so; else open, for long requests that failed ("Open") or not ("")."""
    at = np.cumsum(random.exponential(1 / world.per_second, world.pairs))
    ranks = ndtr(autoregressive(world.pairs, world.runs_of_length, random))
    tokens = np.exp(np.interp(ranks, SHARES, np.log(TOKENS[world.lengths]))).astype(np.int64)
    ours = _failed(world.candidate_longest, world.candidate_any, ranks, random) | _away(world, at, random)
    theirs = _failed(world.baseline_longest, world.baseline_any, ranks, random)
    both = ranks > 1 - world.both_longest
    ours |= both & (random.random(world.pairs) < 0.5)
    theirs |= both & (random.random(world.pairs) < 0.5)
    return _watched(world, at.astype(np.int64), tokens, ours, theirs)


def _watched(world: Failing, seconds: Whole, tokens: Whole, ours: Flags, theirs: Flags) -> Outcome:
    known, seen = BlockSeries(), BlockSeries()
    held = False
    counts = [_running(tokens, flags) for flags in (np.ones_like(ours), ours, theirs)]
    for before, count in pairwise(range(0, world.pairs + 1, _LOOK)):
        for i in range(before, count):
            seen.add(int(seconds[i]), 0)
            if ours[i] != theirs[i]:
                known.add(int(seconds[i]), _BYTES * int(tokens[i]), int(ours[i]) - int(theirs[i]))
        whole, failed, others = (of(count) for of in counts)
        arms = (ArmCounts(completed=whole - part, failed={"Timeout": part}) for part in (failed, others))
        held = matters(whole, *arms)
        if not held:
            continue
        ended = Amount(requests=whole.requests, bytes=_BYTES * whole.tokens)
        if scores(known, ended, block_level([seen, known]), world.scopes).are_beyond_chance:
            return Outcome("Fail", count)
    return Outcome("Open" if held else "", world.pairs)


def _running(tokens: Whole, flags: Flags) -> Callable[[int], Count]:
    requests, lengths = np.cumsum(flags), np.cumsum(tokens * flags)
    return lambda count: Count(requests=int(requests[count - 1]), tokens=int(lengths[count - 1]))


def _failed(longest: float, by_chance: float, ranks: NDArray[np.float64], random: np.random.Generator) -> Flags:
    return np.asarray((ranks > 1 - longest) | (random.random(len(ranks)) < by_chance))


def _away(world: Failing, at: NDArray[np.float64], random: np.random.Generator) -> Flags:
    if not world.away:
        return np.zeros(len(at), np.bool_)
    starts = np.cumsum(random.exponential(world.every, max(8, int(4 * at[-1] / world.every))))
    since = at[:, None] - starts[None, :]
    return np.asarray(((since >= 0) & (since < world.away)).any(axis=1))
