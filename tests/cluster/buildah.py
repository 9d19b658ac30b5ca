"""Builds images with buildah, in a store of its own, without a container engine or an image registry.

A build is named by the key of its content, so that nothing is built twice on one machine, whichever checkout asks.
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from .commands import ClusterError, run
from .locks import locked
from .paths import cache_root

STOOD_IN_FOR = "python:3.13-slim"
KEPT_PER_TAG = 3


def reference(tag: str, key: str) -> str:
    return f"localhost/shadowrun-build/{slug(tag)}:{key}"


def slug(tag: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", tag.lower()).strip("-")


def exists(image: str) -> bool:
    try:
        _buildah("inspect", "--type", "image", image)
    except ClusterError:
        return False
    return True


def build(image: str, dockerfile: Path, context: Path, target: str | None, extra: Sequence[str] = ()) -> None:
    """Build one image. Layers that did not change are taken from earlier builds."""
    line = ["bud", "--layers", "--isolation=chroot", "--network=host", "--pull-never", f"--tag={image}"]
    line += [f"--file={dockerfile}", *([f"--target={target}"] if target else []), *extra, str(context)]
    with locked(_lock()):
        _buildah(*line)


def product_build_options(base: str) -> list[str]:
    """What an ordinary Dockerfile needs here: a stand-in for its base image, trust, and a download cache."""
    pip_cache = cache_root() / "pip"
    pip_cache.mkdir(parents=True, exist_ok=True)
    return [
        f"--build-context={STOOD_IN_FOR}=container-image://{base}",
        f"--volume={pip_cache}:/root/.cache/pip",
        *trust_options(dict(os.environ), cache_root()),
    ]


def trust_options(environ: dict[str, str], folder: Path) -> list[str]:
    """Where this machine trusts certificates of its own, builds must too. Mounted for the build, never in the image."""
    bundle = environ.get("PIP_CERT") or environ.get("SSL_CERT_FILE")
    index = environ.get("PIP_INDEX_URL")
    if not bundle and not index:
        return []
    settings = {"cert": bundle, "index-url": index}
    pip_conf = folder / "pip.conf"
    pip_conf.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items() if value))
    options = [f"--volume={pip_conf}:/etc/pip.conf:ro"]
    return [*options, f"--volume={bundle}:{bundle}:ro"] if bundle else options


def export(image: str, folder: Path) -> None:
    """Write an image's manifest, configuration and layers into a new folder; compressing them would only cost time."""
    _buildah("push", "--format=oci", "--disable-compression", image, f"dir:{folder}")


def prune(tag: str) -> None:
    """Forget all but the newest builds of a tag."""
    name = reference(tag, "").rstrip(":")
    with locked(_lock()):
        listed = json.loads(_buildah("images", "--json", "--filter", f"reference={name}") or "[]")
        newest = sorted(listed, key=lambda image: image["createdatraw"], reverse=True)
        old = [image["id"] for image in newest[KEPT_PER_TAG:]]
        if old:
            _buildah("rm", "--all")  # nobody builds now: what is there was left by a build that was killed
            _buildah("rmi", "--force", *old)
            _buildah("rmi", "--prune")


def _lock() -> Path:
    return cache_root() / "buildah" / ".lock"


def _buildah(*args: str) -> str:
    """In a mount namespace of its own, so that no mount of buildah's stays behind, even when it is killed."""
    folder = cache_root() / "buildah"
    store = [f"--root={folder / 'store'}", f"--runroot={folder / 'run'}"]
    return run(["unshare", "--mount", "buildah", *store, "--storage-driver=overlay", *args])
