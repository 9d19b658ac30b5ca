"""Join: pairs here, and the primary's outcomes as capture logged them, by a 64-bit hash of the request id. Pure.

Either may come first. What waits for its other half is bounded in number on both sides, and the oldest goes first: a
request that was logged but never copied, or copied but never logged, is forgotten. No id is kept, only its hash.
"""

from collections import OrderedDict
from typing import Generic, Literal, TypeVar, get_args

import msgspec
import xxhash

REMEMBERED = 16_384
"""Halves kept on either side; at 100 pairs a second that is the wait for an answer of more than two minutes."""

T = TypeVar("T")
Kind = Literal["answered", "refused", "failed", "cut"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the primary made of one request; `kind` names the field of `evidence.PrimaryEvidence` it counts in."""

    kind: Kind
    first_byte_s: float | None  # None: no byte of an answer, or not known


def request_mark(request_id: bytes) -> int:
    """What is remembered of a request id; never 0, which stands for no id."""
    return xxhash.xxh64_intdigest(request_id) or 1


def outcome_of(status: int, flags: str, first_byte_s: float | None) -> Outcome:
    """The outcome by the status the customer got (0: none) and Envoy's response flags, joined with ",".

    `DC` is the customer's own end of the connection, whatever had been answered by then.
    """
    kind: Kind
    if "DC" in flags.split(","):
        kind = "cut"
    elif 400 <= status < 500:
        kind = "refused"
    elif 200 <= status < 400:
        kind = "answered"
    else:
        kind = "failed"
    return Outcome(kind=kind, first_byte_s=first_byte_s)


class OutcomeJoin(Generic[T]):
    """Holds the halves that came first."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._pairs: OrderedDict[int, T] = OrderedDict()
        self._outcomes: OrderedDict[int, Outcome] = OrderedDict()

    def pair(self, mark: int, pair: T) -> Outcome | None:
        """A pair was admitted; the outcome if that was here first."""
        outcome = self._outcomes.pop(mark, None)
        if outcome is None:
            self._pairs[mark] = pair
            if len(self._pairs) > self._remembered:
                self._pairs.popitem(last=False)
        return outcome

    def outcome(self, mark: int, outcome: Outcome) -> T | None:
        """The primary's part ended; the pair if that was here first."""
        pair = self._pairs.pop(mark, None)
        if pair is None:
            self._outcomes[mark] = outcome
            if len(self._outcomes) > self._remembered:
                self._outcomes.popitem(last=False)
        return pair
