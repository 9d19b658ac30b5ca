"""What the machine was like is remembered once, and lanes are shared out without a collision."""

from pathlib import Path

import pytest

from tests.cluster import cgroups, host
from tests.cluster.commands import ClusterError
from tests.cluster.host import LaneRecords, MachineRecord
from tests.cluster.topology import LANES

pytestmark = pytest.mark.surfaces


def test_two_checkouts_have_two_lanes_and_a_free_one_is_taken_again(tmp_path: Path) -> None:
    records = LaneRecords(tmp_path / "lanes")
    one, two = records.take(Path("/one/.cluster")), records.take(Path("/two/.cluster"))
    assert (one, two) == (LANES[0], LANES[1])
    assert records.lane_of(Path("/two/.cluster")) == two
    records.give_back(one)
    assert records.lane_of(Path("/one/.cluster")) is None
    assert records.take(Path("/three/.cluster")) == one
    assert records.holders() == {one: Path("/three/.cluster"), two: Path("/two/.cluster")}


def test_a_full_machine_says_who_is_on_it(tmp_path: Path) -> None:
    records = LaneRecords(tmp_path / "lanes")
    for number in range(len(LANES)):
        records.take(Path(f"/checkout{number}/.cluster"))
    with pytest.raises(ClusterError, match=r"(?s)no room.*/checkout0\n.*/checkout7"):
        records.take(Path("/one-more/.cluster"))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ip_forward").write_text("0\n")
    monkeypatch.setattr(host, "_setting", lambda name: tmp_path / name.split(".")[-1])
    monkeypatch.setattr(host, "NODE_FOLDERS", {str(tmp_path / "new"): "new", str(tmp_path): "there"})
    return tmp_path


def test_settings_and_folders_are_as_before_when_the_last_cluster_leaves(machine: Path) -> None:
    record = MachineRecord(machine / "machine.json")
    record.prepare()
    assert (machine / "ip_forward").read_text() == "1"
    assert (machine / "new").is_dir()
    record.prepare()  # a second cluster must not remember the first one's settings
    record.restore()
    assert (machine / "ip_forward").read_text() == "0"
    assert not (machine / "new").exists()
    assert machine.is_dir()
    record.restore()  # nothing to restore is fine


def test_a_folder_that_someone_else_uses_stays(machine: Path) -> None:
    record = MachineRecord(machine / "machine.json")
    record.prepare()
    (machine / "new" / "theirs").touch()
    record.restore()
    assert (machine / "new" / "theirs").exists()


def test_with_v1_a_group_is_made_below_every_controller(tmp_path: Path) -> None:
    for controller in ("cpu", "cpuset", "memory"):
        (tmp_path / controller).mkdir()
        (tmp_path / controller / "cgroup.procs").touch()
    (tmp_path / "cpu,cpuacct").symlink_to(tmp_path / "cpu")
    (tmp_path / "no-hierarchy").mkdir()
    cgroups.create("/shadowrun/sr0", tmp_path)
    made = sorted(str(path.relative_to(tmp_path)) for path in cgroups.existing("/shadowrun/sr0", tmp_path))
    assert made == ["cpu/shadowrun/sr0", "cpuset/shadowrun/sr0", "memory/shadowrun/sr0"]


def test_removing_a_group_leaves_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cgroup.procs").touch()
    for lane in ("sr0", "sr1"):
        cgroups.create(f"/shadowrun/{lane}/node1", tmp_path)
    cgroups.remove("/shadowrun/sr0", tmp_path)
    assert cgroups.existing("/shadowrun/sr0", tmp_path) == []
    assert cgroups.existing("/shadowrun/sr1/node1", tmp_path) != []
    cgroups.remove("/shadowrun", tmp_path)
    assert cgroups.existing("/shadowrun", tmp_path) == []


def test_with_v2_controllers_are_handed_down(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    (tmp_path / "cgroup.subtree_control").touch()
    assert cgroups.hierarchies(tmp_path) == [tmp_path]
    cgroups.create("/shadowrun", tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
    assert (tmp_path / "shadowrun").is_dir()
