"""What local clusters change on the machine itself, and how that is undone.

Every cluster takes a lane of addresses. Who has which lane, and what the machine was like before the first cluster,
is recorded outside of any checkout, so that one checkout can clean up after another that is gone.
"""

import json
import shutil
from contextlib import suppress
from pathlib import Path

from . import cgroups
from .commands import ClusterError, run
from .config import NODE_FOLDERS
from .topology import CONTROL_GROUPS, LANES, NODES, Lane

RUN_FOLDER = Path("/run/shadowrun")
LOCK = RUN_FOLDER / "lock"

# Forwarding is ours; the rest is what a kubelet sets for the whole machine when it starts.
KERNEL_SETTINGS = (
    "net.ipv4.ip_forward",
    "vm.overcommit_memory",
    "vm.panic_on_oom",
    "kernel.panic",
    "kernel.panic_on_oops",
    "kernel.keys.root_maxkeys",
    "kernel.keys.root_maxbytes",
)


class LaneRecords:
    """Which state folder has which lane. One small file per lane."""

    def __init__(self, folder: Path = RUN_FOLDER / "lanes") -> None:
        self.folder = folder

    def holders(self) -> dict[Lane, Path]:
        return {lane: Path(self._file(lane).read_text()) for lane in LANES if self._file(lane).exists()}

    def lane_of(self, state: Path) -> Lane | None:
        return next((lane for lane, holder in self.holders().items() if holder == state), None)

    def take(self, state: Path) -> Lane:
        """A free lane. Call it under the lock."""
        holders = self.holders()
        free = [lane for lane in LANES if lane not in holders]
        if not free:
            held = "\n".join(f"  {holder.parent}" for holder in holders.values())
            raise ClusterError(f"there is no room for one more cluster; these checkouts have one up:\n{held}")
        _write_whole(self._file(free[0]), str(state))
        return free[0]

    def give_back(self, lane: Lane) -> None:
        self._file(lane).unlink(missing_ok=True)

    def _file(self, lane: Lane) -> Path:
        return self.folder / str(lane.number)


class MachineRecord:
    """What the machine was like before the first cluster came."""

    def __init__(self, file: Path = RUN_FOLDER / "machine.json") -> None:
        self.file = file

    def prepare(self) -> None:
        """Remember, then make folders and let the machine forward packets. Once, however many clusters come."""
        if self.file.exists():
            return
        folders = [folder for folder in NODE_FOLDERS if not Path(folder).exists()]
        settings = {name: _setting(name).read_text().strip() for name in KERNEL_SETTINGS if _setting(name).exists()}
        _write_whole(self.file, json.dumps({"settings": settings, "folders": folders}))
        for folder in folders:
            Path(folder).mkdir(parents=True)
        _setting("net.ipv4.ip_forward").write_text("1")

    def restore(self) -> None:
        if not self.file.exists():
            return
        before = json.loads(self.file.read_text())
        for name, value in before["settings"].items():
            _setting(name).write_text(value)
        for folder in before["folders"]:
            with suppress(OSError):  # not empty: someone else has come to use it
                Path(folder).rmdir()
        self.file.unlink()


def prepare(state: Path) -> Lane:
    """Take a lane and make its bridge and control groups."""
    lane = LaneRecords().take(state)
    MachineRecord().prepare()
    run(["ip", "link", "add", lane.bridge, "type", "bridge"])
    run(["ip", "address", "add", f"{lane.gateway}/24", "dev", lane.bridge])
    run(["ip", "link", "set", lane.bridge, "up"])
    for node in NODES:
        cgroups.create(f"{lane.control_group}/{node.name}")
    return lane


def restore(state: Path) -> None:
    """Undo `prepare`, however far it came. The cluster's processes must be gone."""
    records = LaneRecords()
    lane = records.lane_of(state)
    if lane is None:
        return
    for link in existing_links(lane):
        _delete_link(link)
    cgroups.remove(lane.control_group)
    records.give_back(lane)
    if not records.holders():
        cgroups.remove(CONTROL_GROUPS)
        MachineRecord().restore()


def _delete_link(link: str) -> None:
    """Cables vanish by themselves a moment after their node's last process, perhaps just now."""
    try:
        run(["ip", "link", "delete", link])
    except ClusterError:
        if Path("/sys/class/net", link).exists():
            raise


def existing_links(lane: Lane) -> list[str]:
    return [link for link in lane.links if Path("/sys/class/net", link).exists()]


def leftovers() -> list[str]:
    """What of any cluster is on the machine besides processes, in words."""
    found: list[str] = []
    for lane in LANES:
        found += [f"link {link}" for link in existing_links(lane)]
    return found + [f"control group {group}" for group in cgroups.existing(CONTROL_GROUPS)]


def remove_tree(folder: Path) -> None:
    """Remove a state folder. Mounts below it would be someone's live data, so they are an error, never followed."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    below = [mount for mount in mounts if mount.startswith(f"{folder}/")]
    if below:
        raise ClusterError(f"still mounted below {folder}: {' '.join(below)}")
    if folder.exists():
        shutil.rmtree(folder)


def _setting(name: str) -> Path:
    return Path("/proc/sys", *name.split("."))


def _write_whole(path: Path, text: str) -> None:
    """A reader sees all of it or nothing, whenever the writer is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text)
    unfinished.rename(path)
