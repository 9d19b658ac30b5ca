"""Programs are built from pinned modules, once, and again only when a pin changes."""

import shutil
from pathlib import Path

import pytest

from tests.cluster import gotools
from tests.cluster.commands import ClusterError
from tests.cluster.gotoolchain import new_enough
from tests.cluster.gotools import GoModule, catalogue, missing, modules, path_of, program_name, tool_lines
from tests.cluster.kind import PROGRAMS as KIND_PROGRAMS
from tests.cluster.local import PROGRAMS as LOCAL_PROGRAMS

pytestmark = pytest.mark.surfaces

GO_MOD = """\
module example

go 1.26.0

tool (
\texample.com/a/cmd/one
\texample.com/b/v2
)

tool example.com/c/cmd/three

require (
\texample.com/a v1.2.3 // indirect
)
"""


def module_named(name: str) -> GoModule:
    return next(module for module in modules() if module.name == name)


def test_tools_are_read_from_blocks_and_single_lines() -> None:
    assert sorted(tool_lines(GO_MOD)) == ["example.com/a/cmd/one", "example.com/b/v2", "example.com/c/cmd/three"]


def test_a_program_is_called_what_go_calls_it() -> None:
    assert program_name("k8s.io/kubernetes/cmd/kubelet") == "kubelet"
    assert program_name("github.com/example/tool/v12") == "tool"


def test_a_program_that_go_would_call_cmd_has_the_name_of_its_module() -> None:
    assert program_name("sigs.k8s.io/lws/cmd") == "lws"
    module = module_named("leaderworkerset")
    assert (module.packages()["lws"], module.built_name("lws")) == ("sigs.k8s.io/lws/cmd", "cmd")


def test_a_new_module_folder_needs_no_line_of_python(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text(GO_MOD)
    module = GoModule(tmp_path)
    assert module.packages() == {
        "one": "example.com/a/cmd/one",
        "b": "example.com/b/v2",
        "three": "example.com/c/cmd/three",
    }
    assert module.go_version() == "1.26.0"
    assert module.version_of("example.com/a") == "v1.2.3"


@pytest.mark.parametrize("program", sorted({*LOCAL_PROGRAMS, *KIND_PROGRAMS}))
def test_every_program_a_provider_needs_has_a_module(program: str) -> None:
    assert program in catalogue()


def test_an_unknown_program_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ClusterError, match=r"no Go tool is called nothing; there are: .*kubelet"):
        path_of("nothing")


def test_kubernetes_knows_its_version() -> None:
    flags = module_named("kubernetes").linker_flags()
    assert "gitVersion=v1.37.2" in flags
    assert "gitMajor=1" in flags
    assert "gitMinor=37" in flags


def test_every_kubernetes_module_is_replaced_by_the_same_release() -> None:
    text = (module_named("kubernetes").folder / "go.mod").read_text()
    replaced = [line.split()[-1] for line in text.splitlines() if line.startswith("replace k8s.io/")]
    assert set(replaced) == {"v0.37.2"}
    assert len(replaced) > 30


@pytest.mark.parametrize("changed", ["go.mod", "go.sum", "main.go"])
def test_the_key_changes_with_every_file_that_is_built_from(tmp_path: Path, changed: str) -> None:
    folder = tmp_path / "coredns"
    shutil.copytree(module_named("coredns").folder, folder)
    module = GoModule(folder)
    before = module.key()
    with (folder / changed).open("a") as file:
        file.write("\n// changed\n")
    assert module.key() != before


def test_only_what_is_not_built_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHADOWRUN_CACHE", str(tmp_path))
    for program in ("helm", "ctr"):
        path_of(program).parent.mkdir(parents=True, exist_ok=True)
        path_of(program).touch()
    todo = missing(["helm", "ctr", "containerd", "kubectl"])
    assert {module.name: names for module, names in todo.items()} == {
        "containerd": ["containerd"],
        "kubernetes": ["kubectl"],
    }
    assert [title for title, _ in gotools.plan(["helm", "containerd"])] == ["building containerd"]


@pytest.mark.parametrize(
    ("said", "enough"),
    [
        ("go version go1.26.8 linux/amd64", True),
        ("go version go1.27 linux/amd64", True),
        ("go version go1.26.5 linux/amd64", False),
        ("go version go1.9 linux/amd64", False),
        ("", False),
    ],
)
def test_an_older_go_is_not_used(said: str, enough: bool) -> None:
    assert new_enough(said, "1.26.6") is enough
