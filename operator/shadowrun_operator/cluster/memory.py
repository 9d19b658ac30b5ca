"""`Memory`: what a process remembers of one run between two looks. All of it may be lost. Decides nothing."""

import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shadowrun_operator.api.run import ShadowRun
from shadowrun_operator.cluster.neighbours import Neighbours
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile.observation import NodeRoom
from shadowrun_operator.reconcile.record import Books

T = TypeVar("T")


class Recall:
    """What the API server has said, for looks that an older answer is good enough for.

    Whoever hears of a change, or is about to make one, lets all of it be forgotten; so only what nobody has spoken of
    is recalled, and no longer than the look says.
    """

    def __init__(self) -> None:
        self._told: dict[Hashable, tuple[float, Any]] = {}

    async def told(self, what: Hashable, ask: Callable[[], Awaitable[T]], *, seconds: float) -> T:
        """The answer to a question: one that was asked for at most so many seconds ago, or a new one."""
        told, now = self._told, time.monotonic()
        if what in told and now < told[what][0] + seconds:
            known: T = told[what][1]
            return known
        answer = await ask()
        if seconds:
            told[what] = now, answer  # nobody finds it where all was forgotten meanwhile
        return answer

    def forget(self) -> None:
        """Ask everything anew."""
        self._told = {}


@dataclass
class Memory:
    """Of one run."""

    run: ShadowRun | None = None  # as it was last read
    books: Books | None = None  # None: not read from the ConfigMap yet
    ended: bool = False  # by its record, whatever its status still says
    given_back_since: float | None = None
    refusal: str = ""
    room: tuple[NodeRoom, ...] | None = None
    room_at: float = 0.0  # when it was looked at
    config_maps: dict[str, Manifest] = field(default_factory=dict)  # as they were last read, by name
    neighbours: Neighbours = field(default_factory=Neighbours)  # one for all runs of a process
    recall: Recall = field(default_factory=Recall)
