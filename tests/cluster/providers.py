"""Chooses where the cluster comes from: told so, or by what the machine has."""

import os
from collections.abc import Callable, Mapping

from .base import Cluster
from .commands import ClusterError
from .existing import ExistingCluster
from .kind import KindCluster, docker_answers
from .local import LocalCluster
from .paths import State

PROVIDERS = ("local", "kind", "existing")
VARIABLE = "CLUSTER"


def choose(
    told: str | None, environ: Mapping[str, str], state: State, docker: Callable[[], bool] = docker_answers
) -> str:
    """An option beats the environment, which beats what is up already, which beats a look at the machine."""
    name = told or environ.get(VARIABLE) or provider_of(state) or ("kind" if docker() else "local")
    if name not in PROVIDERS:
        raise ClusterError(f"there is no cluster provider {name!r}; there are: {' '.join(PROVIDERS)}")
    return name


def provider_of(state: State) -> str | None:
    """Whose cluster this checkout has up, by the files it keeps."""
    if state.kind_config.exists():
        return "kind"
    return "local" if state.nodes.exists() else None


def cluster(told: str | None = None, *, quiet: bool = False) -> Cluster:
    name = choose(told, os.environ, State())
    if name == "kind":
        return KindCluster(quiet=quiet)
    if name == "existing":
        return ExistingCluster()
    return LocalCluster(quiet=quiet)
