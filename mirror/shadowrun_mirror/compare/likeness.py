"""Likeness: what holding a challenger's answer against the baseline's comes to. Pure.

What befalls one arm alone is a difference: who fails, or answers beyond what is compared, matches nobody. What befalls
both leaves the pair uncompared.
"""

from collections import Counter
from collections.abc import Iterator

from shadowrun_mirror.compare.digest import Digest
from shadowrun_mirror.reasons import DIFFERENCES, Likeness

Left = Digest | Likeness | None
"""What an answer has left: a digest; why there is none; None, for it failed."""


def likeness(baseline: Left, challenger: Left, ordered: bool) -> Likeness:
    """Match, the first kind of difference that applies (in the order of `DIFFERENCES`), or why nothing can be said."""
    if isinstance(baseline, Digest) and isinstance(challenger, Digest):
        try:
            found = set(_differences(baseline, challenger, ordered))
        except RecursionError:
            return Likeness.UNREADABLE
        return next((kind for kind in DIFFERENCES if kind in found), Likeness.MATCH)
    lacks = [left for left in (baseline, challenger) if not isinstance(left, Digest)]
    if None in lacks:
        return Likeness.BOTH_FAILED if lacks == [None, None] else Likeness.FAILED
    if len(lacks) == 2:
        return Likeness.TOO_LONG if Likeness.TOO_LONG in lacks else Likeness.UNREADABLE
    return Likeness.LENGTH if lacks == [Likeness.TOO_LONG] else Likeness.TYPE


def _differences(left: Digest, right: Digest, ordered: bool) -> Iterator[Likeness]:
    if left.mark == right.mark:
        return
    if left.kind != right.kind:
        yield Likeness.TYPE
    elif left.kind == "object":
        yield from _of_objects(left, right, ordered)
    elif left.length != right.length:
        yield Likeness.LENGTH
    elif left.kind == "list":
        yield from _of_lists(left, right, ordered)
    else:
        yield Likeness.VALUE


def _of_objects(left: Digest, right: Digest, ordered: bool) -> Iterator[Likeness]:
    if left.fields.keys() - right.fields.keys():
        yield Likeness.FIELD_MISSING
    if right.fields.keys() - left.fields.keys():
        yield Likeness.FIELD_EXTRA
    for name in left.fields.keys() & right.fields.keys():
        yield from _differences(left.fields[name], right.fields[name], ordered)


def _of_lists(left: Digest, right: Digest, ordered: bool) -> Iterator[Likeness]:
    """Of two lists of one length. Without an order, members that have an equal in the other list are left out."""
    if left.bag or right.bag:  # numbers; those that no float holds are members
        if not all(member.kind == "number" for member in (*left.members, *right.members)):
            yield Likeness.TYPE
        else:
            yield Likeness.ORDER if left.bag == right.bag else Likeness.VALUE
        return
    ours, theirs = Counter(m.mark for m in left.members), Counter(m.mark for m in right.members)
    if ours == theirs:
        yield Likeness.ORDER
        return
    members, others = left.members, right.members
    if not ordered:
        members, others = _without(members, theirs), _without(others, ours)
    for member, other in zip(members, others, strict=True):
        yield from _differences(member, other, ordered)


def _without(members: tuple[Digest, ...], equal: Counter[bytes]) -> tuple[Digest, ...]:
    left, kept = Counter(equal), []
    for member in members:
        if left[member.mark]:
            left[member.mark] -= 1
        else:
            kept.append(member)
    return tuple(kept)
