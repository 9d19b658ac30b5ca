"""The end that comes whatever else happens."""

from typing import ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress


class Expired:
    """The absolute safety net."""

    reason: ClassVar = EndReason.EXPIRED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """`status.expiryTime` has come and nothing else has ended the run."""
        if seen.record is None or seen.now < seen.record.expiry:
            return None
        return (
            f"The expiry {times.written(seen.record.expiry)} came before any end condition; {done.pairs} pairs counted."
        )
