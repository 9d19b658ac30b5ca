"""Every image installs from its lock file alone: what a package imports must be in it."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.cluster.paths import REPOSITORY

pytestmark = pytest.mark.surfaces

MIRROR = REPOSITORY / "mirror" / "shadowrun_mirror"
OPERATOR = REPOSITORY / "operator" / "shadowrun_operator"
CONTRACTS = ("blocks", "config", "directive", "evidence", "histogram", "reasons")
IMPORTERS = {
    "mirror": [f for f in MIRROR.rglob("*.py") if "capture" not in f.parts],
    "capture": [*(MIRROR / "capture").rglob("*.py"), *(MIRROR / f"{name}.py" for name in CONTRACTS)],
    "operator": [*OPERATOR.rglob("*.py"), *(MIRROR / f"{name}.py" for name in CONTRACTS)],
}


def imported(source: str) -> set[str]:
    """Top-level names of the absolute imports in a module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def locked(image: str) -> set[str]:
    lines = (REPOSITORY / "locks" / f"{image}.txt").read_text().splitlines()
    return {plain(line.split("==")[0]) for line in lines if "==" in line and not line.startswith((" ", "#"))}


def plain(distribution: str) -> str:
    """A distribution's name as lock files spell it."""
    return distribution.lower().replace("_", "-").replace(".", "-")


@pytest.mark.parametrize("image", IMPORTERS)
def test_what_an_image_imports_is_in_its_lock_file(image: str) -> None:
    names = set().union(*(imported(path.read_text()) for path in IMPORTERS[image]))
    foreign = names - set(sys.stdlib_module_names) - {"shadowrun_mirror", "shadowrun_operator"}
    homes = packages_distributions()
    missing = {n for n in foreign if not {plain(home) for home in homes.get(n, [n])} & locked(image)}
    assert not missing, f"add to the extra {image!r} of pyproject.toml and run `make lock`: {sorted(missing)}"
    assert foreign, "nothing was looked at"


def test_what_the_command_imports_is_in_its_extra() -> None:
    """The command loads a part of the operator only, so its modules are asked, not its folder."""
    line = (
        "import sys, shadowrun_operator.cli.main, shadowrun_operator.cli.plan, shadowrun_operator.cli.report;"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.startswith('shadowrun_') and m.__file__))"
    )
    told = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    foreign = set().union(*(imported(Path(file).read_text()) for file in told.stdout.split()))
    foreign -= set(sys.stdlib_module_names) | {"shadowrun_mirror", "shadowrun_operator"}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *project["optional-dependencies"]["cli"]]
    declared = {plain(re.split("[<>=~!]", name)[0]) for name in named} | {"pydantic-core"}
    homes = packages_distributions()
    assert not {n for n in foreign if not {plain(home) for home in homes.get(n, [n])} & declared}
