"""What tests may ask of a cluster, whoever provides it: pytest-kind's KindCluster interface, and building images."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .kubectl import port_forward, run_client


class Cluster(ABC):
    """A Kubernetes cluster with GPU nodes."""

    def __init__(self, name: str, kubeconfig_path: Path) -> None:
        self.name = name
        self.kubeconfig_path = kubeconfig_path

    @abstractmethod
    def create(self) -> bool:
        """Bring the cluster up if it is not. True when this call made it, so that the caller knows whose it is."""

    @abstractmethod
    def delete(self) -> None:
        """Take down what `create` made."""

    @abstractmethod
    def build_image(self, tag: str, dockerfile: Path, context: Path, target: str | None = None) -> None:
        """Build an image from a Dockerfile, unless what it is made of has not changed."""

    @abstractmethod
    def load_docker_image(self, docker_image: str) -> None:
        """Put a built image on every node. Pods use it with `imagePullPolicy: IfNotPresent`."""

    def kubectl(self, *args: str, input: str | None = None, timeout: float | None = None) -> str:  # noqa: A002
        """What kubectl prints, or an error with what it said. `input` goes to `-f -`."""
        return run_client("kubectl", self.kubeconfig_path, *args, stdin=input, timeout=timeout)

    def helm(self, *args: str, timeout: float | None = None) -> str:
        return run_client("helm", self.kubeconfig_path, *args, timeout=timeout)

    @contextmanager
    def port_forward(
        self, target: str, remote_port: int, *args: str, local_port: int | None = None, retries: int = 10
    ) -> Iterator[int]:
        """A local port that leads to `pod/x`, `service/x` or `deployment/x` while the context lasts."""
        with port_forward(
            self.kubeconfig_path, target, remote_port, *args, local_port=local_port, retries=retries
        ) as port:
            yield port
