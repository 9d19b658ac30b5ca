"""Name lookups for the client, kept for a few seconds: a fresh connection per request must not cost a lookup each.

Does nothing but look up names; an arm's Service keeps its address for life, and a moved name is seen within the TTL.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable

TTL_S = 5.0


class Addresses:
    """IP addresses by host name, taken in turn when a name has several. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float], ttl_s: float = TTL_S) -> None:
        self._clock = clock
        self._ttl = ttl_s
        self._known: dict[str, tuple[float, list[str]]] = {}
        self._literal: dict[str, bool] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._turn = 0

    async def one(self, host: str, port: int) -> str:
        """An address of `host`; raises `OSError` (`socket.gaierror`) when the name has none."""
        if host not in self._literal:
            self._literal[host] = _is_literal(host)
        return host if self._literal[host] else await self._looked_up(host, port)

    async def _looked_up(self, host: str, port: int) -> str:
        async with self._locks.setdefault(host, asyncio.Lock()):
            until, found = self._known.get(host, (0.0, []))
            if not found or self._clock() >= until:
                infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
                found = list(dict.fromkeys(str(info[4][0]) for info in infos))
                self._known[host] = (self._clock() + self._ttl, found)
        self._turn += 1
        return found[self._turn % len(found)]


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
