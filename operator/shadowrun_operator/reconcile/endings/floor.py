"""The floor under every end that is not a failure: `endConditions.minDuration`. Pure."""

from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress


def long_enough(seen: Observation, done: Progress) -> bool:
    """Whether minDuration has passed since the first counted pair."""
    least = seen.run.spec.end_conditions.min_duration.seconds
    return done.first_counted is not None and seen.now >= done.first_counted + least
