"""Expiry: when copying must end, whoever is left to say so. No clock of its own: both times are arguments.

The expiry is an instant in UTC. A wall clock can be set back, so the same span is also measured on the monotonic clock
from the moment the expiry was learned; whichever ends first, ends. Once passed, it stays passed.
"""


class Expiry:
    """An absolute end, learned at some moment (`wall` UTC seconds, `mono` monotonic seconds)."""

    def __init__(self, at: float, wall: float, mono: float) -> None:
        self.at = at
        self._deadline = mono + (at - wall)
        self._passed = False

    def brought_forward(self, at: float, wall: float, mono: float) -> None:
        """Take an earlier (or the same) end; what was measured of the old one keeps counting."""
        self.at = min(self.at, at)
        self._deadline = min(self._deadline, mono + (at - wall))

    def passed(self, wall: float, mono: float) -> bool:
        """Whether the end has come by either clock."""
        self._passed = self._passed or wall >= self.at or mono >= self._deadline
        return self._passed
