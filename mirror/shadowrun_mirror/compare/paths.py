"""Paths: fields of an answer that are left out, by dotted names. Pure.

A path goes through lists: `choices.message.content` is the content of every choice's message. It goes on inside a text
that is JSON. What is below a path is left out with it.
"""

from collections.abc import Iterable

Paths = dict[str, "Paths | None"]
"""By name of a field: what is left out below it; None is all of it."""


def paths(names: Iterable[str]) -> Paths:
    """The paths by their first names."""
    found: Paths = {}
    for name in sorted(names):  # one that is above another comes before it
        *above, last = name.split(".")
        at: Paths | None = found
        for part in above:
            at = None if at is None else at.setdefault(part, {})
        if at is not None:
            at[last] = None
    return found
