"""What every test may use: the Kubernetes cluster, brought up only when a test asks for it. Every test has an area."""

import pytest

pytest_plugins = ["tests.cluster.plugin"]

AREAS = {"path", "mirror", "verdict", "answers", "operator", "marks", "surfaces", "replay"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test M=<area>` must be able to reach every test."""
    homeless = {item.path.name for item in items if not AREAS & {mark.name for mark in item.iter_markers()}}
    if homeless:
        raise pytest.UsageError(f"no area marker ({', '.join(sorted(AREAS))}) in: {', '.join(sorted(homeless))}")
