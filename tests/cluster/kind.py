"""The kind provider, the usual way where a Docker engine is at hand. pytest-kind drives kind; this adds GPU pools."""

import json
import subprocess
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

from . import config, gotools
from .base import Cluster
from .commands import ClusterError, run
from .existing import docker_build
from .paths import State
from .progress import carry_out
from .topology import NODES

if TYPE_CHECKING:
    from pytest_kind import KindCluster as PytestKindCluster

NAME = "shadowrun"
PROGRAMS = ("kind", "kubectl", "helm")


class KindCluster(Cluster):
    """A control-plane node and one worker per node of the topology, labelled and given GPUs like those."""

    def __init__(self, state: State | None = None, *, name: str = NAME, quiet: bool = False) -> None:
        self.state = state or State()
        self.quiet = quiet
        super().__init__(name, self.state.kubeconfig)

    def create(self) -> bool:
        require_docker()
        carry_out(gotools.plan(PROGRAMS), self.quiet)
        existed = self.name in run([gotools.path_of("kind"), "get", "clusters"]).split()
        self.state.root.mkdir(exist_ok=True)
        self.state.kind_config.write_text(kind_config())
        if existed:
            run(export_kubeconfig(gotools.path_of("kind"), self.name, self.kubeconfig_path))
        self._driver().create(self.state.kind_config)
        for number, one in enumerate(NODES):
            patch = ("--subresource=status", "--type=merge", "-p", config.gpu_patch(one.pool.gpus))
            self.kubectl("patch", "node", worker_name(self.name, number), *patch)
        self.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=180s")
        return not existed

    def delete(self) -> None:
        require_docker()
        self._driver().delete()
        for file in (self.state.kubeconfig, self.state.kind_config):
            file.unlink(missing_ok=True)

    def build_image(self, tag: str, dockerfile: Path, context: Path, target: str | None = None) -> None:
        run(docker_build(tag, dockerfile, context, target))

    def load_docker_image(self, docker_image: str) -> None:
        self._driver().load_docker_image(docker_image)

    def _driver(self) -> "PytestKindCluster":
        try:
            from pytest_kind import KindCluster as PytestKindCluster
        except ImportError as absent:
            raise ClusterError("the kind provider needs pytest-kind: pip install pytest-kind") from absent
        with chdir(self.state.root):  # it makes a folder where it stands
            return PytestKindCluster(
                self.name,
                kubeconfig=self.kubeconfig_path,
                # Its own defaults download an old kind; these are the pinned ones.
                kind_path=gotools.path_of("kind"),
                kubectl_path=gotools.path_of("kubectl"),
            )


def export_kubeconfig(kind: Path, name: str, kubeconfig: Path) -> list[str]:
    """For a cluster that is up already: pytest-kind writes a kubeconfig only for one that it makes."""
    return [str(kind), "export", "kubeconfig", f"--name={name}", f"--kubeconfig={kubeconfig}"]


def kind_config() -> str:
    """The workers in the order of the topology: kind names them in this order."""
    workers = [{"role": "worker", "labels": one.labels()} for one in NODES]
    return json.dumps(
        {
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "nodes": [{"role": "control-plane"}, *workers],
        },
        indent=2,
    )


def worker_name(cluster: str, number: int) -> str:
    """kind's name of its worker, counted from 0: the first has no number."""
    return f"{cluster}-worker{number + 1 if number else ''}"


def docker_answers() -> bool:
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=20, check=False).returncode == 0
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False


def require_docker() -> None:
    if not docker_answers():
        raise ClusterError("the kind provider needs a running Docker engine, and `docker info` fails")
