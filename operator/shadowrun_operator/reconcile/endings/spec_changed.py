"""The end of a run that has become another experiment."""

from typing import ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress
from shadowrun_operator.reconcile.spec_hash import changed_fields


class SpecChanged:
    """What decides the evidence is not what the run was accepted with."""

    reason: ClassVar = EndReason.SPEC_CHANGED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """The frozen part differs from what it was at acceptance."""
        changed = changed_fields(seen.record.spec, seen.run.spec) if seen.record is not None else []
        if not changed:
            return None
        return f"{', '.join(changed)} changed after the run was accepted: create a new run for another experiment."
