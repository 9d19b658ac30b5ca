"""The end of a run on unequal nodes."""

from typing import ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.reconcile.hardware import hardware_matches
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress


class HardwareMismatch:
    """The arms cannot be compared."""

    reason: ClassVar = EndReason.HARDWARE_MISMATCH

    def met(self, seen: Observation, done: Progress) -> str | None:
        """Nodes differ and `spec.hardware.policy` is Require."""
        if seen.run.spec.hardware.policy != "Require":
            return None
        finding = hardware_matches(seen)
        return finding.message if finding.matched is False else None
