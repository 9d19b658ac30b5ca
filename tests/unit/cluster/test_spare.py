"""What a test that was killed has left of its node is in nobody's way."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.cluster import cgroups, host, spare
from tests.cluster.local import LocalCluster
from tests.cluster.paths import State
from tests.cluster.processes import processes_of, spawn
from tests.cluster.topology import LANES

pytestmark = pytest.mark.surfaces


def test_a_node_that_was_left_is_gone_before_it_is_plugged_in_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = State(tmp_path / ".cluster")
    left = spawn(f"{spare.SPARE.name}/init", ["sleep", "1000"], state)
    left.wait_until(lambda: [process.program for process in processes_of(state)] == ["sleep"], "it runs", 20.0)
    state.node(spare.SPARE.name).mkdir(parents=True)
    found: list[tuple[bool, int]] = []

    def plug_in(*_: object) -> None:
        found.append((state.node(spare.SPARE.name).exists(), len(processes_of(state))))

    monkeypatch.setattr(host.LaneRecords, "lane_of", lambda *_: LANES[0])
    monkeypatch.setattr(spare, "_plug_in", plug_in)
    monkeypatch.setattr(spare, "run", lambda _: "")
    monkeypatch.setattr(cgroups, "remove", lambda _: None)
    cluster = cast(LocalCluster, SimpleNamespace(state=state, kubectl=lambda *_: ""))
    with spare.plugged_in(cluster, []):
        assert found == [(False, 0)]
