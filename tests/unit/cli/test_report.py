"""`shadowrun report`: what the judge has written is read and shown, number by number."""

import msgspec
import pytest
from shadowrun_mirror.evidence import Amount
from shadowrun_operator.api.status import ReportRef
from shadowrun_operator.cli.main import main
from shadowrun_operator.cli.report import shown_report
from shadowrun_operator.cli.text import report_text, table
from shadowrun_operator.judge.report import Report

from tests.unit.cli.fakes import FakeReader, complete, run
from tests.unit.judge.synthetic import judged, recorded

pytestmark = pytest.mark.surfaces


@pytest.fixture(scope="module")
def report() -> Report:
    """A report as the judge makes it."""
    recorder = recorded()
    recorder.drop(1, "Shed", 7)
    return judged(recorder, oversized=Amount(requests=3, bytes=300_000))


def cells(text: str, first: str) -> list[str]:
    """The cells of the row that begins with a word."""
    (row,) = (line for line in text.splitlines() if line.startswith(first + " "))
    return row.split()


def test_the_command_reads_what_the_judge_writes(report: Report) -> None:
    shown = shown_report(msgspec.json.encode(report).decode())
    assert (shown.verdict, shown.reason, shown.message) == (report.verdict, report.reason, report.message)
    assert [c.name for c in shown.criteria] == [c.name for c in report.criteria]
    assert shown.funnel.seen.requests == report.funnel.seen.requests
    assert len(shown.arms) == len(report.arms)


def test_every_step_of_the_funnel_is_shown(report: Report) -> None:
    text = report_text("x", shown_report(msgspec.json.encode(report).decode()))
    funnel = report.funnel
    assert cells(text, "seen") == ["seen", str(funnel.seen.requests), str(funnel.seen.tokens)]
    assert cells(text, "dropped")[1:] == [str(funnel.drops.requests), str(funnel.drops.tokens)]
    assert cells(text, "admitted")[1:] == [str(funnel.admitted.requests), str(funnel.admitted.tokens)]
    assert cells(text, "Shed")[1] == "7"
    assert cells(text, "TooLarge")[1] == "3"


def test_every_criterion_and_finding_is_shown(report: Report) -> None:
    text = report_text("x", shown_report(msgspec.json.encode(report).decode()))
    assert text.startswith(f"x: {report.verdict} ({report.reason})\n\n{report.message}\n")
    for criterion in report.criteria:
        assert criterion.outcome in cells(text, criterion.name)
    for finding in report.findings:
        assert f"{finding.reason}: {finding.message}" in text
    assert report.method in text


def test_latencies_are_shown_for_each_arm_and_class(report: Report) -> None:
    text = report_text("x", shown_report(msgspec.json.encode(report).decode()))
    for arm in ("baseline", "candidate"):
        assert any(line.split()[:3] == ["all", arm, "TTFT"] for line in text.splitlines())


def test_the_command_prints_the_report_of_the_run(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    stored = {"x-report": {"report.json": msgspec.json.encode(report).decode()}}
    reader = FakeReader([run(complete(report_ref=ReportRef(name="x-report")))], stored)
    assert main(["report", "x"], connect=lambda kubeconfig, context, namespace: reader) == 0
    assert capsys.readouterr().out.startswith(f"x: {report.verdict} ")


def test_columns_are_as_wide_as_their_widest_cell_and_an_empty_cell_is_a_dash() -> None:
    assert table(("A", "B"), [("long", "1"), ("", "22")]) == "A      B\nlong   1\n-      22"
