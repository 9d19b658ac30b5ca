"""Name lookups for the client, kept for a few seconds: a fresh connection per request must not cost a lookup each.

Only the first request to a name waits for its lookup. Later ones use what is known while it is looked up again, and
go on with it when that fails: an arm's Service keeps its address for life, and a name service that is down for a
moment is no fault of the arm. Does nothing but look up names.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Iterable

import msgspec
import xxhash

TTL_S = 5.0


class _Known(msgspec.Struct, frozen=True):
    """What a lookup has found, good until `until`; `seats` as `seated` makes them, `taken` the numbers of those found.

    The number of an address is its seat's. Numbers of seats are what places are spread over.
    """

    until: float
    found: list[str]
    seats: list[str]
    taken: list[int]


class Addresses:
    """IP addresses by host name, in turn or by a number where a name has several. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float], ttl_s: float = TTL_S) -> None:
        self._clock = clock
        self._ttl = ttl_s
        self._known: dict[str, _Known] = {}
        self._literal: dict[str, bool] = {}
        self._lookups: dict[str, asyncio.Task[_Known]] = {}
        self._turn = 0

    async def one(self, host: str, port: int, place: int | None = None) -> str:
        """An address of `host`; raises `OSError` (`socket.gaierror`) when the name has none.

        Equal places get the same one for as long as it is there. When one goes its places are spread over the others,
        and the next that comes gets them; no other place moves. So what an arm's caches hold outlives a change of pods.
        """
        if host not in self._literal:
            self._literal[host] = _is_literal(host)
        if self._literal[host]:
            return host
        known = await self._all(host, port)
        if place is not None:
            return known.seats[chosen(place, known.taken)]
        self._turn += 1
        return known.found[self._turn % len(known.found)]

    async def _all(self, host: str, port: int) -> _Known:
        known = self._known.get(host)
        if known is not None and self._clock() < known.until:
            return known
        if host not in self._lookups:
            lookup = asyncio.create_task(self._looked_up(host, port))
            self._lookups[host] = lookup
            lookup.add_done_callback(lambda _: self._lookups.pop(host))
        if known is not None:
            return known
        return await asyncio.shield(self._lookups[host])  # a caller that gives up takes nobody with it

    async def _looked_up(self, host: str, port: int) -> _Known:
        before = self._known.get(host)
        try:
            infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found = list(dict.fromkeys(str(info[4][0]) for info in infos))
        except OSError:
            if before is None:
                raise
            found = before.found
        seats = seated([] if before is None else before.seats, found)
        taken = [number for number, address in enumerate(seats) if address in found]
        known = self._known[host] = _Known(self._clock() + self._ttl, found, seats, taken)
        return known


def seated(seats: list[str], found: list[str]) -> list[str]:
    """The address of each seat, given those of before: who is still there stays, who is new takes the first left seat.

    The seat of one that is gone keeps its address until another takes it. There are never more than the most addresses
    found at once.
    """
    after = list(seats)
    for address in sorted(set(found).difference(seats)):
        left = next((number for number, held in enumerate(after) if held not in found), len(after))
        after[left : left + 1] = [address]
    return after


def chosen(place: int, numbers: Iterable[int]) -> int:
    """Which of some numbers a place belongs to: the one with the highest hash, so that few move when one goes."""
    return max(numbers, key=lambda number: xxhash.xxh64_intdigest(number.to_bytes(4), seed=place))


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
