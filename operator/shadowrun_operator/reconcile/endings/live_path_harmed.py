"""The end for customers' sake."""

from typing import ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress


class LivePathHarmed:
    """Copying costs customers more than it may."""

    reason: ClassVar = EndReason.LIVE_PATH_HARMED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """Errors or first bytes with copying on are worse than `spec.livePathGuard` allows, beyond chance."""
        return None if done.harm is None else f"{done.harm} {done.pairs} pairs had been counted."
