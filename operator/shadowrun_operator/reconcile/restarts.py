"""Containers of a run that were started anew, and what their last process ended with. Pure; ends nothing.

A process that is killed for its memory is back within seconds, and then nothing shows it any more but this.
"""

from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.plan import Event
from shadowrun_operator.reconcile.record import RunRecord


def counted(record: RunRecord, seen: Observation) -> dict[str, int]:
    """How often each container was started anew, by `pod/container`; what was seen of pods that are gone stays."""
    return record.restarts | {f"{pod.name}/{r.container}": r.count for pod in seen.pods for r in pod.restarts}


def restart_events(record: RunRecord, seen: Observation) -> tuple[Event, ...]:
    """One for each container that was started anew since the last look."""
    return tuple(
        Event(
            "Warning",
            "Restarted",
            f"Container {r.container} of {pod.name} ended and was started anew ({r.count} so far): {r.why}.",
        )
        for pod in seen.pods
        for r in pod.restarts
        if r.count > record.restarts.get(f"{pod.name}/{r.container}", 0)
    )
