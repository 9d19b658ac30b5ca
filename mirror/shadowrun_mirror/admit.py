"""Admit: one decision for all arms. A copy becomes a pair, waits to become one, or does not, with the reason.

No I/O, no clock. What is remembered of a request is a 64-bit hash of its id, and only once it has a slot or a place in
the queue: when a copy is shed, or leaves the queue without a slot, the same request may be tried again.
"""

from collections import OrderedDict, deque
from collections.abc import Callable

import msgspec
import xxhash

from shadowrun_mirror.config import MODULO, WARM_UP, MirrorConfig, Sampling, wants_copies
from shadowrun_mirror.copied import REQUEST_ID_HEADER, Copy, Headers, joined
from shadowrun_mirror.dialects import dialect_of
from shadowrun_mirror.evidence import Lineage
from shadowrun_mirror.facts import Facts, Fields, Transcript, transcript_of
from shadowrun_mirror.lineage import ADOPTION_S, Kind, Lineages, Turn, opening_hash, turn_of
from shadowrun_mirror.live import LiveConfig
from shadowrun_mirror.reasons import DropReason, ExcludeReason, FlagReason
from shadowrun_mirror.rewrite import lacks_history
from shadowrun_mirror.select import drawn_number, is_selected, key_hash

HELD_BODIES_BYTES = 128 * 1024 * 1024
"""Bodies of requests that wait or are in flight, together. Beyond it copies are shed, slot or no slot; one more body
fits. Each may be there twice, as it was copied and as it is sent."""

REMEMBERED_IDS = 16_384
"""Request ids within which a second copy of a request is recognised."""

Reason = ExcludeReason | DropReason


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A copy and what its content says. `fields` is None when the body is missing or not a JSON object.

    `rules` are those of the copy's window; None when this replica was never told about it.
    """

    copy: Copy
    facts: Facts
    fields: Fields | None
    class_name: str
    rules: MirrorConfig | None


class Decision(msgspec.Struct, frozen=True):
    """`reason` None: admitted, with a slot taken; or, if `waits`, in the queue. `seen` is for the evidence."""

    reason: Reason | None = None
    waits: bool = False
    flags: tuple[FlagReason, ...] = ()
    seen: Lineage | None = None


class Waiting(msgspec.Struct, frozen=True):
    """A candidate in the queue since `since` (monotonic seconds)."""

    candidate: Candidate
    flags: tuple[FlagReason, ...]
    turn: Turn | None
    since: float


class _Place(msgspec.Struct, frozen=True):
    """What selection has read: the key's hash, the conversation, and the hash of its opening, where there are any."""

    key: int | None
    transcript: Transcript | None
    opening: int | None


_ADMITTED = Decision()
_WAITS = Decision(waits=True)
_LOST = {reason: Decision(reason=reason) for kind in (ExcludeReason, DropReason) for reason in kind}


class Gate:
    """Keeps the number of pairs in flight, those that wait, the ids already seen, and the conversations.

    `chance(n)` draws a whole number below n at random: a copy from a foreign proxy may have nothing to hash. `mono`
    is when this replica started (monotonic seconds).
    """

    def __init__(
        self,
        live: LiveConfig,
        chance: Callable[[int], int],
        mono: float,
        remembered_ids: int = REMEMBERED_IDS,
        held_bytes: int = HELD_BODIES_BYTES,
    ) -> None:
        self._live = live
        self._chance = chance
        self._remembered = remembered_ids
        self._most_bytes = held_bytes
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._lineages = Lineages(adopt_until=mono if live.config.window == WARM_UP else mono + ADOPTION_S)
        self._waiting: deque[Waiting] = deque()
        self._held_bytes = 0
        self.in_flight = 0
        self.draining = False

    @property
    def waiting(self) -> int:
        """Copies in the queue."""
        return len(self._waiting)

    @property
    def held_bytes(self) -> int:
        """Of the bodies that wait or are in flight, as they came."""
        return self._held_bytes

    @property
    def is_full(self) -> bool:
        """Whether a copy that comes now can have neither a slot nor a place in the queue."""
        admission = self._live.config.admission
        if self._held_bytes >= self._most_bytes:
            return True
        if self._waiting:
            return len(self._waiting) >= admission.max_queued
        return self.in_flight >= admission.max_in_flight and not admission.max_queued

    def decide(self, candidate: Candidate, wall: float, mono: float) -> Decision:
        """What becomes of a copy; a slot it gets is taken until `release`.

        A window this replica was never told about comes first: its own rules may be older than those of the copy.
        Then whether it is wanted, whether anything is, whether it can be read, and last whether there is room.
        """
        config, copy = self._live.config, candidate.copy
        if candidate.rules is None:
            return _LOST[DropReason.CONFIG_BEHIND]
        sampling = config.capture.sampling
        place = _place(sampling, candidate)
        if not self._is_selected(config, candidate, place, self._chance(MODULO) if config.source == "External" else 0):
            return _LOST[ExcludeReason.NOT_SELECTED]
        reason = self._why_closed(wall, mono) or self._unreadable(candidate)
        mark = 0 if reason is not None else _mark(sampling, copy.headers)
        if reason is None and mark in self._seen:
            self._seen.move_to_end(mark)
            reason = DropReason.DUPLICATE
        if reason is None and copy.shed:
            reason = DropReason.SHED
        if reason is not None:
            if candidate.fields is None and sampling.unit == "Conversation" and place.key is not None:
                self._lineages.lost_unread(place.key, mono)
            return _LOST[reason]
        if place.transcript is None:
            return self._placed(candidate, mark, None, (), mono)
        return self._followed(candidate, mark, place, mono)

    def would_shed(self, candidate: Candidate, wall: float, mono: float) -> bool:
        """Whether `decide` would certainly shed a copy of which only the head is here. Changes nothing.

        False also where only the body, or chance, can say whether the copy is wanted at all.
        """
        config = self._live.config
        sampling = config.capture.sampling
        if not self.is_full or candidate.rules is None or config.models or self._closed(wall, mono) is not None:
            return False
        place = _place(sampling, candidate)
        if place.key is None and sampling.needs_body:
            return False
        # What would be drawn at random is taken for the lowest: in for certain only when everything is.
        if not self._is_selected(config, candidate, place, 0):
            return False
        return _mark(sampling, candidate.copy.headers) not in self._seen

    def release(self, size: int) -> None:
        """Give the slot of an ended pair back, whose copy had `size` bytes; ask `next` who gets it."""
        self.in_flight -= 1
        self._held_bytes -= size

    def next(self, wall: float, mono: float) -> tuple[Waiting, DropReason | None] | None:
        """The first in the queue if it must leave it now: into a slot, which is then taken, or out with the reason."""
        if not self._waiting:
            return None
        first, admission = self._waiting[0], self._live.config.admission
        reason = self._closed(wall, mono)
        if reason is None and mono - first.since > admission.max_wait_s:
            reason = DropReason.QUEUE_TIMEOUT
        if reason is None and self.in_flight >= admission.max_in_flight:
            return None
        self._waiting.popleft()
        if reason is None:
            self.in_flight += 1
            return first, None
        self._held_bytes -= first.candidate.copy.size
        self._seen.pop(_mark(self._live.config.capture.sampling, first.candidate.copy.headers), None)
        if first.turn is not None:
            self._lineages.lost(first.turn, mono)
        return first, reason

    def next_due(self) -> float | None:
        """When the first in the queue will have waited too long (monotonic seconds); None when nobody waits."""
        return self._waiting[0].since + self._live.config.admission.max_wait_s if self._waiting else None

    @staticmethod
    def _is_selected(config: MirrorConfig, candidate: Candidate, place: _Place, drawn: int) -> bool:
        return is_selected(
            config.capture.sampling,
            candidate.copy.headers,
            candidate.fields,
            candidate.class_name,
            place.opening,
            drawn if config.source == "External" else None,
        )

    def _unreadable(self, candidate: Candidate) -> Reason | None:
        if candidate.copy.shed:
            return None
        if candidate.copy.body is None:
            return DropReason.TOO_LARGE
        if candidate.fields is None:
            return DropReason.UNPARSABLE
        models = self._live.config.models
        if models and candidate.facts.model not in models:
            return ExcludeReason.MODEL_NOT_LISTED
        rules = dialect_of(candidate.copy.target).request
        return DropReason.CONVERSATION_JOINED_LATE if lacks_history(candidate.fields, rules) else None

    def _closed(self, wall: float, mono: float) -> DropReason | None:
        if self._live.expired(wall, mono):
            return DropReason.EXPIRED
        return DropReason.DISABLED if self.draining or not wants_copies(self._live.config, wall) else None

    def _why_closed(self, wall: float, mono: float) -> Reason | None:
        """As `_closed`, for a copy that has just come: nobody promised it a place."""
        reason = self._closed(wall, mono)
        return ExcludeReason.NOT_COPYING if reason is DropReason.DISABLED and not self.draining else reason

    def _followed(self, candidate: Candidate, mark: int, place: _Place, mono: float) -> Decision:
        """The place of a copy whose conversation is to be followed."""
        assert place.transcript is not None
        seed = self._live.config.capture.sampling.seed
        opening = opening_hash(place.transcript, seed) if place.opening is None else place.opening
        turn = turn_of(place.transcript, seed, place.key, opening)
        step = self._lineages.step(turn, mono, self._live.config.capture.pauses is not None)
        if step.kind is Kind.LATE:
            return Decision(reason=DropReason.CONVERSATION_JOINED_LATE, seen=step.seen)
        decision = self._placed(candidate, mark, turn, step.flags, mono)
        return Decision(reason=decision.reason, waits=decision.waits, flags=step.flags, seen=step.seen)

    def _placed(
        self, candidate: Candidate, mark: int, turn: Turn | None, flags: tuple[FlagReason, ...], mono: float
    ) -> Decision:
        """A slot, a place in the queue, or neither."""
        if self.is_full:
            if turn is not None:
                self._lineages.lost(turn, mono)
            return _LOST[DropReason.SHED]
        if mark:
            self._seen[mark] = None
            if len(self._seen) > self._remembered:
                self._seen.popitem(last=False)
        self._held_bytes += candidate.copy.size
        if self._waiting or self.in_flight >= self._live.config.admission.max_in_flight:
            self._waiting.append(Waiting(candidate, flags, turn, mono))
            return _WAITS
        self.in_flight += 1
        return _ADMITTED


def _place(sampling: Sampling, candidate: Candidate) -> _Place:
    """Reads no more than selection needs: the opening only where it is to decide."""
    key = key_hash(sampling, candidate.copy.headers, candidate.fields)
    if sampling.unit != "Conversation" or candidate.fields is None:
        return _Place(key, None, None)
    by_opening = key is None and sampling.on_missing_key == "Lineage"
    if key is None and not by_opening:
        return _Place(None, None, None)  # a request drawn by itself belongs to no conversation
    transcript = transcript_of(candidate.fields)
    if transcript is None or not by_opening:
        return _Place(key, transcript, None)
    return _Place(None, transcript, opening_hash(transcript, sampling.seed))


def place_of(sampling: Sampling, candidate: Candidate) -> int | None:
    """The number that is the same for all that is drawn together; None where every request is drawn by itself."""
    if sampling.unit == "Request":
        return None
    place = _place(sampling, candidate)
    return drawn_number(sampling, candidate.copy.headers, place.key, place.opening)


def _mark(sampling: Sampling, headers: Headers) -> int:
    """What is remembered of a request id; 0 without one: there is nothing to recognise it by."""
    request_id = joined(headers, REQUEST_ID_HEADER)
    return xxhash.xxh64_intdigest(request_id, seed=sampling.seed) or 1 if request_id else 0
