"""The end by hand."""

from typing import ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress


class Stopped:
    """Somebody asked for it."""

    reason: ClassVar = EndReason.STOPPED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """`spec.stop.reason` is set."""
        reason = seen.run.spec.stop.reason
        return f"Stopped by hand after {done.pairs} pairs: {reason}" if reason else None
