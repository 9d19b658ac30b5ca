"""When requests come and how long their prompts are, shaped like a public trace. Pure: the random source is given.

The figures were fitted to the conversation trace of Mooncake (kvcache-ai/Mooncake, FAST25-release/traces/
conversation_trace.jsonl at commit 3b5a594, Apache-2.0; 12,031 requests in 3,537 s), of which nothing is copied here:

* its clock ticks every 3 s, so that is the shortest span it says anything about;
* over 3 s the counts have mean 10.20 and variance/mean 5.79. A Poisson process whose rate changes every 3 s by a gamma
  factor of mean 1 has variance/mean = 1 + mean / shape, hence shape = 10.20 / (5.79 - 1) = 2.13. Thinning such a
  process leaves the shape as it is, so a slower generator keeps the burstiness of the trace as seen by a slower site;
* prompts have the quantiles below, in tokens; conversations have 1.63 turns on average, geometrically distributed.
"""

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

SLOT_S = 3.0
STRATA = 8
GAMMA_SHAPE = 2.13
MEAN_TURNS = 1.63
PROMPT_QUANTILES = ((0.0, 300), (0.10, 964), (0.25, 2307), (0.50, 6909), (0.75, 15367), (0.90, 27367), (1.0, 85400))
"""(p, tokens) of the trace; the last is its p99, so that one giant doesn't decide a short run."""


@dataclass(frozen=True)
class Shape:
    """What is asked for: `rate` requests a second on average, turns per conversation, prompt tokens = trace x scale.

    `burstiness` multiplies the fitted variance of the rate: 1 is the trace, 0 a Poisson process.
    """

    rate: float
    mean_turns: float = MEAN_TURNS
    scale: float = 1.0
    shortest: int = 1
    longest: int = 1_000_000
    burstiness: float = 1.0


def poisson(mean: float, source: random.Random) -> int:
    """A Poisson number, by counting exponential gaps; meant for means up to a few hundred."""
    count, left = 0, mean
    while (left := left - source.expovariate(1.0)) > 0:
        count += 1
    return count


def arrival_times(shape: Shape, source: random.Random) -> Iterator[float]:
    """Endless arrival times in seconds from 0, ascending."""
    for slot in itertools.count():
        factor = 1.0
        if shape.burstiness > 0:
            alpha = GAMMA_SHAPE / shape.burstiness
            factor = source.gammavariate(alpha, 1 / alpha)
        count = poisson(shape.rate * SLOT_S * factor, source)
        yield from sorted(slot * SLOT_S + source.random() * SLOT_S for _ in range(count))


def prompt_tokens(shape: Shape, p: float) -> int:
    """Tokens of a first prompt at quantile `p`: the trace's, joined by lines in the logarithm, scaled, clipped.

    Raises ValueError for a `p` outside [0, 1].
    """
    for (p0, low), (p1, high) in itertools.pairwise(PROMPT_QUANTILES):
        if p0 <= p <= p1:
            share = (p - p0) / (p1 - p0)
            tokens = math.exp(math.log(low) * (1 - share) + math.log(high) * share)
            return max(shape.shortest, min(shape.longest, round(tokens * shape.scale)))
    raise ValueError(f"{p} is no quantile")


def stratified(source: random.Random) -> Iterator[float]:
    """Endless numbers in [0, 1): each `STRATA` in a row have one in each of as many equal parts.

    Each by itself is uniform. So a short run meets short and long prompts in the proportion that a long one would.
    """
    while True:
        for part in source.sample(range(STRATA), STRATA):
            yield (part + source.random()) / STRATA


def turns(shape: Shape, source: random.Random) -> int:
    """How many turns a conversation will have: geometric with the shape's mean, at least 1."""
    count = 1
    while source.random() < 1 - 1 / shape.mean_turns:
        count += 1
    return count
