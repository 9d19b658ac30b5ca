"""Where things are kept: one git-ignored folder per checkout, one cache per user. Knows names, creates nothing."""

import os
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = Path(__file__).resolve().parent / "tools"


def cache_root() -> Path:
    """Built programs and images, shared by every checkout of this user."""
    given = os.environ.get("SHADOWRUN_CACHE")
    if given:
        return Path(given).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "shadowrun"


@dataclass(frozen=True)
class State:
    """What one checkout's cluster leaves on disk while it is up."""

    root: Path = REPOSITORY / ".cluster"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def control_plane(self) -> Path:
        return self.root / "control-plane"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def loaded_images(self) -> Path:
        return self.root / "loaded-images"

    @property
    def built_images(self) -> Path:
        return self.root / "built-images"

    @property
    def made_from(self) -> Path:
        return self.root / "made-from"

    @property
    def kind_config(self) -> Path:
        return self.root / "kind.json"

    @property
    def nodes(self) -> Path:
        return self.root / "nodes"

    def node(self, name: str) -> Path:
        return self.nodes / name

    def log(self, process: str) -> Path:
        return self.logs / f"{process.replace('/', '-')}.log"
