"""The `shadowrun` command: what it prints and which status it exits with."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest
from shadowrun_operator.api.status import CriterionStatus, ReportRef, Status
from shadowrun_operator.cli.exits import CommandError
from shadowrun_operator.cli.main import main
from shadowrun_operator.cli.reading import cluster_reader

from tests.unit.cli.fakes import FakeReader, complete, run

pytestmark = pytest.mark.surfaces

CRITERION = CriterionStatus(
    name="long-starts-faster",
    traffic_class="long",
    outcome="Pass",
    observed="812 ms",
    baseline="1.9 s",
    limit="> 0 points",
    interval="[+12.0, ∞)",
    pairs=1234,
)


def command(*arguments: str, reader: FakeReader) -> int:
    """The exit status against a fake cluster."""
    return main(arguments, connect=lambda kubeconfig, context, namespace: reader)


@pytest.mark.parametrize(("verdict", "code"), [("Pass", 0), ("Fail", 1), ("Inconclusive", 2)])
def test_gate_exits_by_the_verdict(verdict: str, code: int) -> None:
    assert command("gate", "x", reader=FakeReader([run(complete(verdict=verdict))])) == code


def test_gate_prints_verdict_reason_sentence_and_criteria(capsys: pytest.CaptureFixture[str]) -> None:
    ended = complete(
        verdict="Pass",
        reason="AllCriteriaProven",
        message="Everything holds.",
        criteria=(CRITERION,),
        report_ref=ReportRef(name="x-report"),
    )
    command("gate", "x", reader=FakeReader([run(ended)]))
    out = capsys.readouterr().out
    assert out.startswith("x: Pass (AllCriteriaProven)\n\nEverything holds.\n\nCRITERION ")
    row = next(line for line in out.splitlines() if line.startswith("long-starts-faster"))
    assert row.split()[:3] == ["long-starts-faster", "long", "Pass"]
    for cell in ("812 ms", "1.9 s", "[+12.0, ∞)", "> 0 points", "1234"):
        assert cell in row
    assert "shadowrun report x" in out


def test_gate_without_a_verdict_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("gate", "x", reader=FakeReader([run(complete())])) == 3
    assert "has no verdict" in capsys.readouterr().err


def test_gate_of_a_run_that_does_not_exist_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("gate", "x", reader=FakeReader([CommandError("ShadowRun x was not found")])) == 3
    assert capsys.readouterr().err == "shadowrun: ShadowRun x was not found\n"


def test_gate_that_runs_out_of_time_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("gate", "x", "--timeout", "1s", reader=FakeReader([run(Status(phase="Running"))])) == 3
    assert "not complete within 1 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [(), ("gate",), ("gate", "x", "--timeout", "soon"), ("gate", "x", "y"), ("judge", "x"), ("report", "x", "--yaml")],
)
def test_wrong_usage_is_an_error_and_not_inconclusive(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 3
    assert "usage: shadowrun" in capsys.readouterr().err


def test_an_interrupted_wait_is_an_error() -> None:
    class Interrupted(FakeReader):
        def run(self, name: str) -> dict[str, Any]:
            raise KeyboardInterrupt

    assert command("gate", "x", reader=Interrupted([])) == 3


def test_the_options_say_which_cluster_is_asked() -> None:
    asked: list[tuple[str | None, str | None, str | None]] = []

    def connect(kubeconfig: str | None, context: str | None, namespace: str | None) -> FakeReader:
        asked.append((kubeconfig, context, namespace))
        return FakeReader([run(complete(verdict="Pass"))])

    main(["gate", "x", "-n", "ns", "--kubeconfig", "file", "--context", "c"], connect=connect)
    main(["gate", "x"], connect=connect)
    assert asked == [("file", "c", "ns"), (None, None, None)]


def test_a_kubeconfig_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(CommandError, match="no cluster to ask"):
        cluster_reader("/nonexistent/kubeconfig", None, None)


def test_reading_a_verdict_needs_no_numerical_library() -> None:
    code = "import sys, shadowrun_operator.cli.main; sys.exit('scipy' in sys.modules or 'kopf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": os.pathsep.join(sys.path)}).returncode == 0


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == version("shadowrun") + "\n"


def test_a_report_that_does_not_exist_yet_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("report", "x", reader=FakeReader([run(Status(phase="Running"))])) == 3
    assert "has no report (phase Running)" in capsys.readouterr().err


def test_a_report_as_json_is_printed_as_it_was_stored(capsys: pytest.CaptureFixture[str]) -> None:
    stored = json.dumps({"anything": 1})
    reader = FakeReader([run(complete(report_ref=ReportRef(name="x-report")))], {"x-report": {"report.json": stored}})
    assert command("report", "x", "--json", reader=reader) == 0
    assert capsys.readouterr().out == stored + "\n"


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        ({}, "was not found"),
        ({"x-report": {}}, "has no key report.json"),
        ({"x-report": {"report.json": "{}"}}, "cannot be read: .*verdict"),
        ({"x-report": {"report.json": "{"}}, "cannot be read"),
    ],
)
def test_a_report_that_cannot_be_read_is_an_error(
    maps: dict[str, dict[str, str]], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = FakeReader([run(complete(report_ref=ReportRef(name="x-report")))], maps)
    assert command("report", "x", reader=reader) == 3
    assert re.search(message, capsys.readouterr().err)
