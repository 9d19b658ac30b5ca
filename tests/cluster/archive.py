"""Packs an exported image as an OCI archive that leaves out the layers its receiver has. Files in, one tar file out.

Images of one product share nearly everything. Without this every node would read the base image again for each of them.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

CONTAINERD_NAME = "io.containerd.image.name"


def pack(exported: Path, tag: str, known: Collection[str], archive: Path) -> list[str]:
    """Write the archive for an image in buildah's `dir:` format. Returns the digests of all its layers."""
    manifest = (exported / "manifest.json").read_bytes()
    described = json.loads(manifest)
    layers = [str(layer["digest"]) for layer in described["layers"]]
    wanted = [described["config"]["digest"], *(layer for layer in layers if layer not in known)]
    with tarfile.open(archive, "w") as tar:
        _add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _add(tar, "index.json", json.dumps(index(manifest, described["mediaType"], tag)).encode())
        _add(tar, blob_path(_digest(manifest)), manifest)
        for digest in dict.fromkeys(wanted):
            tar.add(exported / digest.removeprefix("sha256:"), arcname=blob_path(digest))
    return layers


def index(manifest: bytes, media_type: str, tag: str) -> dict[str, Any]:
    descriptor = {
        "mediaType": media_type,
        "digest": _digest(manifest),
        "size": len(manifest),
        "annotations": {CONTAINERD_NAME: full_name(tag)},
    }
    return {"schemaVersion": 2, "manifests": [descriptor]}


def full_name(tag: str) -> str:
    """The name under which a kubelet looks for an image: short names mean the default registry."""
    first, slash, _ = tag.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return tag
    return f"docker.io/{tag}" if slash else f"docker.io/library/{tag}"


def blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
