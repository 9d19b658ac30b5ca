"""`Funnel`: what became of the traffic in scope, in requests and tokens, so that it adds up exactly in both.

    seen = notSelected + selected      selected = dropped + inTransit + admitted
    admitted = completed + failed + inFlight, for each arm

Tokens are bytes times the ratio learned from `usage` per class. They are whole numbers rounded where the funnel ends
(the leaves); a sum is the sum of its leaves.

Where capture cannot tell what is selected (by a field of the body, by a conversation's opening, by a class) it copies a
superset, and what the mirrors don't want of it is not selected. Of copies that were lost on the way or too large
nobody can tell; as large a share of them counts as selected as of those the mirrors received, and that is `estimated`.
Copies of a proxy of the user's own are seen only as far as the mirrors received them. This module must not judge.
"""

from collections.abc import Sequence

import msgspec
from shadowrun_mirror.evidence import Amount, ClassEvidence, Usage
from shadowrun_mirror.reasons import DropReason

from shadowrun_operator.judge.merge import Merged

_ONE = Amount(requests=1, bytes=1)


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """A number of requests and of their prompt tokens."""

    requests: int = 0
    tokens: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(requests=self.requests + other.requests, tokens=self.tokens + other.tokens)

    def __sub__(self, other: "Count") -> "Count":
        return Count(requests=self.requests - other.requests, tokens=self.tokens - other.tokens)


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens per byte as a fraction; four bytes a token until an engine has reported any usage."""

    tokens: int = 1
    bytes: int = 4

    def of(self, size: int) -> int:
        """Tokens of a number of bytes, rounded to the nearest, halves up."""
        return (2 * size * self.tokens + self.bytes) // (2 * self.bytes)


BYTES = Ratio(tokens=1, bytes=1)
"""What a funnel is counted by where bytes are wanted in place of tokens."""


class ArmCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What one arm made of the admitted; `within_slo` is a part of `completed`."""

    completed: Count = Count()
    within_slo: Count = Count()
    failed: dict[str, Count] = {}
    in_flight: Count = Count()

    @property
    def failures(self) -> Count:
        """Failed for any reason."""
        return sum(self.failed.values(), Count())

    def merged(self, other: "ArmCounts") -> "ArmCounts":
        """Both together."""
        return ArmCounts(
            completed=self.completed + other.completed,
            within_slo=self.within_slo + other.within_slo,
            failed=_added(self.failed, other.failed),
            in_flight=self.in_flight + other.in_flight,
        )


class ClassFunnel(msgspec.Struct, frozen=True, kw_only=True):
    """The funnel of one class, from the complete copies on: earlier steps don't know the class."""

    name: str
    excluded: dict[str, Count] = {}
    dropped: dict[str, Count] = {}
    admitted: Count = Count()
    arms: dict[str, ArmCounts] = {}

    @property
    def selected(self) -> Count:
        """Complete copies that were to be measured."""
        return sum(self.dropped.values(), self.admitted)

    @property
    def pairs(self) -> Count:
        """Admitted requests whose last arm has ended."""
        return self.admitted - next((a.in_flight for a in self.arms.values()), Count())


class Funnel(msgspec.Struct, frozen=True, kw_only=True):
    """The funnel of the run over the counted windows.

    `oversized` is the part of `dropped` that was too large to be copied. `uncounted` is what mirrors received beyond
    what capture counted (a capture pod that died between two reads); it is taken as seen and selected. `estimated` is
    the part of `selected` that was never received and is estimated. `paused` is the part of `not_selected` that came
    while copying paused. `learned` says whether the tokens rest on reported usage.
    """

    seen: Count
    not_selected: Count
    selected: Count
    dropped: dict[str, Count]
    in_transit: Count
    admitted: Count
    arms: dict[str, ArmCounts]
    classes: tuple[ClassFunnel, ...]
    oversized: Count
    uncounted: Count
    learned: bool
    estimated: Count = Count()
    paused: Count = Count()

    @property
    def drops(self) -> Count:
        """Dropped for any reason."""
        return sum(self.dropped.values(), Count())

    @property
    def pairs(self) -> Count:
        """Admitted requests whose last arm has ended."""
        return sum((c.pairs for c in self.classes), Count())


def funnel(
    evidence: Merged,
    baseline: str = "baseline",
    *,
    superset: bool = False,
    external: bool = False,
    counted_by: Ratio | None = None,
) -> Funnel:
    """The funnel of merged evidence. Token ratios come from the baseline's usage, from any arm's where it has none.

    `superset`: capture copies more than is selected. `external`: it is not ours and counts nothing. `counted_by` is
    taken in place of the ratios learned.
    """
    usages = {name: _usage(evidence, (name,), baseline) for name in evidence.counted.classes}
    overall = _usage(evidence, tuple(evidence.counted.classes | evidence.warm_up.classes), baseline)
    classes = tuple(
        _class_funnel(
            name, of_class, evidence.stranded.get(name, Amount()), counted_by or _ratio(usages[name], overall)
        )
        for name, of_class in sorted(evidence.counted.classes.items())
    )
    ratio, received, copies = counted_by or _ratio(overall), evidence.received, evidence.capture
    sampled = received if external else copies.sampled
    wanted = _wanted(evidence) if superset else None
    oversized, spared = _split(copies.oversized, wanted, ratio)
    underway, unwanted = _split(_beyond(sampled, received), wanted, ratio)
    paused = _counted(copies.paused, ratio)
    passed = _counted(copies.plain, ratio) + paused + spared + unwanted
    dropped: dict[str, Count] = {}
    for part in classes:
        dropped = _added(dropped, part.dropped)
    if oversized != Count():
        dropped = _added(dropped, {DropReason.TOO_LARGE.value: oversized})
    if evidence.final and underway != Count():
        dropped = _added(dropped, {DropReason.LOST_IN_TRANSIT.value: underway})
    in_transit = Count() if evidence.final else underway
    admitted = sum((c.admitted for c in classes), Count())
    not_selected = sum((count for c in classes for count in c.excluded.values()), passed)
    selected = sum(dropped.values(), in_transit + admitted)
    arms: dict[str, ArmCounts] = {}
    for part in classes:
        for name, counts in part.arms.items():
            arms[name] = arms.get(name, ArmCounts()).merged(counts)
    return Funnel(
        seen=not_selected + selected,
        not_selected=not_selected,
        selected=selected,
        dropped=dropped,
        in_transit=in_transit,
        admitted=admitted,
        arms=arms,
        classes=classes,
        oversized=oversized,
        uncounted=_counted(_beyond(received, sampled), ratio),
        estimated=oversized + underway if superset else Count(),
        paused=paused,
        learned=overall.prompt_tokens > 0,
    )


def _class_funnel(name: str, of_class: ClassEvidence, stranded: Amount, ratio: Ratio) -> ClassFunnel:
    admitted, live = of_class.admitted - stranded, of_class.in_flight - stranded
    lost = {DropReason.MIRROR_LOST.value: stranded} if stranded != Amount() else {}
    drops = {**of_class.dropped, **lost}
    leaves = _spread([admitted, *drops.values(), *of_class.excluded.values()], ratio)
    arms: dict[str, ArmCounts] = {}
    for arm, result in sorted(of_class.arms.items()):
        late = result.completed - result.within_slo
        within, after, in_flight, *failed = _spread([result.within_slo, late, live, *result.failed.values()], ratio)
        arms[arm] = ArmCounts(
            completed=within + after,
            within_slo=within,
            failed=dict(zip(result.failed, failed, strict=True)),
            in_flight=in_flight,
        )
    return ClassFunnel(
        name=name,
        admitted=leaves[0],
        dropped=dict(zip(drops, leaves[1 : 1 + len(drops)], strict=True)),
        excluded=dict(zip(of_class.excluded, leaves[1 + len(drops) :], strict=True)),
        arms=arms,
    )


def _spread(amounts: Sequence[Amount], ratio: Ratio) -> list[Count]:
    """Each amount as a count, rounded on the running total: none is negative and the sum is that of the whole.

    So any two ways to split the same bytes add up to the same tokens, however many leaves they have.
    """
    counts: list[Count] = []
    total = 0
    for amount in amounts:
        tokens = ratio.of(total + amount.bytes) - ratio.of(total)
        counts.append(Count(requests=amount.requests, tokens=tokens))
        total += amount.bytes
    return counts


def _usage(evidence: Merged, names: Sequence[str], baseline: str) -> Usage:
    mine, others = Usage(), Usage()
    for window in (evidence.warm_up, evidence.counted):
        for name in names:
            for arm, result in window.classes.get(name, ClassEvidence()).arms.items():
                others = others.merged(result.usage)
                if arm == baseline:
                    mine = mine.merged(result.usage)
    return mine if mine.prompt_tokens else others


def _ratio(*usages: Usage) -> Ratio:
    """The ratio of the first usage that has any tokens."""
    known = (u for u in usages if u.prompt_tokens > 0 and u.body_bytes > 0)
    return next((Ratio(tokens=u.prompt_tokens, bytes=u.body_bytes) for u in known), Ratio())


def _counted(amount: Amount, ratio: Ratio) -> Count:
    return Count(requests=amount.requests, tokens=ratio.of(amount.bytes))


def _wanted(evidence: Merged) -> tuple[Amount, Amount]:
    """What the mirrors selected of all they received, and all they received; as if all, where that is nothing."""
    excluded = (a for c in evidence.counted.classes.values() for a in c.excluded.values())
    selected, received = evidence.received - sum(excluded, Amount()), evidence.received
    return (selected, received) if received.requests and received.bytes else (_ONE, _ONE)


def _split(amount: Amount, wanted: tuple[Amount, Amount] | None, ratio: Ratio) -> tuple[Count, Count]:
    """The part that counts as selected, to the nearest, and the rest; the whole where `wanted` is None."""
    whole = _counted(amount, ratio)
    if wanted is None:
        return whole, Count()
    some, all_of_them = wanted
    part = Count(
        requests=Ratio(tokens=some.requests, bytes=all_of_them.requests).of(whole.requests),
        tokens=Ratio(tokens=some.bytes, bytes=all_of_them.bytes).of(whole.tokens),
    )
    return part, whole - part


def _beyond(left: Amount, right: Amount) -> Amount:
    """What `left` has more than `right`, each part at least zero."""
    return Amount(requests=max(0, left.requests - right.requests), bytes=max(0, left.bytes - right.bytes))


def _added(left: dict[str, Count], right: dict[str, Count]) -> dict[str, Count]:
    return {key: left.get(key, Count()) + right.get(key, Count()) for key in sorted(left.keys() | right.keys())}
