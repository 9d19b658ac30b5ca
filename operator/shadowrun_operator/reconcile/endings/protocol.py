"""`Ending`: what every reason to end looks like. Types only."""

from typing import ClassVar, Protocol

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress


class Ending(Protocol):
    """A reason to end, and how to tell. `met` is pure and cheap: it is asked at every look."""

    reason: ClassVar[EndReason]

    def met(self, seen: Observation, done: Progress) -> str | None:
        """A sentence with the numbers when the run must end now."""
        ...
