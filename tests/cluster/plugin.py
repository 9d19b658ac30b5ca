"""pytest plugin: the session fixture `cluster` and the option `--cluster`.

Load it from the top conftest: `pytest_plugins = ["tests.cluster.plugin"]`. `--keep-cluster` is pytest-kind's option and
means the same here. A provider that is missing is an error with its reason, never a skip.

With pytest-xdist several processes run the tests of one run of pytest. They share one cluster: `RunOnce` says what one
of them has done for all, and the process that started them ends what they have made, after the last of them.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from .base import Cluster
from .locks import locked
from .providers import PROVIDERS, VARIABLE
from .providers import cluster as chosen_cluster

_FOLDER = "SHADOWRUN_TEST_RUN"
_MADE_HERE = "cluster-made-here"


class RunOnce:
    """What is done once in a run of pytest, by whichever of its processes comes first. The others wait for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name: str, work: Callable[[], object]) -> None:
        """Do `work`, unless it has been done. One that fails is tried again by the next process that asks."""
        with locked(self._folder / f"{name}.lock", quiet=True):
            if not self.noted(name):
                work()
                self.note(name)

    @property
    def identity(self) -> str:
        """A short name of this run of pytest, the same in all its processes and fit for names in Kubernetes."""
        return hashlib.blake2s(str(self._folder).encode(), digest_size=3).hexdigest()

    def note(self, name: str) -> None:
        (self._folder / name).touch()

    def noted(self, name: str) -> bool:
        return (self._folder / name).exists()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cluster", "Kubernetes cluster for end-to-end tests")
    group.addoption(
        "--cluster",
        choices=PROVIDERS,
        default=None,
        help=f"where the cluster comes from (default: ${VARIABLE}, or kind with a Docker engine, else local)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The first process makes a folder for what is done once; the others find it in their environment."""
    if not is_worker(config):
        os.environ[_FOLDER] = folder = tempfile.mkdtemp(prefix="shadowrun-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """After the last of the processes: a cluster that this run has made goes, unless it is to be kept."""
    config = session.config
    if not is_worker(config) and _once().noted(_MADE_HERE) and not config.getoption("--keep-cluster"):
        chosen_cluster(config.getoption("--cluster")).delete()


def is_worker(config: pytest.Config) -> bool:
    """Whether another process of pytest has started this one."""
    return hasattr(config, "workerinput")


@contextmanager
def progress_shown(config: pytest.Config) -> Iterator[None]:
    """The first time takes minutes; whoever waits must see what for, which pytest would keep to itself."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        yield


@pytest.fixture(scope="session")
def once() -> RunOnce:
    """To do a thing once for all processes of this run."""
    return _once()


def _once() -> RunOnce:
    return RunOnce(Path(os.environ[_FOLDER]))


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, once: RunOnce) -> Cluster:
    """A cluster with two GPU pools. Left up if it was up before, or with --keep-cluster."""
    one = chosen_cluster(request.config.getoption("--cluster"))

    def create() -> None:
        with progress_shown(request.config):
            if one.create():
                once.note(_MADE_HERE)

    once("cluster", create)
    return one
