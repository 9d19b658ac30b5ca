"""Listen: open a port and take every connection that waits at it, in one turn of the event loop. Knows no protocol.

The servers of the event loops take one connection in a turn. Under overload, when a turn takes ten milliseconds, the
hundredth of a hundred new connections would wait a second for its turn.
"""

import asyncio
import errno
import socket
from collections.abc import Callable

from shadowrun_mirror.log import died

BACKLOG = 1024
AT_ONCE = 256
"""Connections taken in one turn at most."""
PAUSE_S = 0.25
"""How long none is taken after this machine had no file or memory left for one."""

_GONE = (errno.ECONNABORTED, errno.EPROTO)  # before it was taken
_NO_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class Listener:
    """Makes a protocol by `made` for each connection."""

    def __init__(self, made: Callable[[], asyncio.Protocol]) -> None:
        self._made = made
        self._sockets: list[socket.socket] = []
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._taking: set[asyncio.Task[None]] = set()
        self._closed = False

    async def open(self, host: str | None, port: int) -> int:
        """Listen, on all addresses without a host; the port, for port 0 the one given. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        addresses = list(dict.fromkeys((info[0], str(info[4][0])) for info in found))
        try:
            for family, address in addresses:
                opened = _opened(family, address, port, only=len(addresses) == 1)
                if opened is not None:
                    self._sockets.append(opened)
                    port = opened.getsockname()[1]
        except OSError:
            self.close()
            raise
        if not self._sockets:
            raise OSError(errno.EADDRNOTAVAIL, "no address to listen on")
        for each in self._sockets:
            loop.add_reader(each, self._take, each)
        return port

    def close(self) -> None:
        """Take no more; those whose protocol was made stay. One that was accepted and has none yet is closed."""
        self._closed = True
        loop = asyncio.get_running_loop()
        for timer in self._paused.values():
            timer.cancel()
        for each in self._sockets:
            loop.remove_reader(each)
            each.close()
        self._sockets.clear()
        self._paused.clear()

    def _take(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(AT_ONCE):
            try:
                taken, _address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _GONE:
                    continue
                self._pause(listening)
                return
            taken.setblocking(False)
            task = loop.create_task(self._connected(taken), name="accept")
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)
            task.add_done_callback(died)

    async def _connected(self, taken: socket.socket) -> None:
        if self._closed:  # between two turns; a task that were cancelled instead would never close its socket
            taken.close()
            return
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._made, taken)
        except OSError:  # it is gone already
            taken.close()

    def _pause(self, listening: socket.socket) -> None:
        """A connection that can't be taken stays ready to be: without a pause this would go round and round."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        self._paused[listening] = loop.call_later(PAUSE_S, loop.add_reader, listening, self._take, listening)


def _opened(family: socket.AddressFamily, address: str, port: int, only: bool) -> socket.socket | None:
    """A listening socket; None where this machine lacks the family, unless it is the only one asked for."""
    opened = None
    try:
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # its connections have it from it
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind((address, port))
        opened.listen(BACKLOG)
    except OSError as error:
        if opened is not None:
            opened.close()
        if only or error.errno not in _NO_FAMILY:
            raise
        return None
    opened.setblocking(False)
    return opened
