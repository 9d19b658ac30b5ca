"""Builds get the trust and the base image of the machine they run on."""

from pathlib import Path

import pytest

from tests.cluster import baseimages, buildah
from tests.cluster.commands import ClusterError
from tests.cluster.localimages import LocalImages
from tests.cluster.paths import State

pytestmark = pytest.mark.surfaces


def test_a_machine_without_trust_of_its_own_adds_nothing(tmp_path: Path) -> None:
    assert buildah.trust_options({}, tmp_path) == []


@pytest.mark.parametrize("variable", ["PIP_CERT", "SSL_CERT_FILE"])
def test_the_machines_certificates_are_mounted_and_named_to_pip(tmp_path: Path, variable: str) -> None:
    options = buildah.trust_options({variable: "/etc/ssl/own.crt"}, tmp_path)
    assert options == [
        f"--volume={tmp_path}/pip.conf:/etc/pip.conf:ro",
        "--volume=/etc/ssl/own.crt:/etc/ssl/own.crt:ro",
    ]
    assert (tmp_path / "pip.conf").read_text() == "[global]\ncert = /etc/ssl/own.crt\n"


def test_a_package_index_of_the_machine_is_used(tmp_path: Path) -> None:
    options = buildah.trust_options({"PIP_INDEX_URL": "https://index.example/simple"}, tmp_path)
    assert options == [f"--volume={tmp_path}/pip.conf:/etc/pip.conf:ro"]
    assert "index-url = https://index.example/simple" in (tmp_path / "pip.conf").read_text()


def test_the_base_image_stands_in_for_the_official_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHADOWRUN_CACHE", str(tmp_path))
    options = buildah.product_build_options(baseimages.PYTHON.reference)
    assert f"--build-context=python:3.13-slim=container-image://{baseimages.PYTHON.reference}" in options


def test_the_archive_of_the_mirror_is_the_one_with_the_whole_release() -> None:
    listing = "a-security https://mirror.example/security/\na https://mirror.example/debian/\na-updates https://x/\n"
    assert baseimages.main_archive(listing) == "https://mirror.example/debian/"
    with pytest.raises(ClusterError, match="SHADOWRUN_DEBIAN_MIRROR"):
        baseimages.main_archive("")


def test_an_image_that_was_never_built_is_not_loaded(tmp_path: Path) -> None:
    state = State(tmp_path)
    with pytest.raises(ClusterError, match="bring the cluster up first"):
        LocalImages(state).load("app:1")
    state.nodes.mkdir()
    with pytest.raises(ClusterError, match="app:1 is not built"):
        LocalImages(state).load("app:1")


def test_tags_have_names_a_store_accepts() -> None:
    assert buildah.reference("Team/App_x:1.0", "key") == "localhost/shadowrun-build/team-app-x-1-0:key"
