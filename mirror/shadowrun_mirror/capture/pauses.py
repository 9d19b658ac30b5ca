"""Which slots of time are without copying, so that customers can be compared with themselves. Pure: `utc` is given.

Every capture pod finds the same answer by itself, from the seed of the run and the clock.
"""

import math

import xxhash

from shadowrun_mirror.config import MODULO, Pauses


def is_paused(pauses: Pauses | None, seed: int, utc: float) -> bool:
    """Whether nothing is to be copied at `utc` (seconds since the epoch)."""
    if pauses is None:
        return False
    slot = math.floor(utc / pauses.slot_s)
    return xxhash.xxh64_intdigest(str(slot).encode(), seed) % MODULO < pauses.share


def seconds_to_next_slot(pauses: Pauses | None, utc: float) -> float:
    """How long the answer of `is_paused` holds at least."""
    if pauses is None:
        return math.inf
    return pauses.slot_s - utc % pauses.slot_s
