"""Tells the mirrors what became of the originals: each batch of the outcome log to every one of them, once.

A mirror that refuses, does not answer or is not there costs what it was not told, which is counted and said as a
number. Nothing is kept for it and nobody waits: not Envoy, whose file has a bounded size, and not the companion's other
loop. A turn that breaks costs what it had read, and the next one follows.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
from yarl import URL

from shadowrun_mirror.capture.outcome_file import OutcomeFile

TURN_S = 1.0
_TOLD_S = 2.0  # for all that one mirror is told in a turn, and for finding out where the mirrors are
_ADDRESSES_S = 5.0
_SAID_S = 60.0

_TROUBLES = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass
class Telling:
    """`mirrors` is a URL under whose host each mirror has an address; `token` is what they ask for; `say` logs."""

    log: OutcomeFile
    mirrors: URL
    token: str
    http: aiohttp.ClientSession
    say: Callable[[str], None]
    _found: list[URL] = field(default_factory=list)
    _found_at: float = float("-inf")
    _untold: int = 0
    _said_at: float = float("-inf")
    _trouble: str = ""
    _broke: str = ""
    _broke_at: float = float("-inf")

    async def run(self) -> None:
        """About once a second, for ever."""
        while True:
            started = time.monotonic()
            try:
                await self.turn()
            except Exception as error:
                self._break(type(error).__name__)
            await asyncio.sleep(max(0.0, started + TURN_S - time.monotonic()))

    async def turn(self) -> None:
        """Read what is new and tell it; returns after `_TOLD_S` for the addresses and `_TOLD_S` for the rest."""
        try:
            batches = self.log.take()
            self._note("")
        except OSError as error:
            batches = []
            self._note(f"the outcome log cannot be emptied: {type(error).__name__}")
        if batches:
            mirrors = await self._mirrors()
            self._untold += sum(await asyncio.gather(*(self._tell(each, batches) for each in mirrors)))
            if not mirrors:
                self._untold += _count(batches)
        self._say_untold()

    async def _mirrors(self) -> list[URL]:
        """One URL for each address, asked for anew every few seconds; none where the name has none."""
        if time.monotonic() - self._found_at < _ADDRESSES_S:
            return self._found
        host, port = self.mirrors.host or "", self.mirrors.port
        try:
            async with asyncio.timeout(_TOLD_S):
                answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except _TROUBLES:
            self._found = []
            return []
        self._found = [self.mirrors.with_host(host) for host in sorted({str(answer[4][0]) for answer in answers})]
        self._found_at = time.monotonic()
        return self._found

    async def _tell(self, mirror: URL, batches: list[bytes]) -> int:
        """How many records this mirror was not told."""
        left = list(batches)
        try:
            async with asyncio.timeout(_TOLD_S):
                while left:
                    await self._post(mirror / "outcomes", left[0])
                    left.pop(0)
        except _TROUBLES:
            self._found_at = float("-inf")  # it may have another address by now
        return _count(left)

    async def _post(self, url: URL, batch: bytes) -> None:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/jsonl"}
        async with self.http.post(url, data=batch, headers=headers, allow_redirects=False) as answer:
            if answer.status != 204:
                raise aiohttp.ClientError

    def _say_untold(self) -> None:
        if self._untold and time.monotonic() - self._said_at >= _SAID_S:
            self.say(f"outcomes that a mirror was not told: {self._untold}")
            self._untold, self._said_at = 0, time.monotonic()

    def _break(self, kind: str) -> None:
        """Say what kind of error ended a turn; the same kind once a minute at most."""
        if kind != self._broke or time.monotonic() - self._broke_at >= _SAID_S:
            self.say(f"telling the mirrors broke: {kind}")
            self._broke, self._broke_at = kind, time.monotonic()

    def _note(self, trouble: str) -> None:
        if trouble != self._trouble:
            self.say(trouble or "the outcome log can be emptied")
            self._trouble = trouble


def _count(batches: list[bytes]) -> int:
    return sum(batch.count(b"\n") + 1 for batch in batches)
