"""The commands of the documents that need no cluster are carried out: planned, rendered, or made for show.

Those that ask a cluster are in tests/integration/api/test_documented_commands.py.
"""

from pathlib import Path

import pytest
import yaml
from shadowrun_operator.cli.main import main

from tests.cluster import gotools
from tests.cluster.commands import run
from tests.cluster.progress import carry_out
from tests.unit.surfaces.test_docs import ALL, ROOT

pytestmark = pytest.mark.surfaces

SHOWN = sorted({tuple(words) for _, words in ALL})
MANIFESTS = sorted(path for path in (ROOT / "examples" / "manifests").glob("*.yaml"))
NEEDS_A_RELEASE = {"--install", "--create-namespace", "--reuse-values"}


def shown(program: str, *first: str) -> list[tuple[str, ...]]:
    """Commands of the documents that begin so."""
    return [words for words in SHOWN if words[: 1 + len(first)] == (program, *first)]


@pytest.mark.parametrize("words", shown("make"), ids=" ".join)
def test_make_knows_what_to_do(words: tuple[str, ...]) -> None:
    done = run([words[0], "--dry-run", "--always-make", "setup", *words[1:]], cwd=ROOT)
    assert len(done.splitlines()) > 1


@pytest.mark.parametrize("words", [w for w in shown("helm") if "charts/shadowrun" in w], ids=" ".join)
def test_helm_renders_what_it_is_told_to_install(words: tuple[str, ...]) -> None:
    carry_out(gotools.plan(["helm"]))
    options = [word for word in words[2:] if word not in NEEDS_A_RELEASE]
    kinds = {m["kind"] for m in yaml.safe_load_all(run([gotools.path_of("helm"), "template", *options], cwd=ROOT)) if m}
    assert {"Deployment", "ServiceAccount"} <= kinds


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("words", shown("shadowrun", "plan"), ids=" ".join)
def test_a_plan_is_made_of_every_example(
    words: tuple[str, ...], manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([str(manifest) if word == "run.yaml" else word for word in words[1:]])
    assert code in (0, 2)
    assert yaml.safe_load(manifest.read_text())["metadata"]["name"] in capsys.readouterr().out


def test_every_program_of_the_documents_is_tried_here_or_on_an_api_server() -> None:
    assert {words[0] for words in SHOWN} == {"make", "helm", "shadowrun", "kubectl"}
    assert {words[1] for words in shown("shadowrun")} >= {"plan", "gate", "report"}
