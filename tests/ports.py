"""Ports for what a test starts on a port it names: no other process of the machine gets one of them by chance."""

import contextlib
import os
import socket
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

_HERE = "127.0.0.1"
_FIRST = 11_000
_GIVEN_BY_THE_KERNEL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_PER_PROCESS = 997


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on, each another one than this process was told lately.

    None is from the range out of which the kernel serves whoever asks for any port, be it to listen or to connect:
    between this call and the use of a port another test could have been given it.
    """
    found: list[int] = []
    for port in _ports:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((_HERE, port))
            found.append(port)
        if len(found) == count:
            break
    return found


def _round() -> Iterator[int]:
    """A part of the range, begun by the process's number: those that run side by side seldom share one."""
    last = int(_GIVEN_BY_THE_KERNEL.read_text().split()[0])
    parts = (last - _FIRST) // _PER_PROCESS
    begin = _FIRST + os.getpid() % parts * _PER_PROCESS
    return cycle(range(begin, begin + _PER_PROCESS))


_ports = _round()
