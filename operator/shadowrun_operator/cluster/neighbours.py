"""The runs of a namespace, listed and read once for all passes that ask for them at the same time. Decides nothing.

With a list for every pass, what n new runs cost would grow with n².
"""

import asyncio

from pydantic import ValidationError

from shadowrun_operator.api.run import KIND, ShadowRun
from shadowrun_operator.cluster.client import Cluster
from shadowrun_operator.manifests.names import Manifest

Neighbour = tuple[Manifest, ShadowRun | None]
"""A run as it is stored, and as it is read; None for one that can't be read."""


class Neighbours:
    """Nobody is given a list that was begun before it was asked for."""

    def __init__(self) -> None:
        self._next: dict[str, asyncio.Task[tuple[Neighbour, ...]]] = {}
        self._current: dict[str, asyncio.Task[tuple[Neighbour, ...]]] = {}

    async def of(self, cluster: Cluster, namespace: str) -> tuple[Neighbour, ...]:
        """All runs of the namespace. Raises what the list raised, for all who waited for it."""
        waiting = self._next.get(namespace)
        if waiting is None:
            work = self._listed(cluster, namespace, self._current.get(namespace))
            waiting = self._next[namespace] = asyncio.create_task(work)
        return await asyncio.shield(waiting)

    async def _listed(
        self, cluster: Cluster, namespace: str, before: asyncio.Task[tuple[Neighbour, ...]] | None
    ) -> tuple[Neighbour, ...]:
        if before is not None:
            await asyncio.wait([before])
        own = self._current[namespace] = self._next.pop(namespace)
        try:
            return tuple((body, _read(body)) for body in await cluster.list(KIND, namespace))
        finally:
            if self._current.get(namespace) is own:
                del self._current[namespace]


def _read(body: Manifest) -> ShadowRun | None:
    try:
        return ShadowRun.parse(body)
    except ValidationError:
        return None
