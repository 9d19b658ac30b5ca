"""The runs of a namespace, listed and read once for all passes that ask for them at the same time. Decides nothing.

With a list for every pass, what n new runs cost would grow with n².
"""

import asyncio
import time
from dataclasses import dataclass

from pydantic import ValidationError

from shadowrun_operator.api.run import KIND, ShadowRun
from shadowrun_operator.cluster.client import Cluster
from shadowrun_operator.manifests.names import Manifest

KEPT_S = 300.0
"""So long is remembered what a namespace held that nobody asks about any more."""

Neighbour = ShadowRun | Manifest
"""A run as it is read; as it is stored where it can't be read."""


@dataclass(frozen=True)
class _Listed:
    """`runs`, by uid and version, as they were when the list was begun at `at`."""

    at: float
    runs: dict[tuple[str, str], Neighbour]


class Neighbours:
    """Nobody is given a list that was begun before it was asked for, unless an older one will do."""

    def __init__(self) -> None:
        self._next: dict[str, asyncio.Task[_Listed]] = {}
        self._current: dict[str, asyncio.Task[_Listed]] = {}
        self._last: dict[str, _Listed] = {}

    async def of(self, cluster: Cluster, namespace: str, *, seconds: float = 0.0) -> tuple[Neighbour, ...]:
        """All runs of the namespace, as they are or were at most so many seconds ago.

        Raises what the list raised, for all who waited for it.
        """
        last = self._last.get(namespace)
        if last is not None and time.monotonic() < last.at + seconds:
            return tuple(last.runs.values())
        waiting = self._next.get(namespace)
        if waiting is None:
            work = self._listed(cluster, namespace, self._current.get(namespace))
            waiting = self._next[namespace] = asyncio.create_task(work)
        return tuple((await asyncio.shield(waiting)).runs.values())

    async def _listed(self, cluster: Cluster, namespace: str, before: asyncio.Task[_Listed] | None) -> _Listed:
        if before is not None:
            await asyncio.wait([before])
        own, now = self._next.pop(namespace), time.monotonic()
        self._current[namespace] = own
        try:
            bodies = await cluster.list(KIND, namespace)
        finally:
            if self._current.get(namespace) is own:
                del self._current[namespace]
        known = self._last[namespace].runs if namespace in self._last else {}
        listed = _Listed(now, {(key := _version(body)): known.get(key) or _read(body) for body in bodies})
        self._last = {ns: last for ns, last in self._last.items() if now < last.at + KEPT_S} | {namespace: listed}
        return listed


def _version(body: Manifest) -> tuple[str, str]:
    """Which run in which version: a body that is known is not read again."""
    return body["metadata"]["uid"], body["metadata"]["resourceVersion"]


def _read(body: Manifest) -> Neighbour:
    try:
        return ShadowRun.parse(body)
    except ValidationError:
        return body
