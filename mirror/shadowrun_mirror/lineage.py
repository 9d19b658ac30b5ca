"""Lineage: which conversation a copy belongs to, and whether this replica has seen the turns before it. Pure.

A conversation is known by its key, or else by its opening: the system prompt and the first user message. Two
conversations may share an opening, so an opening is no identity; what went before is followed by hashes chained over
the messages. Each request leaves the hash of all it said; a later one whose history ends in such a hash continues it.
Hashes are 64 bits, salted with the run's seed (or with the key's hash); nothing else is remembered, and that is
bounded in number and in time.

A prompt that is no list of messages has no turns to follow: it is a first turn, whatever it holds.
"""

import re
from enum import Enum
from typing import NamedTuple

import msgspec
import xxhash

from shadowrun_mirror.evidence import Lineage
from shadowrun_mirror.facts import Transcript, is_answer, is_user
from shadowrun_mirror.reasons import FlagReason

KEPT_S = 1800.0
"""What is not met again is remembered for at least this long, and for at most twice as long."""

KEPT_ENTRIES = 100_000
"""At most twice as many hashes are held, about 20 MB; at a hundred turns a second that reaches back half an hour."""

ADOPTION_S = 600.0
"""A replica that starts in a counted window has lost what its predecessor knew, but the arms have served those
conversations. For this long it takes up any conversation it meets, as broken since nothing proves its history. Most
turns follow the last one within minutes; longer would let in conversations that began before the run did."""

_PROMPT_OPENING = 1024  # bytes
_GAP, _UNREAD = 1, 2
_CONVERSATION, _OPENING = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F  # keep the kinds of marks in one memory apart
_CACHE_CONTROL = b'"cache_control"'
_MARKER = re.compile(rb',\s*"cache_control"\s*:\s*(?:\{[^{}]*\}|null)|"cache_control"\s*:\s*(?:\{[^{}]*\}|null)\s*,?')


class Turn(msgspec.Struct, frozen=True):
    """One request's place in its conversation, in hashes."""

    conversation: int
    opening: int
    before: int | None  # of the request this one goes on from; None for a first turn
    after: int  # of all that this request said


class Kind(Enum):
    """How a turn relates to what was seen before."""

    FIRST = "first"
    CONTINUED = "continued"
    BROKEN = "broken"
    LATE = "late"


class Step(NamedTuple):
    """What is known of a turn once it has been looked up."""

    kind: Kind
    flags: tuple[FlagReason, ...]
    seen: Lineage  # to be added to the evidence


def opening_hash(transcript: Transcript, seed: int) -> int:
    """Hash of the conversation's beginning: the same at every turn of it, and of any that begins alike."""
    digest = _hashed(transcript.preamble, seed)
    if transcript.is_prompt:
        return xxhash.xxh64_intdigest(memoryview(transcript.items[0])[:_PROMPT_OPENING], seed=digest)
    for item in transcript.items:
        digest = _hashed(item, digest)
        if is_user(item):
            break
    return digest


def turn_of(transcript: Transcript, seed: int, key: int | None, opening: int) -> Turn:
    """A request's place; `key` is the hash of the conversation's key, where it has one.

    The request it goes on from ended before the last answer; without a user before that answer (a greeting) there was
    none. What a client has begun at the end, for the model to go on from, is not yet said.
    """
    items, start = transcript.items, seed if key is None else key
    end = answer = _before_answers(items, len(items))
    while answer and not is_answer(items[answer - 1]):
        answer -= 1
    history = _before_answers(items, answer)
    if not any(map(is_user, items[:history])):
        history = -1
    digest, before = _hashed(transcript.preamble, start), None
    for index, item in enumerate(items[:end]):
        if index == history:
            before = digest
        digest = _hashed(item, digest)
    if bytes(transcript.elsewhere) != b"null":
        before = _hashed(transcript.elsewhere, start)
    return Turn(conversation=opening if key is None else key, opening=opening, before=before, after=digest)


class Lineages:
    """What this replica remembers. `adopt_until` (monotonic seconds): until then no conversation has joined late."""

    def __init__(self, adopt_until: float, entries: int = KEPT_ENTRIES, kept_s: float = KEPT_S) -> None:
        self._adopt_until = adopt_until
        self._memory = _Memory(entries, kept_s)

    def step(self, turn: Turn, now: float, pauses: bool = False) -> Step:
        """Look a turn up and remember it, unless it joined late. `now` is monotonic seconds, never going back.

        With `pauses` in copying, a turn whose history is not known most likely follows one that was not copied.
        """
        memory, conversation = self._memory, turn.conversation ^ _CONVERSATION
        known = memory.get(conversation, now)
        if turn.before is None:
            new = memory.get(turn.opening ^ _OPENING, now) is None
            memory.put(turn.opening ^ _OPENING, 0, now)
            step = _STEPS[Kind.FIRST, new]
        elif (history := memory.get(turn.before, now)) is not None:
            step = _STEPS[Kind.CONTINUED, bool(history & _GAP)]
        elif known is None and now >= self._adopt_until:
            return _STEPS[Kind.LATE, False]
        elif known is not None and known & _UNREAD:
            step = _STEPS[Kind.CONTINUED, True]  # its history is the turn that was dropped unread
        else:
            step = _STEPS[Kind.BROKEN, pauses]
        memory.put(conversation, 0, now)
        memory.put(turn.after, _GAP if FlagReason.AFTER_GAP in step.flags else 0, now)
        return step

    def lost(self, turn: Turn, now: float) -> None:
        """A turn that was looked up was then dropped: those that follow come after a gap."""
        self._memory.put(turn.after, _GAP, now)

    def lost_unread(self, key: int, now: float) -> None:
        """A turn of a conversation with this key was dropped without reading it. Unknown ones stay unknown."""
        if self._memory.get(key ^ _CONVERSATION, now) is not None:
            self._memory.put(key ^ _CONVERSATION, _UNREAD, now)

    def __len__(self) -> int:
        return len(self._memory)


class _Memory:
    """Small numbers by hash, in two generations: when the young one is full or old, it takes the old one's place."""

    def __init__(self, entries: int, kept_s: float) -> None:
        self._entries = entries
        self._kept_s = kept_s
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}
        self._since = 0.0

    def get(self, mark: int, now: float) -> int | None:
        """What was put; asking for it keeps it."""
        self._age(now)
        value = self._young.get(mark)
        if value is None and (value := self._old.get(mark)) is not None:
            self.put(mark, value, now)
        return value

    def put(self, mark: int, value: int, now: float) -> None:
        self._age(now)
        if len(self._young) >= self._entries and mark not in self._young:
            self._old, self._young, self._since = self._young, {}, now
        self._young[mark] = value

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def _age(self, now: float) -> None:
        age = now - self._since
        if age >= 2 * self._kept_s:
            self._old, self._young, self._since = {}, {}, now
        elif age >= self._kept_s:
            self._old, self._young, self._since = self._young, {}, self._since + self._kept_s


def _before_answers(items: list[msgspec.Raw], end: int) -> int:
    """Where the run of answers that ends at `end` begins."""
    while end and is_answer(items[end - 1]):
        end -= 1
    return end


def _hashed(raw: msgspec.Raw, seed: int) -> int:
    # Clients move their marks for a prompt cache along with every turn; they are no part of what was said.
    text = bytes(raw)
    if _CACHE_CONTROL in text:
        text = _MARKER.sub(b"", text)
    return xxhash.xxh64_intdigest(text, seed=seed)


_STEPS = {
    (Kind.FIRST, False): Step(Kind.FIRST, (), Lineage(conversations=1)),
    (Kind.FIRST, True): Step(Kind.FIRST, (), Lineage(conversations=1, openings=1)),
    (Kind.CONTINUED, False): Step(Kind.CONTINUED, (), Lineage(continued=1)),
    (Kind.CONTINUED, True): Step(Kind.CONTINUED, (FlagReason.AFTER_GAP,), Lineage(continued=1)),
    (Kind.BROKEN, False): Step(Kind.BROKEN, (FlagReason.BROKEN_LINEAGE,), Lineage(broken=1)),
    (Kind.BROKEN, True): Step(Kind.BROKEN, (FlagReason.AFTER_GAP,), Lineage(broken=1)),
    (Kind.LATE, False): Step(Kind.LATE, (), Lineage(joined_late=1)),
}
