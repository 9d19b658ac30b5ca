"""The `shadowrun` command against a real API server: what it reads there, and how it exits."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from shadowrun_operator.api.conditions import ConditionType, set_condition
from shadowrun_operator.api.status import ReportRef, Status
from shadowrun_operator.cli import reading
from shadowrun_operator.cli.main import main
from shadowrun_operator.cli.reading import cluster_reader

from tests.integration.api.conftest import NAMESPACE, HasApi, Runs
from tests.integration.api.manifest import GROUP, manifest

pytestmark = [pytest.mark.surfaces, pytest.mark.e2e]

NAME = "prefix-cache"
NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def ended(verdict: Any, generation: int = 1) -> dict[str, Any]:
    """A status of a run that has ended."""
    conditions = set_condition((), ConditionType.COMPLETE, "True", verdict, "", generation=generation, now=NOW)
    status = Status(
        phase="Complete", verdict=verdict, message="So it is.", conditions=conditions, report_ref=ReportRef(name="r")
    )
    return status.to_json()


@pytest.fixture
def stored(runs: Runs) -> Iterator[Runs]:
    """The runs, with one in the cluster."""
    runs.create(manifest({}))
    yield runs
    runs.delete(NAME)


@pytest.fixture(autouse=True)
def group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command reads the group that the tests are served under."""
    monkeypatch.setattr(reading, "GROUP", GROUP)


def command(server: HasApi, *arguments: str) -> int:
    """The exit status of the command in the namespace of the tests."""
    return main([*arguments, "--kubeconfig", str(server.kubeconfig_path), "-n", NAMESPACE])


@pytest.mark.parametrize(("verdict", "code"), [("Pass", 0), ("Fail", 1), ("Inconclusive", 2)])
def test_gate_exits_by_the_verdict_in_the_cluster(
    server: HasApi, stored: Runs, verdict: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    stored.write_status(NAME, ended(verdict))
    assert command(server, "gate", NAME, "--timeout", "10s") == code
    assert capsys.readouterr().out.startswith(f"{NAME}: {verdict} ")


def test_gate_does_not_take_a_verdict_about_another_spec(
    server: HasApi, stored: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    stored.write_status(NAME, ended("Pass", generation=0))
    assert command(server, "gate", NAME, "--timeout", "1s") == 3
    assert "not complete within 1 s" in capsys.readouterr().err


def test_gate_of_a_run_that_does_not_exist_is_an_error(
    server: HasApi, runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(server, "gate", "nobody") == 3
    assert f"ShadowRun nobody in namespace {NAMESPACE} was not found" in capsys.readouterr().err


def test_the_namespace_is_that_of_the_context_unless_told(server: HasApi) -> None:
    assert cluster_reader(str(server.kubeconfig_path), None, None).namespace == "default"
    assert cluster_reader(str(server.kubeconfig_path), None, "mine").namespace == "mine"


def test_a_report_is_read_from_its_config_map(server: HasApi, stored: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.dumps({"verdict": "Pass"})
    server.kubectl("create", "configmap", "r", "-n", NAMESPACE, f"--from-literal=report.json={report}")
    stored.write_status(NAME, ended("Pass"))
    assert command(server, "report", NAME, "--json") == 0
    assert capsys.readouterr().out == report + "\n"
