"""Builds the cluster's programs from their Go modules, once per machine.

Each folder under `tools/` is a Go module. Its programs are the `tool` lines of its go.mod and, where it has a main.go,
the folder itself. A new program needs no change here: `go get -tool PACKAGE@VERSION` in a folder that suits its
dependencies, or in a new one after `go mod init`.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .commands import ClusterError, environment, last_lines, run
from .gotoolchain import go_command
from .locks import locked
from .paths import TOOLS, cache_root
from .progress import Plan, Step

BUILD_FLAGS = ("-buildvcs=false", "-mod=readonly", "-trimpath")
BUILD_ENVIRONMENT = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}

# Without a version Kubernetes reports v0.0.0, and API machinery that compares versions misbehaves.
KUBERNETES_VERSION_PACKAGE = "k8s.io/component-base/version"


@dataclass(frozen=True)
class GoModule:
    """One folder under `tools/`."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    def packages(self) -> dict[str, str]:
        """Program name → Go package."""
        programs = {program_name(package): package for package in tool_lines(self._text())}
        if (self.folder / "main.go").exists():
            programs[self.name] = "."
        return programs

    def built_name(self, program: str) -> str:
        """What `go build` calls it."""
        package = self.packages()[program]
        return self.name if package == "." else built_name(package)

    def go_version(self) -> str:
        found = re.search(r"^go (\S+)", self._text(), re.MULTILINE)
        if not found:
            raise ClusterError(f"{self.folder}/go.mod has no go line")
        return found[1]

    def version_of(self, module: str) -> str:
        found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", self._text(), re.MULTILINE)
        if not found:
            raise ClusterError(f"{self.folder}/go.mod does not require {module}")
        return found[1]

    def linker_flags(self) -> str:
        flags = ["-s", "-w"]
        if self.name == "kubernetes":
            version = self.version_of("k8s.io/kubernetes")
            major, minor, _ = version.removeprefix("v").split(".", 2)
            values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
            flags += [f"-X {KUBERNETES_VERSION_PACKAGE}.{name}={value}" for name, value in values.items()]
        return " ".join(flags)

    def key(self) -> str:
        """Changes when what would be built changes."""
        digest = hashlib.sha256()
        for path in sorted([*self.folder.glob("*.go"), self.folder / "go.mod", self.folder / "go.sum"]):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        settings = [*BUILD_FLAGS, self.linker_flags(), platform.machine(), *sorted(BUILD_ENVIRONMENT.items())]
        digest.update(repr(settings).encode())
        return digest.hexdigest()[:16]

    def binaries(self) -> Path:
        return cache_root() / "tools" / f"{self.name}-{self.key()}"

    def _text(self) -> str:
        return (self.folder / "go.mod").read_text()


def tool_lines(go_mod: str) -> list[str]:
    """The packages named by `tool` directives, single or in a block."""
    packages = re.findall(r"^tool ([^\s(]+)", go_mod, re.MULTILINE)
    for block in re.findall(r"^tool \((.*?)^\)", go_mod, re.MULTILINE | re.DOTALL):
        packages += block.split()
    return packages


def program_name(package: str) -> str:
    """What a program is called: as `go build` does, or where that says nothing, after its module."""
    return built_name(package.removesuffix("/cmd"))


def built_name(package: str) -> str:
    """What `go build` calls the program: the last part of its path that is not a major version."""
    parts = package.split("/")
    return parts[-2] if re.fullmatch(r"v\d+", parts[-1]) else parts[-1]


def modules() -> list[GoModule]:
    return [GoModule(path.parent) for path in sorted(TOOLS.glob("*/go.mod"))]


def catalogue() -> dict[str, GoModule]:
    """Program name → the module it is built from."""
    return {program: module for module in modules() for program in module.packages()}


def path_of(program: str) -> Path:
    module = catalogue().get(program)
    if module is None:
        raise ClusterError(f"no Go tool is called {program}; there are: {' '.join(sorted(catalogue()))}")
    return module.binaries() / program


def source(program: str, module: str) -> Path:
    """The source of a Go module that a program is built with, downloaded if it is not there."""
    built_from = catalogue()[program]
    go, where = go_command(built_from.go_version()), built_from.folder
    run([go, "mod", "download", module], cwd=where, env=BUILD_ENVIRONMENT)
    return Path(run([go, "list", "-m", "-f", "{{.Dir}}", module], cwd=where, env=BUILD_ENVIRONMENT).strip())


def missing(programs: Sequence[str]) -> dict[GoModule, list[str]]:
    """Those of the programs that are not built yet, by module."""
    todo: dict[GoModule, list[str]] = {}
    for program in programs:
        if not path_of(program).exists():
            todo.setdefault(catalogue()[program], []).append(program)
    return todo


def plan(programs: Sequence[str]) -> Plan:
    """The steps that build what is missing."""
    return [
        (f"building {' '.join(names)}", partial(build, module, names)) for module, names in missing(programs).items()
    ]


def build(module: GoModule, programs: Sequence[str], step: Step) -> None:
    """Build programs of one module into the cache; another checkout doing the same waits for this one."""
    folder = module.binaries()
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        todo = [program for program in programs if not (folder / program).exists()]
        unfinished = folder / ".building"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        if todo:
            _go_build(module, [module.packages()[program] for program in todo], unfinished, step)
        for program in todo:
            (unfinished / module.built_name(program)).rename(folder / program)
        unfinished.rmdir()
    absent = [program for program in programs if not (folder / program).exists()]
    if absent:
        raise ClusterError(f"go build of {module.name} made no {' '.join(absent)}")


def _go_build(module: GoModule, packages: list[str], output: Path, step: Step) -> None:
    flags = [*BUILD_FLAGS, f"-ldflags={module.linker_flags()}"]
    line = [str(go_command(module.go_version())), "build", "-v", *flags, "-o", f"{output}{os.sep}", *packages]
    said: list[str] = []
    compiled = 0
    with subprocess.Popen(
        ["nice", "-n", "10", *line],  # a build of minutes must not stall whoever works on this machine
        cwd=module.folder,
        env=environment(BUILD_ENVIRONMENT),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for said_line in process.stderr:
            said.append(said_line)
            compiled += not said_line.startswith("go: ")
            step.detail = f"{compiled} packages compiled" if compiled else "downloading modules"
    if process.returncode != 0:
        raise ClusterError(f"go build of {module.name} failed:\n{last_lines(''.join(said))}")
