"""`Lease`: of several replicas one acts at a time, the one that renews a Lease of the API server. Decides nothing else.

A holder renews every `RENEW_S` and may act until `ACT_S` after its last renewal; a Lease that was not renewed for
`LEASE_S` is anybody's. In between nobody acts. Each process measures that on a monotonic clock of its own from what it
has seen itself: the clocks of two machines are never compared. A renewal is a replacement of the very version that was
read, so of two that are quick the API server takes one.
"""

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

from shadowrun_operator.cluster.client import ApiRefusal, ApiUnreachable, Cluster
from shadowrun_operator.manifests.names import Manifest

LEASE_S = 15
ACT_S = 10.0
RENEW_S = 2.0
TRY_S = 4.0
"""Longest time for one attempt: two must fit into `ACT_S`."""

log = logging.getLogger(__name__)


class Lease:
    """One process's view of a Lease. `cluster` is its own connection, which no other work can hold up."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str,
        pod: str,
        *,
        lease_s: int = LEASE_S,
        act_s: float = ACT_S,
        renew_s: float = RENEW_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._namespace, self._name = namespace, name
        self.holder = f"{pod}_{uuid.uuid4().hex[:8]}"  # a container that starts anew is another process
        self._lease_s, self._act_s, self._renew_s, self._clock = lease_s, act_s, renew_s, clock
        self._renewed: float | None = None
        self._seen = ("", 0.0)  # the version of somebody else's Lease, and when it was first seen

    def is_held(self) -> bool:
        """Whether this process may act now."""
        return self._left() > 0

    def _left(self) -> float:
        """How long it may act if nothing is renewed, in seconds."""
        return 0.0 if self._renewed is None else self._renewed + self._act_s - self._clock()

    async def acquired(self) -> None:
        """Returns once this process holds the Lease."""
        while True:
            if await self._tried():
                break
            await asyncio.sleep(self._renew_s)
        log.info("%s acts from now on", self.holder)

    async def lost(self) -> None:
        """Renews; returns the moment this process may not act any more, whatever a renewal is waiting for."""
        while (left := self._left()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await asyncio.sleep(self._renew_s)
                    await self._tried()
        log.error("%s lost the Lease %s", self.holder, self._name)

    async def give_up(self) -> None:
        """Lets another take over at once; this process must have stopped acting."""
        if not self.is_held():
            return
        self._renewed = None
        with contextlib.suppress(ApiRefusal, ApiUnreachable, TimeoutError):
            async with asyncio.timeout(TRY_S):
                found = await self._cluster.get("Lease", self._namespace, self._name)
                if found is not None and found.get("spec", {}).get("holderIdentity") == self.holder:
                    await self._cluster.replace(self._manifest("", found["metadata"]["resourceVersion"]))

    async def _tried(self) -> bool:
        try:
            async with asyncio.timeout(TRY_S):
                return await self._taken()
        except (ApiRefusal, ApiUnreachable, TimeoutError) as error:
            log.warning("The Lease %s cannot be renewed for now: %s", self._name, error or type(error).__name__)
            return False

    async def _taken(self) -> bool:
        """One attempt to acquire or renew. What counts is when it was begun: the answer may be late."""
        begun = self._clock()
        found = await self._cluster.get("Lease", self._namespace, self._name)
        if found is None:
            taken = await self._cluster.create(self._manifest(self.holder)) is not None
        elif found.get("spec", {}).get("holderIdentity") == self.holder or self._is_free(found):
            taken = await self._replaced(found)
        else:
            return False
        if taken:
            self._renewed = begun
        return taken

    async def _replaced(self, found: Manifest) -> bool:
        try:
            await self._cluster.replace(self._manifest(self.holder, found["metadata"]["resourceVersion"]))
        except ApiRefusal as refusal:
            if refusal.status == 409:
                return False
            raise
        return True

    def _is_free(self, found: Manifest) -> bool:
        """Whether nobody holds it: it was given up, or not renewed since this process first saw it like this."""
        spec, version = found.get("spec", {}), found["metadata"]["resourceVersion"]
        if not spec.get("holderIdentity"):
            return True
        if self._seen[0] != version:
            self._seen = (version, self._clock())
        return self._clock() >= self._seen[1] + float(spec.get("leaseDurationSeconds", self._lease_s))

    def _manifest(self, holder: str, version: str = "") -> Manifest:
        """The times in it are for people."""
        meta = {"name": self._name, "namespace": self._namespace} | ({"resourceVersion": version} if version else {})
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = {"holderIdentity": holder, "leaseDurationSeconds": self._lease_s, "renewTime": now}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
