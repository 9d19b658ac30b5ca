"""The end by the number of tokens."""

from typing import ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.reconcile.endings.floor import long_enough
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress


class TokensReached:
    """Enough tokens."""

    reason: ClassVar = EndReason.TOKENS_REACHED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """`endConditions.tokens` are counted and minDuration has passed."""
        wanted = seen.run.spec.end_conditions.tokens
        if wanted is None or done.tokens < wanted or not long_enough(seen, done):
            return None
        return f"{done.tokens} of {wanted} prompt tokens (estimated) were counted."
