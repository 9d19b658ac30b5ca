"""Makes the images that everything else starts from: Python on Debian, and the pause image. Once per machine."""

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import buildah
from .commands import ClusterError, run
from .config import PAUSE_IMAGE
from .progress import Step

RECIPES = Path(__file__).resolve().parent / "images"
BUSYBOX = Path("/bin/busybox")
SUITE = "trixie"
PACKAGES = ("ca-certificates", "python3", "python3-pip", "python3-venv")
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*")


@dataclass(frozen=True)
class BaseImage:
    """One image of this module: its tag, and the folder with its Dockerfile."""

    tag: str
    recipe: str

    @property
    def dockerfile(self) -> Path:
        return RECIPES / self.recipe / "Dockerfile"

    @property
    def key(self) -> str:
        parts = [self.dockerfile.read_text(), SUITE, *PACKAGES, *LEFT_OUT]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]

    @property
    def reference(self) -> str:
        return buildah.reference(self.tag, self.key)


PYTHON = BaseImage("localhost/python:3.13-slim", "python")
PAUSE = BaseImage(PAUSE_IMAGE, "pause")


def missing() -> list[BaseImage]:
    return [image for image in (PAUSE, PYTHON) if not buildah.exists(image.reference)]


def make(image: BaseImage, _: Step) -> None:
    if buildah.exists(image.reference):  # a plan made before buildah was installed could not see it
        return
    with tempfile.TemporaryDirectory(prefix="shadowrun-image-") as folder:
        context = Path(folder)
        if image is PYTHON:
            _debian_root(context / "root.tar")
        else:
            shutil.copy(BUSYBOX, context / "busybox")
        buildah.build(image.reference, image.dockerfile, context, target=None)


def _debian_root(tar: Path) -> None:
    left_out = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    packages = f"--include={','.join(PACKAGES)}"
    run(["mmdebstrap", "--variant=minbase", packages, *left_out, SUITE, tar, debian_mirror()])


def debian_mirror() -> str:
    """The mirror this machine's own packages come from."""
    given = os.environ.get("SHADOWRUN_DEBIAN_MIRROR")
    if given:
        return given
    listing = run(["apt-get", "indextargets", "--format", "$(SUITE) $(REPO_URI)", "Origin: Debian", "Component: main"])
    return main_archive(listing)


def main_archive(listing: str) -> str:
    """Of `SUITE URI` lines, the archive itself rather than its security or updates companion."""
    for line in sorted(listing.splitlines()):
        suite, _, uri = line.partition(" ")
        if uri and not suite.endswith(("-security", "-updates", "-backports")):
            return uri
    raise ClusterError("this machine has no Debian mirror configured; name one in SHADOWRUN_DEBIAN_MIRROR")
