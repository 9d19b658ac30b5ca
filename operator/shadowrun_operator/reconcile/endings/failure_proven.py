"""The early end of a run that can only fail any more. It needs no shortest duration: the harm is proven already."""

from typing import ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.judge.words import criterion_sentence
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress
from shadowrun_operator.reconcile.standing import VERDICT


class FailureProven:
    """A gating criterion is refuted, and nothing takes the verdict Fail away."""

    reason: ClassVar = EndReason.FAILURE_PROVEN

    def met(self, seen: Observation, done: Progress) -> str | None:
        """A critical criterion is refuted; or, with `endConditions.decided`, any that gates.

        It must have been for a while, and the verdict Fail with it (`reconcile.standing`).

        While something makes the comparison itself unsound (a noisy baseline, say) the run goes on: ended now it would
        be inconclusive.
        """
        early = seen.run.spec.end_conditions.decided
        refuted = [r for r in done.gating if (early or r.critical) and done.stands(r.name, "Fail")]
        if not refuted or not done.stands(VERDICT, "Fail"):
            return None
        first = next((r for r in refuted if r.critical), refuted[0])
        return f"Refuted after {done.pairs} pairs: {criterion_sentence(first)}"
