"""The end of a run whose counters are out of reach."""

from typing import ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.manifests import names
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress


class EvidenceLost:
    """The replicas can neither be read nor told anything."""

    reason: ClassVar = EndReason.EVIDENCE_LOST

    def met(self, seen: Observation, done: Progress) -> str | None:
        """Copying has begun, and the mirror's Secret with token, seed and configuration is gone or unreadable."""
        if seen.record is None or not seen.record.copying_since or seen.config is not None:
            return None
        secret = names.object_name(seen.run.name, names.MIRROR)
        return f"Secret '{secret}' is gone or unreadable, and with it the way to what was counted: {done.pairs} pairs."
