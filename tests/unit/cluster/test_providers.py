"""The cluster comes from where one is told, else from what is up, else from what the machine has."""

import json
import sys
from pathlib import Path

import pytest

from tests.cluster import kind, providers
from tests.cluster.base import Cluster
from tests.cluster.commands import ClusterError
from tests.cluster.existing import ExistingCluster, chosen_kubeconfig, load_command
from tests.cluster.kind import KindCluster
from tests.cluster.local import LocalCluster
from tests.cluster.paths import State
from tests.cluster.providers import choose
from tests.cluster.topology import NODES

pytestmark = pytest.mark.surfaces


def no_docker() -> bool:
    return False


def docker() -> bool:
    return True


def test_an_option_beats_the_environment(tmp_path: Path) -> None:
    assert choose("existing", {"CLUSTER": "kind"}, State(tmp_path), docker) == "existing"
    assert choose(None, {"CLUSTER": "local"}, State(tmp_path), docker) == "local"


@pytest.mark.parametrize("environ", [{}, {"CLUSTER": ""}])
def test_a_docker_engine_means_kind_and_none_means_local(tmp_path: Path, environ: dict[str, str]) -> None:
    assert choose(None, environ, State(tmp_path), docker) == "kind"
    assert choose(None, environ, State(tmp_path), no_docker) == "local"


def test_what_is_up_already_is_used(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.nodes.mkdir()
    assert choose(None, {}, state, docker) == "local"
    state.nodes.rmdir()
    state.kind_config.touch()
    assert choose(None, {}, state, no_docker) == "kind"


def test_an_unknown_provider_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="'minikube'; there are: local kind existing"):
        choose(None, {"CLUSTER": "minikube"}, State(tmp_path))


@pytest.mark.parametrize(
    ("name", "made"), [("kind", KindCluster), ("local", LocalCluster), ("existing", ExistingCluster)]
)
def test_every_provider_has_the_same_interface(name: str, made: type[Cluster]) -> None:
    one = providers.cluster(name)
    assert isinstance(one, made)
    for method in ("create", "delete", "kubectl", "helm", "load_docker_image", "build_image", "port_forward"):
        assert callable(getattr(one, method))
    assert one.name
    assert isinstance(one.kubeconfig_path, Path)


def test_a_missing_docker_engine_is_an_error_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kind, "docker_answers", no_docker)
    with pytest.raises(ClusterError, match="needs a running Docker engine"):
        KindCluster(State(tmp_path)).create()


def test_an_existing_cluster_is_found_where_kubectl_would(tmp_path: Path) -> None:
    assert chosen_kubeconfig({}, tmp_path) == tmp_path / ".kube" / "config"
    assert chosen_kubeconfig({"KUBECONFIG": "/a:/b"}, tmp_path) == Path("/a")


def test_an_existing_cluster_must_be_told_how_images_get_there() -> None:
    assert load_command("k3d image import {image} -c dev", "app:1") == ["k3d", "image", "import", "app:1", "-c", "dev"]
    assert load_command("none", "app:1") == ["true"]
    for template in ("", "k3d image import"):
        with pytest.raises(ClusterError, match="set SHADOWRUN_LOAD_IMAGE"):
            load_command(template, "app:1")


# kind, with programs that only write down how they were called ---------------------------------------------------


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of every call of kind, kubectl and docker, one JSON list per line."""
    log = tmp_path / "calls"
    (tmp_path / "up").touch()
    script = tmp_path / "fake"
    script.write_text(FAKE.format(python=sys.executable))
    script.chmod(0o755)
    for program in ("kind", "kubectl", "docker", "helm"):
        (tmp_path / program).symlink_to(script)
    monkeypatch.setattr("tests.cluster.gotools.path_of", lambda program: tmp_path / program)
    monkeypatch.setattr("tests.cluster.kubectl.path_of", lambda program: tmp_path / program)
    monkeypatch.setattr("tests.cluster.gotools.plan", lambda _: [])
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return log


FAKE = """#!{python}
import json, pathlib, sys
folder = pathlib.Path(sys.argv[0]).parent
arguments = [pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]
with (folder / "calls").open("a") as log:
    log.write(json.dumps(arguments) + "\\n")
if arguments[1:3] == ["get", "clusters"]:
    print((folder / "up").read_text())
for argument in arguments:
    if argument.startswith("--kubeconfig=") and arguments[1] in ("create", "export"):
        cluster = dict(name="k", cluster=dict(server="https://127.0.0.1:1"))
        context = dict(name="k", context=dict(cluster="k", user="k"))
        config = dict(clusters=[cluster], contexts=[context], users=[dict(name="k", user=dict())])
        config["current-context"] = "k"
        pathlib.Path(argument.split("=")[1]).write_text(json.dumps(config))
"""


def lines(log: Path) -> list[list[str]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_kind_is_made_with_the_pinned_programs_and_gets_its_gpus(calls: Path, tmp_path: Path) -> None:
    state = State(tmp_path / ".cluster")
    assert KindCluster(state, quiet=True).create() is True
    made = next(call for call in lines(calls) if call[:3] == ["kind", "create", "cluster"])
    assert made[3:] == ["--name=shadowrun", f"--kubeconfig={state.kubeconfig}", "--config", str(state.kind_config)]
    patched = [call[3] for call in lines(calls) if call[:3] == ["kubectl", "patch", "node"]]
    assert patched == ["shadowrun-worker", "shadowrun-worker2", "shadowrun-worker3"]
    control_plane, *workers = json.loads(state.kind_config.read_text())["nodes"]
    assert control_plane == {"role": "control-plane"}
    assert [worker["labels"] for worker in workers] == [node.labels() for node in NODES]


def test_kind_builds_loads_and_deletes_by_name(calls: Path, tmp_path: Path) -> None:
    state = State(tmp_path / ".cluster")
    cluster = KindCluster(state, quiet=True)
    cluster.create()
    calls.write_text("")
    cluster.build_image("app:1", tmp_path / "Dockerfile", tmp_path, target="mirror")
    cluster.load_docker_image("app:1")
    cluster.delete()
    build, load, _, delete = lines(calls)
    assert build == [
        *["docker", "build", "--tag=app:1", f"--file={tmp_path / 'Dockerfile'}", "--target=mirror", str(tmp_path)]
    ]
    assert load == ["kind", "load", "docker-image", "--name", "shadowrun", "app:1"]
    assert delete == ["kind", "delete", "cluster", "--name=shadowrun", f"--kubeconfig={state.kubeconfig}"]
    assert not state.kind_config.exists()


def test_a_kind_cluster_that_is_up_is_taken_over(calls: Path, tmp_path: Path) -> None:
    state = State(tmp_path / ".cluster")
    (tmp_path / "up").write_text("other\nshadowrun\n")
    assert KindCluster(state, quiet=True).create() is False
    assert ["kind", "export", "kubeconfig", "--name=shadowrun", f"--kubeconfig={state.kubeconfig}"] in lines(calls)
    assert not [call for call in lines(calls) if "create" in call]
