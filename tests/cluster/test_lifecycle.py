"""A local cluster that was killed, or whose checkout is gone, is cleaned up after; and nothing of it stays."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import cgroups, host
from tests.cluster.local import LocalCluster
from tests.cluster.paths import State
from tests.cluster.processes import processes_of
from tests.cluster.providers import choose
from tests.cluster.topology import Lane

pytestmark = [pytest.mark.e2e, pytest.mark.surfaces]


@pytest.fixture
def checkout(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster of its own, beside the one that the other tests use."""
    if choose(request.config.getoption("--cluster"), os.environ, State()) != "local":
        pytest.skip("about the local provider, and these tests run on another")
    one = LocalCluster(State(tmp_path / "one" / ".cluster"), quiet=True)
    yield one
    one.delete()


def lane_of(cluster: LocalCluster) -> Lane:
    lane = host.LaneRecords().lane_of(cluster.state.root)
    assert lane is not None
    return lane


def kill(cluster: LocalCluster, name: str = "") -> None:
    for process in processes_of(cluster.state):
        if name in ("", process.name):
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it ended with its node


def traces(cluster: LocalCluster, lane: Lane) -> list[str]:
    """What of the cluster is on the machine."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    routes = Path("/proc/net/route").read_text().splitlines()
    return [
        *(f"process {process.name}" for process in processes_of(cluster.state)),
        *(f"link {link}" for link in host.existing_links(lane)),
        *(f"control group {group}" for group in cgroups.existing(lane.control_group)),
        *(mount for mount in mounts if str(cluster.state.root) in mount),
        *(route for route in routes if route.split()[0] == lane.bridge),
    ]


def test_a_cluster_that_was_killed_is_made_anew(checkout: LocalCluster) -> None:
    assert checkout.create() is True
    assert checkout.create() is False
    kill(checkout, "node2/kubelet")
    assert checkout.create() is True, "one missing kubelet is enough"
    kill(checkout)
    assert checkout.create() is True
    lane = lane_of(checkout)
    assert traces(checkout, lane)
    checkout.delete()
    assert traces(checkout, lane) == []
    checkout.delete()


def test_a_neighbour_is_left_alone_while_it_lives_and_cleaned_up_after_when_its_checkout_is_gone(
    checkout: LocalCluster, tmp_path: Path
) -> None:
    checkout.create()
    lane = lane_of(checkout)
    another = LocalCluster(State(tmp_path / "another" / ".cluster"), quiet=True)
    try:
        another.create()
        assert lane_of(another) != lane
        assert checkout.is_healthy()
        another.delete()
        assert checkout.is_healthy()
        shutil.rmtree(checkout.state.root.parent)
        another.create()
        assert lane_of(another) == lane, "the lane of the one that is gone is free again"
        assert processes_of(checkout.state) == []
    finally:
        another.delete()
    assert traces(another, lane) == []
