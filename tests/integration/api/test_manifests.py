"""Every manifest of a run as it is on file, asked of a real API server: it would take each of them."""

from pathlib import Path

import pytest
import yaml

from tests.integration.api.conftest import NAMESPACE, HasApi, Runs

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
PARTS = ("patch-", "filter-of-")  # of objects that are there already
FILES = sorted(path.stem for path in GOLDEN.glob("*.yaml") if not any(part in path.stem for part in PARTS))


@pytest.mark.parametrize("name", FILES)
def test_the_api_server_takes_the_manifest(server: HasApi, runs: Runs, name: str) -> None:
    manifest = yaml.safe_load((GOLDEN / f"{name}.yaml").read_text())
    manifest["metadata"]["namespace"] = NAMESPACE
    said = server.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
        input=yaml.safe_dump(manifest),
        timeout=60,
    )
    assert "serverside-applied" in said


def test_there_are_manifests_of_both_modes_and_of_several_mirrors() -> None:
    assert {"deployment-x-capture", "external-service-chat-copies", "several-service-x-mirror-pods"} <= set(FILES)
