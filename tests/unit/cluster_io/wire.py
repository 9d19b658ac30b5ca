"""Mirrors and captures that answer from a function, without a network."""

import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp
from shadowrun_operator.cluster.replicas import Answer, Replicas


@dataclass(frozen=True)
class Request:
    """What the operator sent."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0


def answering(
    answer: Callable[[Request], Answer | Awaitable[Answer]], clock: Callable[[], float] = time.time
) -> Replicas:
    """Replicas that answer as told; what is raised is what the connection says."""

    async def send(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        answered = answer(Request(method, url, headers, body or b""))
        return await answered if inspect.isawaitable(answered) else answered

    return Replicas(send, clock)


def nobody(_: Request) -> Answer:
    """There is no pod at that address."""
    raise aiohttp.ClientConnectionError("no replica in this test")
