"""Name lookups for the client, kept for a few seconds: a fresh connection per request must not cost a lookup each.

Only the first request to a name waits for its lookup. Later ones use what is known while it is looked up again, and
go on with it when that fails: an arm's Service keeps its address for life, and a name service that is down for a
moment is no fault of the arm. Does nothing but look up names.
"""

import asyncio
import ipaddress
import math
import socket
from collections.abc import Callable

import xxhash

TTL_S = 5.0


class Addresses:
    """IP addresses by host name, in turn or by a number where a name has several. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float], ttl_s: float = TTL_S) -> None:
        self._clock = clock
        self._ttl = ttl_s
        self._known: dict[str, tuple[float, list[str]]] = {}  # fresh until, addresses
        self._literal: dict[str, bool] = {}
        self._lookups: dict[str, asyncio.Task[list[str]]] = {}
        self._turn = 0

    async def one(self, host: str, port: int, place: int | None = None) -> str:
        """An address of `host`; raises `OSError` (`socket.gaierror`) when the name has none.

        Equal places get the same one, and the one in the same rank of every name that has as many.
        """
        if host not in self._literal:
            self._literal[host] = _is_literal(host)
        if self._literal[host]:
            return host
        found = await self._all(host, port)
        if place is not None:
            return sorted(found)[rank(place, len(found))]
        self._turn += 1
        return found[self._turn % len(found)]

    async def _all(self, host: str, port: int) -> list[str]:
        until, known = self._known.get(host, (-math.inf, []))
        if self._clock() < until:
            return known
        if host not in self._lookups:
            lookup = asyncio.create_task(self._looked_up(host, port))
            self._lookups[host] = lookup
            lookup.add_done_callback(lambda _: self._lookups.pop(host))
        return known or await asyncio.shield(self._lookups[host])  # a caller that gives up takes nobody with it

    async def _looked_up(self, host: str, port: int) -> list[str]:
        try:
            infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found = list(dict.fromkeys(str(info[4][0]) for info in infos))
        except OSError:
            if host not in self._known:
                raise
            found = self._known[host][1]
        self._known[host] = (self._clock() + self._ttl, found)
        return found


def rank(place: int, count: int) -> int:
    """Which of `count` receivers a number belongs to: the one with the highest hash, so that few move when one goes."""
    return max(range(count), key=lambda number: xxhash.xxh64_intdigest(number.to_bytes(4), seed=place))


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
