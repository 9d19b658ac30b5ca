"""Whether capture may copy now: the newest directive, when a mirror last confirmed it, and when the run must be over.

Pure: instants are arguments. It must not know where directives come from or what is done with the answer.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from shadowrun_mirror.directive import CaptureDirective


@dataclass(frozen=True, kw_only=True)
class Instant:
    """One moment on two clocks, in seconds: `wall` is UTC since the epoch, `monotonic` never jumps."""

    wall: float
    monotonic: float


class Standing(StrEnum):
    """What capture does now, and why. Only `COPYING` makes copies."""

    COPYING = "copying"
    NOT_ASKED = "notasked"  # the directive says no; the run is not observing
    NO_LEASE = "nolease"  # the directive says yes, but no mirror has confirmed it lately; goes on counting
    EXPIRED = "expired"  # the run is over, whatever anybody says


@dataclass(frozen=True, kw_only=True)
class Lease:
    """`heard`: monotonic seconds of the last confirmation, None before the first. `ends`: monotonic expiry."""

    directive: CaptureDirective
    ends: float
    heard: float | None = None

    def standing(self, now: Instant) -> Standing:
        """What follows at `now`. The expiry counts on whichever clock reaches it first."""
        if now.wall >= self.directive.expiry or now.monotonic >= self.ends:
            return Standing.EXPIRED
        if not self.directive.copying:
            return Standing.NOT_ASKED
        if self.heard is None or now.monotonic - self.heard >= self.directive.lease_s:
            return Standing.NO_LEASE
        return Standing.COPYING

    def renewed(self, answer: CaptureDirective, now: Instant) -> "Lease":
        """After a mirror answered `answer`.

        An answer of another run or of a lower version changes nothing and renews nothing: that mirror would refuse
        what we copy under the version we have.
        """
        if answer.run_uid != self.directive.run_uid or answer.version < self.directive.version:
            return self
        # Both count: a wall clock that was set back gives no time back, and one that was set forward takes some.
        moved = self.ends + (answer.expiry - self.directive.expiry)
        ends = min(moved, now.monotonic + (answer.expiry - now.wall))
        return replace(self, directive=answer, heard=now.monotonic, ends=ends)


def boot_lease(directive: CaptureDirective, now: Instant) -> Lease:
    """The state at start: the boot file is known, no mirror has confirmed anything, so nothing is copied yet."""
    return Lease(directive=directive, ends=now.monotonic + (directive.expiry - now.wall))
