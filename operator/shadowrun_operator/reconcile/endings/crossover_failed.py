"""The end of a run whose arms are not where they should change nodes from, or to."""

from typing import ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.reconcile.crossover import change_message, misplaced, pause_message, place_deadline
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress


class CrossoverFailed:
    """The halves would not be of the same nodes."""

    reason: ClassVar = EndReason.CROSSOVER_FAILED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """A pod of an arm strayed from its nodes, or the second half did not begin within another `startDeadline`."""
        strayed, deadline, record = misplaced(seen), place_deadline(seen, done), seen.record
        if strayed is not None:
            return f"{strayed} {done.pairs} pairs had been counted."
        if deadline is None or seen.now < deadline or record is None:
            return None
        state = change_message(seen, record, done) or "No pair of the second half has ended."
        why = next((f" {pod.component}: {pod.waiting}" for pod in seen.pods if pod.waiting), "")
        late = f"The second half did not begin within startDeadline {seen.run.spec.start_deadline}."
        return f"{late}{pause_message(seen, record)} {state}{why}"
