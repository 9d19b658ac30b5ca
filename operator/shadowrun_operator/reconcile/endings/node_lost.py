"""The end of a run that has lost a machine."""

from typing import ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress


class NodeLost:
    """What an arm fails from now on says nothing about it."""

    reason: ClassVar = EndReason.NODE_LOST

    def met(self, seen: Observation, done: Progress) -> str | None:
        """Copying has begun, and a node that an arm's pod is on is not ready, or gone.

        The cluster then takes the pod out of its Service at once, whatever it still does; where a pod takes its place
        later, its engine is cold beside a warm one.
        """
        if seen.record is None or not seen.record.copying_since:
            return None
        for pod in seen.pods_of(*seen.run.spec.made_arms):
            why = seen.lost_nodes.get(pod.node)
            if why is not None:
                return f"Node {pod.node} of the {pod.component} {why}; {done.pairs} pairs had been counted."
        return None
