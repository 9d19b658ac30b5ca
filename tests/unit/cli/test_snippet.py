"""The filter that a person adds by hand is the one that the operator would add."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from shadowrun_operator.cli.main import main
from shadowrun_operator.manifests.route import mirror_filter

from tests.unit.reconcile.routes import ROUTED
from tests.unit.reconcile.world import spec

pytestmark = pytest.mark.surfaces

EXTERNAL = {"mode": "External", "proxy": None, "external": {"serviceName": "copies"}}


def told(tmp_path: Path, capsys: pytest.CaptureFixture[str], **changes: Any) -> tuple[int, str, str]:
    """Exit status, output and errors for a run with these changes."""
    document = {"apiVersion": "shadowrun.dev/v1alpha1", "kind": "ShadowRun", "metadata": {"name": "x"}}
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(document | {"spec": spec(**changes)}))
    code = main(["snippet", "-f", str(file)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"capture": ROUTED}, mirror_filter("chat-copies", 500_000)),
        ({"capture": ROUTED, "sampling": {"unit": "Conversation", "rate": "1%"}}, mirror_filter("chat-copies", 10**6)),
        ({"capture": EXTERNAL}, mirror_filter("copies", 10**6)),
    ],
)
def test_it_prints_the_entry_of_a_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], wanted: dict[str, Any]
) -> None:
    code, out, _ = told(tmp_path, capsys, **changes)
    assert code == 0
    assert yaml.safe_load(out) == {"filters": [wanted]}


def test_an_envoy_of_ours_needs_no_filter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = told(tmp_path, capsys)
    assert (code, out) == (3, "")
    assert "need no filter" in err
