"""Makes and removes control groups, with cgroup v1 or v2. Groups are named as a kubelet names them: /a/b."""

import os
from contextlib import suppress
from pathlib import Path

from .commands import ClusterError, wait_until

ROOT = Path("/sys/fs/cgroup")


def hierarchies(root: Path = ROOT) -> list[Path]:
    """Where control groups can be made: one place with v2, one per controller with v1."""
    if (root / "cgroup.controllers").exists():
        return [root]
    return sorted(path for path in root.iterdir() if not path.is_symlink() and (path / "cgroup.procs").exists())


def create(group: str, root: Path = ROOT) -> None:
    for hierarchy in hierarchies(root):
        parent = hierarchy
        for part in group.strip("/").split("/"):
            _hand_down_controllers(parent)
            child = parent / part
            child.mkdir(exist_ok=True)
            _copy_cpuset(parent, child)
            parent = child


def _hand_down_controllers(parent: Path) -> None:
    """v2: a controller exists in a child only when its parent hands it down."""
    available = parent / "cgroup.controllers"
    if not available.exists():
        return
    for controller in available.read_text().split():
        try:
            (parent / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError as refused:
            raise ClusterError(f"{parent} does not hand down the {controller} controller: {refused}") from refused


def _copy_cpuset(parent: Path, child: Path) -> None:
    """v1: a new cpuset is empty and takes no process until it has processors and memory."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (child / name).exists() and not (child / "cgroup.controllers").exists():
            (child / name).write_text((parent / name).read_text())


def existing(group: str, root: Path = ROOT) -> list[Path]:
    folders = [hierarchy / group.strip("/") for hierarchy in hierarchies(root)]
    return [folder for folder in folders if folder.exists()]


def remove(group: str, root: Path = ROOT) -> None:
    """Remove a group and those below it; the kernel refuses for a moment while the last processes leave."""
    wait_until(lambda: not _remove_what_is_empty(group, root), f"control group {group} is empty", timeout=20)


def _remove_what_is_empty(group: str, root: Path) -> list[Path]:
    for top in existing(group, root):
        for folder, _, _ in os.walk(top, topdown=False):
            with suppress(OSError):  # still has a process; the next round sees
                Path(folder).rmdir()
    return existing(group, root)
