"""Admit: one decision for all arms. A copy becomes a pair, or it does not, with the reason. No I/O, no clock.

There is no queue: over the cap a copy is shed at once. What is remembered of a request is a 64-bit hash of its id.
"""

from collections import OrderedDict

import msgspec
import xxhash

from shadowrun_mirror.copied import REQUEST_ID_HEADER, Copy, joined
from shadowrun_mirror.facts import Facts, Fields
from shadowrun_mirror.live import LiveConfig
from shadowrun_mirror.reasons import DropReason, ExcludeReason
from shadowrun_mirror.select import is_selected

REMEMBERED_IDS = 16_384
"""Request ids within which a second copy of a request is recognised."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A complete copy and what its content says. `fields` is None when the body is missing or not a JSON object."""

    copy: Copy
    facts: Facts
    fields: Fields | None


class Gate:
    """Keeps the number of pairs in flight and the ids already seen."""

    def __init__(self, live: LiveConfig, remembered_ids: int = REMEMBERED_IDS) -> None:
        self._live = live
        self._remembered = remembered_ids
        self._seen: OrderedDict[int, None] = OrderedDict()
        self.in_flight = 0
        self.draining = False

    def objection(self, candidate: Candidate, wall: float, mono: float) -> ExcludeReason | DropReason | None:
        """Why this copy is not admitted; None admits it and takes a slot until `release`.

        A window this replica was never told about comes first: its own rules may be older than those of the copy.
        """
        config, copy = self._live.config, candidate.copy
        if self._live.of_window(copy.window) is None:
            return DropReason.CONFIG_BEHIND
        if not is_selected(config.capture.sampling, copy.headers):
            return ExcludeReason.NOT_SELECTED
        if copy.body is None:
            return DropReason.TOO_LARGE
        if candidate.fields is None:
            return DropReason.UNPARSABLE
        if config.models and candidate.facts.model not in config.models:
            return ExcludeReason.MODEL_NOT_LISTED
        if self._live.expired(wall, mono):
            return DropReason.EXPIRED
        if self.draining or not config.copying:
            return DropReason.DISABLED
        if self._seen_before(copy):
            return DropReason.DUPLICATE
        if self.in_flight >= config.admission.max_in_flight:
            return DropReason.SHED
        self.in_flight += 1
        return None

    def release(self) -> None:
        """Give the slot of an ended pair back."""
        self.in_flight -= 1

    def _seen_before(self, copy: Copy) -> bool:
        request_id = joined(copy.headers, REQUEST_ID_HEADER)
        if not request_id:
            return False  # nothing to recognise it by
        mark = xxhash.xxh64_intdigest(request_id, seed=self._live.config.capture.sampling.seed)
        if mark in self._seen:
            self._seen.move_to_end(mark)
            return True
        self._seen[mark] = None
        if len(self._seen) > self._remembered:
            self._seen.popitem(last=False)
        return False
