"""The command's only I/O with the cluster: reads of a ShadowRun and of a ConfigMap, each with a time limit."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from urllib3.exceptions import HTTPError

from shadowrun_operator.api.run import GROUP, KIND, PLURAL, VERSION
from shadowrun_operator.cli.exits import CommandError, UnreachableError

REQUEST_SECONDS = 10
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_Answer = TypeVar("_Answer")


class Reader(Protocol):
    """What the command asks a cluster."""

    @property
    def namespace(self) -> str:
        """The namespace that is read."""

    def run(self, name: str) -> dict[str, Any]:
        """A ShadowRun as JSON; raises `CommandError`, or `UnreachableError` where asking again may help."""

    def config_map(self, name: str) -> dict[str, str]:
        """The data of a ConfigMap; raises the same."""


@dataclass(frozen=True)
class ClusterReader:
    """Reads one namespace through the API server."""

    api: client.ApiClient

    namespace: str

    def run(self, name: str) -> dict[str, Any]:
        """A ShadowRun as JSON."""
        objects = client.CustomObjectsApi(self.api)
        answer: Any = _asked(
            f"{KIND} {name} in namespace {self.namespace}",
            lambda: objects.get_namespaced_custom_object(
                GROUP, VERSION, self.namespace, PLURAL, name, _request_timeout=REQUEST_SECONDS
            ),
        )
        return dict(answer)

    def config_map(self, name: str) -> dict[str, str]:
        """The data of a ConfigMap."""
        core = client.CoreV1Api(self.api)
        answer: Any = _asked(
            f"ConfigMap {name} in namespace {self.namespace}",
            lambda: core.read_namespaced_config_map(name, self.namespace, _request_timeout=REQUEST_SECONDS),
        )
        return dict(answer.data or {})


def cluster_reader(kubeconfig: str | None, context: str | None, namespace: str | None) -> ClusterReader:
    """A reader from a kubeconfig, or inside a pod from its service account; raises `CommandError` without either."""
    settings = client.Configuration()
    try:
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, context=context, client_configuration=settings
        )
        found = namespace or _context_namespace(kubeconfig, context)
    except ConfigException as outside:
        if kubeconfig or context or not _NAMESPACE_FILE.exists():
            raise CommandError(f"no cluster to ask: {outside}") from outside
        config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
        found = namespace or _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    return ClusterReader(client.ApiClient(settings), found)


def _context_namespace(kubeconfig: str | None, context: str | None) -> str:
    contexts, active = config.list_kube_config_contexts(kubeconfig)  # type: ignore[no-untyped-call]
    chosen = next((c for c in contexts if c["name"] == context), active)
    return str(chosen.get("context", {}).get("namespace") or "default")


def _asked(what: str, ask: Callable[[], _Answer]) -> _Answer:
    """The answer, or an error that says what was asked for and why it was not given."""
    try:
        return ask()
    except ApiException as refused:
        if refused.status == 404:
            raise CommandError(f"{what} was not found") from refused
        if refused.status in (401, 403):
            raise CommandError(f"not allowed to read {what} ({refused.status} {refused.reason})") from refused
        raise UnreachableError(f"{what}: {refused.status} {refused.reason}") from refused
    except (HTTPError, OSError) as silent:
        raise UnreachableError(f"{what}: {silent}") from silent
