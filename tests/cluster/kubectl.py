"""Calls kubectl and helm on whichever cluster a kubeconfig names."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .commands import ClusterError, environment, last_lines, run
from .gotools import path_of
from .topology import ALL_LANES_CIDR

FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
FORWARD_TIMEOUT = 10.0


def client_path(program: str) -> Path:
    """kubectl or helm as this package builds it, else the one on PATH."""
    built = path_of(program)
    if built.exists():
        return built
    found = shutil.which(program)
    if found is None:
        raise ClusterError(f"there is no {program}; build it with: python3 -m tests.cluster tools {program}")
    return Path(found)


def client_environment(kubeconfig: Path) -> dict[str, str]:
    """A proxy of the machine must not be asked for the local cluster's private addresses."""
    told = os.environ.get("NO_PROXY") or os.environ.get("no_proxy")
    bypass = f"{told},{ALL_LANES_CIDR}" if told else ALL_LANES_CIDR
    return environment({"KUBECONFIG": str(kubeconfig), "NO_PROXY": bypass, "no_proxy": bypass})


def run_client(
    program: str, kubeconfig: Path, *args: str, stdin: str | None = None, timeout: float | None = None
) -> str:
    return run([client_path(program), *args], env=client_environment(kubeconfig), stdin=stdin, timeout=timeout)


@contextmanager
def port_forward(
    kubeconfig: Path,
    target: str,
    remote_port: int,
    *args: str,
    local_port: int | None = None,
    retries: int = 10,
) -> Iterator[int]:
    """A local port that leads to a pod or service while the context lasts; kubectl picks a free one unless told."""
    line = [str(client_path("kubectl")), "port-forward", *args, target, f"{local_port or ''}:{remote_port}"]
    reason = ""
    for _ in range(retries):
        # A file, not a pipe: kubectl writes a line per connection and would block on a pipe that nobody reads.
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(line, env=client_environment(kubeconfig), stdout=said, stderr=said)
            try:
                port = _port_said(said.fileno(), process)
                if port:
                    yield port
                    return
            finally:
                process.kill()
                process.wait()
            reason = last_lines(_read(said.fileno()))
        time.sleep(1)
    raise ClusterError(f"no port-forward to {target} after {retries} tries:\n{reason}")


def _port_said(output: int, process: "subprocess.Popen[bytes]") -> int | None:
    deadline = time.monotonic() + FORWARD_TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        found = FORWARDING.search(_read(output))
        if found:
            return int(found[1])
        time.sleep(0.02)
    return None


def _read(output: int) -> str:
    return os.pread(output, 65536, 0).decode(errors="replace")
