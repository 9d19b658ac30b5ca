"""pytest plugin: the session fixture `cluster` and the option `--cluster`.

Load it from the top conftest: `pytest_plugins = ["tests.cluster.plugin"]`. `--keep-cluster` is pytest-kind's option and
means the same here. A provider that is missing is an error with its reason, never a skip.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from .base import Cluster
from .providers import PROVIDERS, VARIABLE
from .providers import cluster as chosen_cluster


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cluster", "Kubernetes cluster for end-to-end tests")
    group.addoption(
        "--cluster",
        choices=PROVIDERS,
        default=None,
        help=f"where the cluster comes from (default: ${VARIABLE}, or kind with a Docker engine, else local)",
    )


@contextmanager
def progress_shown(config: pytest.Config) -> Iterator[None]:
    """The first time takes minutes; whoever waits must see what for, which pytest would keep to itself."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        yield


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster with two GPU pools. Left up if it was up before, or with --keep-cluster."""
    one = chosen_cluster(request.config.getoption("--cluster"))
    with progress_shown(request.config):
        made_here = one.create()
    try:
        yield one
    finally:
        if made_here and not request.config.getoption("--keep-cluster"):
            one.delete()
