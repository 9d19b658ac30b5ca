"""The normal end."""

from typing import ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress


class DurationReached:
    """The time is over."""

    reason: ClassVar = EndReason.DURATION_REACHED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """`spec.duration` has passed since the first counted pair."""
        length = seen.run.spec.duration.seconds
        if done.first_counted is None or seen.now < done.first_counted + length:
            return None
        return f"{done.pairs} pairs were counted over {seen.run.spec.duration}."
