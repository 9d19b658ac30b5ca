"""Nodes get of an image what they do not have."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from tests.cluster.archive import blob_path, full_name, pack

pytestmark = pytest.mark.surfaces


def exported_image(folder: Path, layers: list[bytes]) -> list[str]:
    """What `buildah push dir:` writes. Returns the digests of the layers."""
    config = json.dumps({"rootfs": len(layers)}).encode()
    digests = [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in [config, *layers]]
    for digest, content in zip(digests, [config, *layers], strict=True):
        (folder / digest.removeprefix("sha256:")).write_bytes(content)
    manifest = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"digest": digests[0]},
        "layers": [{"digest": digest} for digest in digests[1:]],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return digests[1:]


def names_in(archive: Path) -> set[str]:
    with tarfile.open(archive) as tar:
        return set(tar.getnames())


def test_a_layer_that_the_nodes_have_is_left_out(tmp_path: Path) -> None:
    base, own = exported_image(tmp_path, [b"base", b"own"])
    whole, thin = tmp_path / "whole.tar", tmp_path / "thin.tar"
    assert pack(tmp_path, "app:1", (), whole) == [base, own]
    assert pack(tmp_path, "app:1", {base}, thin) == [base, own]
    assert names_in(whole) - names_in(thin) == {blob_path(base)}


def test_the_index_names_the_manifest_and_the_tag(tmp_path: Path) -> None:
    exported_image(tmp_path, [b"layer"])
    archive = tmp_path / "image.tar"
    pack(tmp_path, "team/app:1", (), archive)
    with tarfile.open(archive) as tar:
        index = json.load(tar.extractfile("index.json") or pytest.fail("no index"))
        (entry,) = index["manifests"]
        manifest = (tar.extractfile(blob_path(entry["digest"])) or pytest.fail("no manifest")).read()
    assert manifest == (tmp_path / "manifest.json").read_bytes()
    assert entry["size"] == len(manifest)
    assert list(entry["annotations"].values()) == ["docker.io/team/app:1"]


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("app:1", "docker.io/library/app:1"),
        ("team/app:1", "docker.io/team/app:1"),
        ("localhost/app:1", "localhost/app:1"),
        ("registry.example/team/app:1", "registry.example/team/app:1"),
        ("registry:5000/app:1", "registry:5000/app:1"),
    ],
)
def test_an_image_has_the_name_a_kubelet_looks_for(tag: str, name: str) -> None:
    assert full_name(tag) == name
