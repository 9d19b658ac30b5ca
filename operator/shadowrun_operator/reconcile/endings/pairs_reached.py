"""The end by the number of pairs."""

from typing import ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.reconcile.endings.floor import long_enough
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress


class PairsReached:
    """Enough pairs."""

    reason: ClassVar = EndReason.PAIRS_REACHED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """`endConditions.pairs` are counted and minDuration has passed."""
        wanted = seen.run.spec.end_conditions.pairs
        if wanted is None or done.pairs < wanted or not long_enough(seen, done):
            return None
        return f"{done.pairs} of {wanted} pairs were counted."
