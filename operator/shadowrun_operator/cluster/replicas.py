"""HTTP to the replicas that count: read their evidence and their clocks, give them their configuration.

A replica that does not answer is a fact to report, never an exception: the loop goes on with what it has.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import aiohttp
import msgspec
from shadowrun_mirror.config import MirrorConfig, encode
from shadowrun_mirror.evidence import CaptureEvidence, Evidence

from shadowrun_operator.manifests.names import COMPANION_PORT, CONTROL_PORT

TIMEOUT = aiohttp.ClientTimeout(total=10.0, connect=3.0, sock_connect=1.0, sock_read=3.0)
"""Silence ends a request soon, and so does a long queue for a connection (`connect`); a large body may take longer."""

Answer = tuple[int, bytes]
"""HTTP status and body."""
Send = Callable[[str, str, Mapping[str, str], bytes | None], Awaitable[Answer]]
"""Method, URL, headers, body. Raises `OSError`, `TimeoutError` or `aiohttp.ClientError` where there is no answer."""
_Stamped = TypeVar("_Stamped", Evidence, CaptureEvidence)


@dataclass(frozen=True)
class Reading:
    """What one pass over the replicas brought; `failures` says of each pod that gave nothing, why."""

    mirrors: tuple[Evidence, ...]
    captures: tuple[CaptureEvidence, ...]
    failures: tuple[str, ...]
    clocks: dict[str, float] = field(default_factory=dict)  # by pod uid: seconds its clock is certainly ahead of ours

    def pods_of(self, run_uid: str) -> frozenset[str]:
        """Uids of the pods that gave their evidence of this run."""
        mirrors = {e.source.pod_uid for e in self.mirrors if e.run_uid == run_uid}
        return frozenset(mirrors | {e.source.pod_uid for e in self.captures if e.run_uid == run_uid})


class Replicas:
    """The HTTP client of the replicas of every run."""

    def __init__(self, send: Send | None = None, clock: Callable[[], float] = time.time) -> None:
        self._send = send or self._over_http
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None  # made within a running loop

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def read(
        self, mirrors: Sequence[str], captures: Sequence[str], token: str, *, companion_port: int = COMPANION_PORT
    ) -> Reading:
        """Evidence by pod address: mirrors first, so that capture's later count covers what they received."""
        clocks: dict[str, float] = {}
        from_mirrors = await asyncio.gather(*(self._mirror(address, token, clocks) for address in mirrors))
        from_captures = await asyncio.gather(
            *(self._capture(address, companion_port, token, clocks) for address in captures)
        )
        return Reading(
            mirrors=tuple(e for e in from_mirrors if isinstance(e, Evidence)),
            captures=tuple(e for e in from_captures if isinstance(e, CaptureEvidence)),
            failures=tuple(e for e in (*from_mirrors, *from_captures) if isinstance(e, str)),
            clocks=clocks,
        )

    async def push(self, address: str, config: MirrorConfig, token: str) -> str:
        """Give a mirror its configuration; what went wrong, or "" when it took it."""
        url = _url(address, CONTROL_PORT, "/config")
        try:
            status, said = await self._send("PUT", url, _authorised(token), encode(config))
        except _NO_ANSWER as error:
            return f"mirror at {address}: {type(error).__name__} on PUT /config"
        if _is_success(status):
            return ""
        return f"mirror at {address}: {status} on PUT /config: {said[:200].decode(errors='replace')}"

    async def _mirror(self, address: str, token: str, clocks: dict[str, float]) -> Evidence | str:
        asked = self._clock()
        raw = await self._evidence(_url(address, CONTROL_PORT, "/evidence"), token)
        try:
            return raw if isinstance(raw, str) else self._stamped(Evidence.decode(raw), asked, clocks)
        except msgspec.MsgspecError as error:
            return f"mirror at {address}: {error}"

    async def _capture(self, address: str, port: int, token: str, clocks: dict[str, float]) -> CaptureEvidence | str:
        asked = self._clock()
        raw = await self._evidence(_url(address, port, "/evidence"), token)
        try:
            return raw if isinstance(raw, str) else self._stamped(CaptureEvidence.decode(raw), asked, clocks)
        except msgspec.MsgspecError as error:
            return f"capture at {address}: {error}"

    def _stamped(self, evidence: _Stamped, asked: float, clocks: dict[str, float]) -> _Stamped:
        """The same; its clock is noted where it shows no moment between question and answer."""
        at, answered = evidence.source.time, self._clock()
        if not asked <= at <= answered:
            clocks[evidence.source.pod_uid] = at - (asked if at < asked else answered)
        return evidence

    async def _evidence(self, url: str, token: str) -> bytes | str:
        try:
            status, said = await self._send("GET", url, _authorised(token), None)
        except _NO_ANSWER as error:
            return f"{url}: {type(error).__name__}"
        return said if _is_success(status) else f"{url}: {status}"

    async def _over_http(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=TIMEOUT, cookie_jar=aiohttp.DummyCookieJar())
        async with self._session.request(method, url, headers=headers, data=body, allow_redirects=False) as answer:
            return answer.status, await answer.read()


_NO_ANSWER = (OSError, TimeoutError, aiohttp.ClientError)


def _is_success(status: int) -> bool:
    return 200 <= status < 300


def _authorised(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _url(address: str, port: int, path: str) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}{path}"
