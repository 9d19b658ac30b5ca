"""The end of a run that has its answer."""

from typing import ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.reconcile.endings.floor import long_enough
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress
from shadowrun_operator.reconcile.standing import VERDICT


class Decided:
    """Every gating criterion is proven or refuted, and more pairs would change nothing."""

    reason: ClassVar = EndReason.DECIDED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """`endConditions.decided` is set, the verdict would be Pass or Fail, and minDuration has passed.

        All of it must have stood for a while (`reconcile.standing`).

        Where every criterion is decided and something else stands against a verdict (coverage below its floor, say) the
        run goes on, since time may mend that.
        """
        if not seen.run.spec.end_conditions.decided or not long_enough(seen, done):
            return None
        if any(not done.stands(r.name, r.outcome) for r in done.gating) or not done.stands(VERDICT, done.prospect):
            return None
        return f"All {len(done.gating)} criteria that gate are decided after {done.pairs} pairs."
