"""The machine a bench runs on: its description, its cores, and what a process has used of it. Linux only."""

import contextlib
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_CORES = sorted(os.sched_getaffinity(0))


def description() -> str:
    """Cores, kernel and Python; nothing that names a machine."""
    kernel = ".".join(platform.release().split(".")[:2])
    return (
        f"{len(_CORES)} cores, {platform.system()} {kernel}, {platform.machine()}, Python {platform.python_version()}"
    )


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process so far, by the kernel's clock of that process."""
    # The kernel's encoding of "CPU clock of this process", as clock_getcpuclockid(3) returns it.
    return time.clock_gettime((~pid << 3) | 2)


def waited_seconds(pid: int) -> float:
    """How long the main thread of a process was ready to run and did not: what neighbours on its core took from it."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def resident_mib(pid: int) -> float:
    """Resident memory of a process in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * _PAGE / (1 << 20)


@contextlib.contextmanager
def on_the_measured_core() -> Iterator[None]:
    """Processes started inside have one core for themselves, where there is more than one."""
    with _on(_CORES[:1]):
        yield


@contextlib.contextmanager
def on_the_other_cores() -> Iterator[None]:
    """Processes started inside stay off the measured core, where there is more than one."""
    with _on(_CORES[1:] or _CORES):
        yield


@contextlib.contextmanager
def _on(cores: list[int]) -> Iterator[None]:
    os.sched_setaffinity(0, cores)  # a child inherits it at its birth, and its threads from it
    try:
        yield
    finally:
        os.sched_setaffinity(0, _CORES)
