"""Starts long-lived processes and finds them again by a mark in their environment.

There are no pid files: the process table is the record. It cannot be stale, it survives the loss of the state folder,
and a recycled pid carries no mark. Containers carry none either; they live in their node's PID namespace and end with
it.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .commands import ClusterError, GaveUpError, environment, last_lines, wait_until
from .paths import State

STATE_MARK = "SHADOWRUN_CLUSTER_STATE"
NAME_MARK = "SHADOWRUN_CLUSTER_PROCESS"
PROC = Path("/proc")

# Python complains about a process whose object is collected while it runs; these are meant to run on.
_started: list["subprocess.Popen[bytes]"] = []


@dataclass(frozen=True)
class Marked:
    """A process that this package started, or that one of those started."""

    pid: int
    name: str
    state: Path
    program: str


@dataclass(frozen=True)
class Spawned:
    """A process just started, to wait for what it should do."""

    name: str
    state: State
    process: "subprocess.Popen[bytes]"

    def wait_until(self, question: Callable[[], bool], what: str, timeout: float, poll: float = 0.1) -> None:
        """Ask until the answer is yes; stop at once when the process ends."""

        def ask() -> bool:
            if self.process.poll() is not None:
                raise GaveUpError(f"{self.name} ended before {what}:\n{log_tail(self.state, self.name)}")
            return question()

        wait_until(ask, what, timeout, poll)


def spawn(name: str, argv: Sequence[str | Path], state: State, env: Mapping[str, str] | None = None) -> Spawned:
    """Start a process that outlives this one, with its output in its own log."""
    log = state.log(name)
    log.parent.mkdir(parents=True, exist_ok=True)
    marks = {STATE_MARK: str(state.root), NAME_MARK: name}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(word) for word in argv],
            env=_without_proxies(environment(dict(env or {}) | marks)),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    _started.append(process)
    return Spawned(name, state, process)


def _without_proxies(env: dict[str, str]) -> dict[str, str]:
    """The cluster talks to itself only; a proxy of the machine would be asked for its private addresses."""
    return {name: value for name, value in env.items() if not name.lower().endswith("_proxy") and name != "KUBECONFIG"}


def marked_processes(proc: Path = PROC) -> list[Marked]:
    """Every process on the machine that carries a mark, of whichever checkout."""
    found = (read_marked(folder) for folder in proc.iterdir() if folder.name.isdigit())
    return sorted((marked for marked in found if marked), key=lambda marked: marked.pid)


def read_marked(folder: Path) -> Marked | None:
    """What a /proc/PID folder says, or None for a process without a mark, a zombie, or one that is gone."""
    try:
        variables = parse_environ((folder / "environ").read_bytes())
        program = (folder / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    except OSError:
        return None
    if STATE_MARK not in variables:
        return None
    return Marked(int(folder.name), variables.get(NAME_MARK, ""), Path(variables[STATE_MARK]), Path(program).name)


def parse_environ(raw: bytes) -> dict[str, str]:
    pairs = (entry.decode(errors="replace").partition("=") for entry in raw.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def processes_of(state: State) -> list[Marked]:
    return [process for process in marked_processes() if process.state == state.root]


def alive(state: State) -> set[str]:
    """Names of the processes whose own program runs, not merely a child or a wrapper of it."""
    return {process.name for process in processes_of(state) if process.program == process.name.split("/")[-1]}


def end(processes: Iterable[Marked], timeout: float = 20.0) -> None:
    """Kill processes and wait until they are gone. The mark is read again first: a pid may have changed hands."""
    waiting = list(processes)
    deadline = time.monotonic() + timeout
    while waiting:
        for process in waiting:
            _kill(process)
        time.sleep(0.02)
        waiting = [process for process in waiting if read_marked(PROC / str(process.pid)) == process]
        if waiting and time.monotonic() > deadline:
            raise ClusterError(f"these processes do not end: {', '.join(f'{p.name} ({p.pid})' for p in waiting)}")


def _kill(process: Marked) -> None:
    if read_marked(PROC / str(process.pid)) != process:
        return
    try:
        os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def log_tail(state: State, name: str) -> str:
    try:
        return last_lines(state.log(name).read_text(errors="replace"))
    except FileNotFoundError:
        return "(no log)"
