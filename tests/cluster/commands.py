"""Runs other programs and turns a failure into a message that can be acted on."""

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

LAST_LINES = 20
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


class ClusterError(Exception):
    """Something about the cluster cannot be done; the message says what and, where known, what to do."""


class GaveUpError(ClusterError):
    """Asking again will not help."""


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
) -> str:
    """Standard output of a command, or a ClusterError with the end of what it printed."""
    line = [str(word) for word in argv]
    try:
        done = subprocess.run(
            line,
            env=environment(env),
            cwd=cwd,
            input=stdin,
            timeout=timeout,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as missing:
        raise ClusterError(f"{line[0]} is not installed") from missing
    except subprocess.TimeoutExpired as late:
        raise ClusterError(f"{shlex.join(line)} took longer than {timeout} s") from late
    if done.returncode != 0:
        said = last_lines(done.stdout + done.stderr)
        raise ClusterError(f"{shlex.join(line)} ended with {done.returncode}:\n{said}")
    return done.stdout


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, with the system folders that a user's PATH often lacks."""
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    path = os.pathsep.join(folders + [folder for folder in SYSTEM_FOLDERS if folder not in folders])
    return dict(os.environ) | {"PATH": path} | dict(more or {})


def last_lines(text: str, count: int = LAST_LINES) -> str:
    return "\n".join(text.rstrip().splitlines()[-count:])


def wait_until(question: Callable[[], bool], what: str, timeout: float, poll: float = 0.1) -> None:
    """Ask until the answer is yes. A ClusterError counts as 'not yet', a GaveUpError as 'never'."""
    deadline = time.monotonic() + timeout
    reason = ""
    while time.monotonic() < deadline:
        try:
            if question():
                return
        except GaveUpError:
            raise
        except ClusterError as not_yet:
            reason = f": {not_yet}"
        time.sleep(poll)
    raise GaveUpError(f"gave up after {timeout:.0f} s waiting until {what}{reason}")
