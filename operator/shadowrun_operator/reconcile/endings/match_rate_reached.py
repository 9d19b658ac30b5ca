"""The end by the share of answers that match the baseline's."""

from typing import ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.judge.figures import at_least
from shadowrun_operator.judge.matches import of_candidate
from shadowrun_operator.reconcile.endings.floor import long_enough
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress
from shadowrun_operator.reconcile.standing import MATCH_RATE


class MatchRateReached:
    """Enough answers are known to match."""

    reason: ClassVar = EndReason.MATCH_RATE_REACHED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """`endConditions.matchRate` is proven, has been for a while (`reconcile.standing`), and minDuration has passed.

        A while, because pairs that fail by their time limit are counted later than those that are answered.
        """
        wanted, found = seen.run.spec.end_conditions.match_rate, of_candidate(done.rules, done.matches)
        if wanted is None or found is None or not long_enough(seen, done) or not done.stands(MATCH_RATE, "Pass"):
            return None
        return (
            f"The candidate's answer matched the baseline's in {found.matched} of {found.compared} pairs: at least"
            f" {at_least(found.lower or 0.0)} of all match, {wanted} are asked for."
        )
