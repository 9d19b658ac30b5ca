"""The documents claim what is there: links lead somewhere, commands exist, the lists agree with the code."""

import re
import shlex
from pathlib import Path

import pytest
from shadowrun_mirror.reasons import DropReason, FailureReason
from shadowrun_operator.api.accept import NOT_YET
from shadowrun_operator.cli.main import _parser

pytestmark = pytest.mark.surfaces

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
TASKS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PROGRAMS = {"make", "helm", "kubectl", "shadowrun"}


def commands(text: str) -> list[list[str]]:
    """The commands of the sh blocks, as words."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def inline_make(text: str) -> list[str]:
    """Targets of `make x` in running text."""
    return re.findall(r"`make ([a-z-]+)", text)


ALL = [(name, words) for name, path in zip(NAMES, DOCUMENTS, strict=True) for words in commands(path.read_text())]


def test_the_readme_shows_the_two_commands_everything_starts_with() -> None:
    shown = [words[:2] for name, words in ALL if name == "README.md"]
    assert ["make", "demo"] in shown
    assert ["make", "test"] in shown


@pytest.mark.parametrize(("name", "words"), ALL, ids=[f"{name}: {' '.join(words)}" for name, words in ALL])
def test_a_command_in_a_document_exists(name: str, words: list[str]) -> None:
    assert words[0] in PROGRAMS
    if words[0] == "make":
        assert words[1] in TASKS
    if words[0] == "shadowrun":
        assert _parser().parse_args(words[1:]).command == words[1]
    if words[0] == "helm" and "charts/shadowrun" in words:
        assert (ROOT / "charts" / "shadowrun" / "Chart.yaml").exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_make_target_in_running_text_exists(name: str) -> None:
    assert set(inline_make((ROOT / name).read_text())) <= TASKS


@pytest.mark.parametrize("name", NAMES)
def test_a_link_leads_to_a_file(name: str) -> None:
    document = ROOT / name
    for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize("name", NAMES)
def test_a_path_in_a_document_exists(name: str) -> None:
    for path in re.findall(
        r"`((?:charts|crds|docs|examples|locks|mirror|operator|tests)/[\w./-]*)`", (ROOT / name).read_text()
    ):
        assert (ROOT / path).exists(), path


def test_every_reason_a_request_leaves_the_funnel_for_is_explained() -> None:
    text = (ROOT / "docs" / "how-it-works.md").read_text()
    assert [reason for reason in (*DropReason, *FailureReason) if not re.search(rf"\b{reason}\b", text)] == []


def test_the_list_of_what_is_not_done_yet_is_the_codes() -> None:
    _, _, text = (ROOT / "README.md").read_text().partition("## Not yet")
    for field in (entry.field for entry in NOT_YET):
        path = field.removeprefix("spec.").split()[0].rstrip(":")
        assert f"`{path}" in text, field


def test_the_licence_is_the_whole_apache_licence() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
