"""What every test may use: the Kubernetes cluster, brought up only when a test asks for it. Every test has an area.

`make test` runs two processes of pytest-xdist. Each takes a group of tests at a time, in the order given here.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ["tests.cluster.plugin"]

# How long one example takes says something about the machine, and nothing about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

AREAS = {"path", "mirror", "verdict", "answers", "operator", "marks", "surfaces", "replay"}

TESTS = Path(__file__).parent
TIMED = "timed"
GROUPS = {
    "cluster": "cluster",  # leads, for it needs none of our images, which the other process builds meanwhile
    "e2e": "",  # whole runs mostly wait: side by side they leave time for each other
    "integration/api": "api",  # one definition on the API server
    "integration/mirror": TIMED,  # what measures time is one group, so that it never competes with its like
    "integration/capture": TIMED,
    "bench": TIMED,
    "": "",
}
"""The group of all tests in a folder; "": each module is one, so that its fixtures are made once."""
E2E_TIMEOUT_S = 1800
"""Fixtures count too, and those of whole runs install an operator, or wait for one that another process installs."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test M=<area>` must be able to reach every test."""
    homeless = {item.path.name for item in items if not AREAS & {mark.name for mark in item.iter_markers()}}
    if homeless:
        raise pytest.UsageError(f"no area marker ({', '.join(sorted(AREAS))}) in: {', '.join(sorted(homeless))}")
    for item in items:
        if item.path.is_relative_to(TESTS / "e2e"):
            item.add_marker(pytest.mark.timeout(E2E_TIMEOUT_S))
    items.sort(key=lambda item: place_of(item.path)[0])  # stable: within a module the order stays


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """pytest-xdist's way to give a process one group of tests after the other, with groups of our own."""

    def _split_scope(self, nodeid: str) -> str:
        return place_of(TESTS.parent / nodeid.partition("::")[0])[1]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    return Groups(config, log)


def place_of(path: Path) -> tuple[int, str]:
    """When the turn of a test comes, and its group."""
    for turn, (folder, group) in enumerate(GROUPS.items()):
        if path.is_relative_to(TESTS / folder):
            return turn, group or path.relative_to(TESTS).as_posix()
    raise ValueError(f"{path} is not below {TESTS}")
