"""The end of a run that never came to count."""

from typing import ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress
from shadowrun_operator.reconcile.schedule import start_deadline


class StartDeadlineExceeded:
    """Nothing was counted in time."""

    reason: ClassVar = EndReason.START_DEADLINE_EXCEEDED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """No counted pair `spec.startDeadline` after creation, or after the hour for which the run was planned."""
        if done.first_counted is not None or seen.now < start_deadline(seen):
            return None
        spec = seen.run.spec
        waiting = _unready(seen)
        hint = "" if spec.arms.egress else " Arms reach nothing on the network unless spec.arms.egress allows it."
        why = f"not ready: {'; '.join(waiting)}.{hint}" if waiting else done.warm_up_state
        return f"No pair was counted within startDeadline {spec.start_deadline}; {why}"


def _unready(seen: Observation) -> list[str]:
    parts = []
    for component in seen.components:
        if seen.all_ready(component):
            continue
        why = seen.why_waiting(component)
        parts.append(f"{component} ({why})" if why else component)
    return parts
