"""The existing provider: a cluster that somebody else runs and that your kubeconfig points at."""

import os
import shlex
from pathlib import Path

from .base import Cluster
from .commands import ClusterError, run

LOAD_COMMAND = "SHADOWRUN_LOAD_IMAGE"
NOTHING_TO_LOAD = "none"


class ExistingCluster(Cluster):
    """Made by nobody here, so `create` only looks whether it answers and `delete` leaves it alone."""

    def __init__(self) -> None:
        super().__init__("existing", chosen_kubeconfig(dict(os.environ), Path.home()))

    def create(self) -> bool:
        if not self.kubeconfig_path.exists():
            raise ClusterError(f"there is no kubeconfig at {self.kubeconfig_path}; set KUBECONFIG")
        self.kubectl("get", "--raw", "/readyz", timeout=30)
        return False

    def delete(self) -> None:
        return

    def build_image(self, tag: str, dockerfile: Path, context: Path, target: str | None = None) -> None:
        run(docker_build(tag, dockerfile, context, target))

    def load_docker_image(self, docker_image: str) -> None:
        run(load_command(os.environ.get(LOAD_COMMAND, ""), docker_image))


def chosen_kubeconfig(environ: dict[str, str], home: Path) -> Path:
    """The first file of KUBECONFIG, or kubectl's default."""
    named = [name for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    return Path(named[0]) if named else home / ".kube" / "config"


def load_command(template: str, image: str) -> list[str]:
    """How an image gets to the nodes, as the user told us; we cannot know, and guessing would fail much later."""
    if template == NOTHING_TO_LOAD:
        return ["true"]
    if "{image}" not in template:
        raise ClusterError(
            f"set {LOAD_COMMAND} to the command that brings an image to your nodes, for example\n"
            f"  {LOAD_COMMAND}='k3d image import {{image}}'\n"
            f"or to '{NOTHING_TO_LOAD}' if they have {image} already"
        )
    return [word.replace("{image}", image) for word in shlex.split(template)]


def docker_build(tag: str, dockerfile: Path, context: Path, target: str | None) -> list[str]:
    chosen = [f"--target={target}"] if target else []
    return ["docker", "build", f"--tag={tag}", f"--file={dockerfile}", *chosen, str(context)]
