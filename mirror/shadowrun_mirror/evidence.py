"""`Evidence` and `CaptureEvidence`: what one replica has counted since it started, and nothing of what was said.

A snapshot is cumulative. Its identity is (pod uid, epoch); a later `sequence` replaces an earlier one, and what
different identities counted adds up, so nothing can be counted twice. A pair changes the counters twice: when it is
admitted, and when its last arm has ended; every arm's results of a pair appear at once. So at any instant

    received = excluded + dropped + admitted        admitted = completed(arm) + failed(arm) + in_flight   for each arm

hold per class, in requests and in bytes. Bytes are request body bytes: exact, known before any answer, the same for
all arms; the operator turns them into tokens with the ratio learned from `usage`. No content, no key, no path.
"""

from typing import Self

import msgspec

from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.histogram import Histogram
from shadowrun_mirror.reasons import UNCOMPARED, Likeness


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """A number of requests and of their body bytes."""

    requests: int = 0
    bytes: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(requests=self.requests + other.requests, bytes=self.bytes + other.bytes)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(requests=self.requests - other.requests, bytes=self.bytes - other.bytes)


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Which process counted. `epoch` is random and new at every start of the process that keeps the counters."""

    pod: str
    pod_uid: str
    epoch: str
    sequence: int  # grows with every snapshot
    time: float  # UTC seconds of the snapshot


def added(left: dict[str, Amount], right: dict[str, Amount]) -> dict[str, Amount]:
    """Amounts by reason, summed."""
    return {key: left.get(key, Amount()) + right.get(key, Amount()) for key in sorted(left.keys() | right.keys())}


class Usage(msgspec.Struct, kw_only=True):
    """Tokens as the engine reported them, over the completed answers that reported any."""

    answers: int = 0
    body_bytes: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    def merged(self, other: "Usage") -> "Usage":
        """Both together."""
        return Usage(**{f: getattr(self, f) + getattr(other, f) for f in self.__struct_fields__})


class ArmEvidence(msgspec.Struct, kw_only=True):
    """Results of one arm within one class. Histograms: seconds; failures count as +infinity in `ttft`, `tpot`, `e2e`.

    `gap` is the longest time between two reads with content of a streamed answer, `per_token` the end-to-end time
    divided by the output tokens; both of completed answers only. A pair whose arms have their token counts from
    different sources is left out of `tpot` and `per_token`.
    """

    completed: Amount = Amount()
    within_slo: Amount = Amount()
    failed: dict[str, Amount] = {}
    usage: Usage = msgspec.field(default_factory=Usage)
    ttft: Histogram = msgspec.field(default_factory=Histogram)
    tpot: Histogram = msgspec.field(default_factory=Histogram)  # one token, one chunk, no count: left out
    e2e: Histogram = msgspec.field(default_factory=Histogram)
    gap: Histogram = msgspec.field(default_factory=Histogram)
    per_token: Histogram = msgspec.field(default_factory=Histogram)
    sent_first: int = 0  # how often this arm was written to first

    def merged(self, other: "ArmEvidence") -> "ArmEvidence":
        """Both together."""
        return ArmEvidence(
            completed=self.completed + other.completed,
            within_slo=self.within_slo + other.within_slo,
            failed=added(self.failed, other.failed),
            usage=self.usage.merged(other.usage),
            ttft=self.ttft.merged(other.ttft),
            tpot=self.tpot.merged(other.tpot),
            e2e=self.e2e.merged(other.e2e),
            gap=self.gap.merged(other.gap),
            per_token=self.per_token.merged(other.per_token),
            sent_first=self.sent_first + other.sent_first,
        )


class Wins(msgspec.Struct, kw_only=True):
    """How often a challenger answered before the baseline and after it, by the time to first token (of buffered answers
    by the time to the end). Whoever failed alone came after; where both failed, or came at the same time, neither did.
    """

    pairs: int = 0
    won: int = 0
    lost: int = 0

    def merged(self, other: "Wins") -> "Wins":
        """Both together."""
        return Wins(pairs=self.pairs + other.pairs, won=self.won + other.won, lost=self.lost + other.lost)


class Matches(msgspec.Struct, kw_only=True):
    """How often a challenger's answer was the baseline's, in ended pairs by `reasons.Likeness`; numbers only."""

    pairs: dict[str, int] = {}

    def add(self, found: Likeness) -> None:
        """Count one pair."""
        self.pairs[found.value] = self.pairs.get(found.value, 0) + 1

    def merged(self, other: "Matches") -> "Matches":
        """Both together."""
        names = sorted(self.pairs.keys() | other.pairs.keys())
        return Matches(pairs={name: self.pairs.get(name, 0) + other.pairs.get(name, 0) for name in names})

    @property
    def matched(self) -> int:
        """Pairs whose answers were equal."""
        return self.pairs.get(Likeness.MATCH, 0)

    @property
    def compared(self) -> int:
        """Pairs of which that can be said at all."""
        return sum(self.pairs.values()) - sum(self.pairs.get(reason, 0) for reason in UNCOMPARED)


class PrimaryEvidence(msgspec.Struct, kw_only=True):
    """What the primary made of the requests whose copies became pairs, as far as capture could say.

    A request whose answer the customer cut short counts as `cut`, whatever its status. `first_byte`: seconds from the
    request's first byte at capture to the first byte of the answer.
    """

    answered: Amount = Amount()
    refused: Amount = Amount()  # 4xx
    failed: Amount = Amount()  # 5xx, or no answer at all
    cut: Amount = Amount()
    first_byte: Histogram = msgspec.field(default_factory=Histogram)

    def merged(self, other: "PrimaryEvidence") -> "PrimaryEvidence":
        """Both together."""
        return PrimaryEvidence(
            answered=self.answered + other.answered,
            refused=self.refused + other.refused,
            failed=self.failed + other.failed,
            cut=self.cut + other.cut,
            first_byte=self.first_byte.merged(other.first_byte),
        )


class ClassEvidence(msgspec.Struct, kw_only=True):
    """The funnel of one class, from complete copies received to every arm's results."""

    received: Amount = Amount()
    excluded: dict[str, Amount] = {}
    dropped: dict[str, Amount] = {}
    admitted: Amount = Amount()
    in_flight: Amount = Amount()
    arms: dict[str, ArmEvidence] = {}
    queue: Histogram = msgspec.field(default_factory=Histogram)  # complete copy -> admitted
    forward: Histogram = msgspec.field(default_factory=Histogram)  # admitted -> last arm written to
    flagged: dict[str, Amount] = {}  # ended pairs, by `reasons.FlagReason`
    wins: dict[str, Wins] = {}  # of each challenger over the baseline
    failing: dict[str, BlockSeries] = {}  # by challenger: requests and bytes it failed alone, less the baseline's alone
    primary: PrimaryEvidence = msgspec.field(default_factory=PrimaryEvidence)
    matches: dict[str, Matches] = {}  # by challenger; empty where answers are not compared

    def merged(self, other: "ClassEvidence") -> "ClassEvidence":
        """Both together."""
        arms = {
            name: self.arms.get(name, ArmEvidence()).merged(other.arms.get(name, ArmEvidence()))
            for name in sorted(self.arms.keys() | other.arms.keys())
        }
        return ClassEvidence(
            received=self.received + other.received,
            excluded=added(self.excluded, other.excluded),
            dropped=added(self.dropped, other.dropped),
            admitted=self.admitted + other.admitted,
            in_flight=self.in_flight + other.in_flight,
            arms=arms,
            queue=self.queue.merged(other.queue),
            forward=self.forward.merged(other.forward),
            flagged=added(self.flagged, other.flagged),
            wins={
                name: self.wins.get(name, Wins()).merged(other.wins.get(name, Wins()))
                for name in sorted(self.wins.keys() | other.wins.keys())
            },
            failing={
                name: self.failing.get(name, BlockSeries()).merged(other.failing.get(name, BlockSeries()))
                for name in sorted(self.failing.keys() | other.failing.keys())
            },
            primary=self.primary.merged(other.primary),
            matches={
                name: self.matches.get(name, Matches()).merged(other.matches.get(name, Matches()))
                for name in sorted(self.matches.keys() | other.matches.keys())
            },
        )


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """Conversations among the selected copies, for units that keep conversations together. Numbers only.

    A turn continues when its history is one this replica has seen; it is broken when the conversation is known but
    its history is not (edited, or cut at the front); it joined late when nothing of it was seen before.
    """

    openings: int = 0  # different beginnings: system prompt and first user message
    conversations: int = 0  # first turns
    continued: int = 0
    broken: int = 0
    joined_late: int = 0

    def merged(self, other: "Lineage") -> "Lineage":
        """Both together."""
        return Lineage(**{f: getattr(self, f) + getattr(other, f) for f in self.__struct_fields__})


class Window(msgspec.Struct, kw_only=True):
    """All that was counted under one window number. `pairs[challenger][criterion]` holds z by blocks of time.

    `differing[challenger]` holds the compared answers by blocks of time: -1 for each that differs from the baseline's.
    """

    id: int
    first_pair: float | None = None  # UTC seconds at which the first pair was complete
    last_pair: float | None = None
    classes: dict[str, ClassEvidence] = {}
    pairs: dict[str, dict[str, BlockSeries]] = {}
    lineage: Lineage = Lineage()
    differing: dict[str, BlockSeries] = {}

    def merged(self, other: "Window") -> "Window":
        """Both together; the ids must agree."""
        classes = {
            name: self.classes.get(name, ClassEvidence()).merged(other.classes.get(name, ClassEvidence()))
            for name in sorted(self.classes.keys() | other.classes.keys())
        }
        pairs: dict[str, dict[str, BlockSeries]] = {}
        for arm in sorted(self.pairs.keys() | other.pairs.keys()):
            mine, others = self.pairs.get(arm, {}), other.pairs.get(arm, {})
            pairs[arm] = {
                name: mine.get(name, BlockSeries()).merged(others.get(name, BlockSeries()))
                for name in sorted(mine.keys() | others.keys())
            }
        firsts = [t for t in (self.first_pair, other.first_pair) if t is not None]
        lasts = [t for t in (self.last_pair, other.last_pair) if t is not None]
        return Window(
            id=self.id,
            first_pair=min(firsts, default=None),
            last_pair=max(lasts, default=None),
            classes=classes,
            pairs=pairs,
            lineage=self.lineage.merged(other.lineage),
            differing={
                name: self.differing.get(name, BlockSeries()).merged(other.differing.get(name, BlockSeries()))
                for name in sorted(self.differing.keys() | other.differing.keys())
            },
        )


class Evidence(msgspec.Struct, kw_only=True):
    """One mirror replica's snapshot, as `GET /evidence` gives it."""

    run_uid: str
    source: Source
    config_version: int
    copying: bool
    expired: bool  # this replica has stopped by itself because the expiry had passed
    windows: dict[int, Window] = {}
    lag: Histogram = msgspec.field(default_factory=Histogram)  # seconds by which the event loop woke up too late

    @classmethod
    def decode(cls, raw: bytes | str) -> Self:
        """Parse JSON; raises `msgspec.ValidationError`."""
        return msgspec.json.decode(raw, type=cls)


class LivePath(msgspec.Struct, kw_only=True):
    """How customers fared, by what capture saw of their requests in scope. `first_byte`: seconds, answered requests."""

    requests: int = 0  # ended, however
    errors: int = 0  # answered 5xx, cut short by the primary, or not at all though the customer was still there
    first_byte: Histogram = msgspec.field(default_factory=Histogram)

    def merged(self, other: "LivePath") -> "LivePath":
        """Both together."""
        return LivePath(
            requests=self.requests + other.requests,
            errors=self.errors + other.errors,
            first_byte=self.first_byte.merged(other.first_byte),
        )


class CaptureWindow(msgspec.Struct, kw_only=True):
    """What one Envoy counted under one window: the amounts at the moment a request's headers were routed.

    Route names: `sampled-<w>` (copied), `oversized-<w>` (selected, too large or of unknown size), `plain-<w>` (in
    scope, not selected), `paused-<w>` (in scope, in a slot without copying). Anything outside the paths in scope is
    not counted. `on` and `off`: customers' requests while copying went on and while it was paused.
    """

    sampled: Amount = Amount()
    oversized: Amount = Amount()
    plain: Amount = Amount()
    paused: Amount = Amount()
    on: LivePath = msgspec.field(default_factory=LivePath)
    off: LivePath = msgspec.field(default_factory=LivePath)

    def merged(self, other: "CaptureWindow") -> "CaptureWindow":
        """Both together."""
        return CaptureWindow(
            sampled=self.sampled + other.sampled,
            oversized=self.oversized + other.oversized,
            plain=self.plain + other.plain,
            paused=self.paused + other.paused,
            on=self.on.merged(other.on),
            off=self.off.merged(other.off),
        )


class CaptureEvidence(msgspec.Struct, kw_only=True):
    """One capture pod's snapshot. The epoch is Envoy's, which keeps the counters, not its companion's."""

    run_uid: str
    source: Source
    directive_version: int
    copying: bool
    active_requests: int  # customers' requests now in Envoy
    windows: dict[int, CaptureWindow] = {}
    overflow: int = 0  # copies not made because the mirror was at its cap or away
    envoy: str = ""  # its version, such as 1.40.0

    @classmethod
    def decode(cls, raw: bytes | str) -> Self:
        """Parse JSON; raises `msgspec.ValidationError`."""
        return msgspec.json.decode(raw, type=cls)
