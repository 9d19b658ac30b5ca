"""An image is built again when what it is made of changed, and only then."""

import subprocess
from pathlib import Path

import pytest

from tests.cluster.dockerfile import content_key, context_files, copied_sources, is_copied

pytestmark = pytest.mark.surfaces

DOCKERFILE = """\
# COPY comment ignored
FROM python:3.13-slim AS build
COPY --chown=1:1 pyproject.toml ./locks/ /src/
COPY --from=build /opt/app /opt/app
COPY ["a file", "/src/"]
ADD data/*.json \\
    /data/
FROM build AS final
COPY src /src
"""


def repository(folder: Path) -> Path:
    for name in ("pyproject.toml", "src/main.py", "locks/all.txt", "data/x.json", "docs/index.md", "a file"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / ".gitignore").write_text("*.pyc\n")
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    return folder


def key(folder: Path, target: str | None = None, base: str = "base") -> str:
    return content_key(folder / "Dockerfile", folder, target, base)


def test_copied_sources_are_those_of_the_context() -> None:
    assert copied_sources(DOCKERFILE) == ["pyproject.toml", "locks", "a file", "data/*.json", "src"]


def test_a_variable_among_the_sources_means_everything() -> None:
    assert copied_sources("ARG x\nCOPY $x /x\n") == ["."]


@pytest.mark.parametrize("source", [".", "./"])
def test_the_whole_context_means_everything(source: str) -> None:
    assert is_copied("any/file", copied_sources(f"COPY {source} /src"))


@pytest.mark.parametrize(
    ("path", "copied"),
    [
        ("pyproject.toml", True),
        ("locks/deep/er.txt", True),
        ("data/x.json", True),
        ("data/x.yaml", False),
        ("src", True),
        ("src2/main.py", False),
        ("docs/index.md", False),
    ],
)
def test_a_file_counts_when_an_instruction_copies_it(path: str, copied: bool) -> None:
    assert is_copied(path, copied_sources(DOCKERFILE)) is copied


@pytest.mark.parametrize("changed", ["src/main.py", "locks/all.txt", "data/x.json", "a file", "Dockerfile"])
def test_the_key_changes_with_what_is_copied(tmp_path: Path, changed: str) -> None:
    folder = repository(tmp_path)
    before = key(folder)
    (folder / changed).write_text((folder / changed).read_text() + "\n# more\n")
    assert key(folder) != before


@pytest.mark.parametrize("changed", ["docs/index.md", "src/main.pyc", "README.md"])
def test_the_key_stays_when_the_image_would(tmp_path: Path, changed: str) -> None:
    folder = repository(tmp_path)
    before = key(folder)
    (folder / changed).write_text("new")
    assert key(folder) == before


def test_the_key_changes_with_a_new_file_a_mode_the_target_and_the_base(tmp_path: Path) -> None:
    folder = repository(tmp_path)
    keys = [key(folder), key(folder, target="final"), key(folder, base="other")]
    (folder / "src/new.py").write_text("")
    keys.append(key(folder))
    (folder / "src/new.py").chmod(0o755)
    keys.append(key(folder))
    assert len(set(keys)) == len(keys)


def test_a_context_outside_of_git_counts_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "y.pyc").write_text("")
    assert context_files(tmp_path) == ["x/y.pyc"]
