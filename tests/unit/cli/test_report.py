"""`shadowrun report`: what the judge has written is read and shown, number by number."""

import msgspec
import pytest
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.evidence import Amount, Lineage, LivePath, Matches, PrimaryEvidence, Usage, Wins
from shadowrun_operator.api.status import ReportRef
from shadowrun_operator.cli.main import main
from shadowrun_operator.cli.report import shown_report
from shadowrun_operator.cli.tables import table
from shadowrun_operator.cli.text import report_text
from shadowrun_operator.judge.facts import RateChange
from shadowrun_operator.judge.merge import merged
from shadowrun_operator.judge.report import Report
from shadowrun_operator.judge.verdict import judge

from tests.unit.cli.fakes import FakeReader, complete, run
from tests.unit.judge.synthetic import DEFAULT_RULES, equal, facts, judged, recorded

pytestmark = pytest.mark.surfaces


@pytest.fixture(scope="module")
def report() -> Report:
    """A report as the judge makes it."""
    recorder = recorded()
    recorder.drop(1, "Shed", 7)
    return judged(recorder, oversized=Amount(requests=3, bytes=300_000))


def cells(text: str, first: str) -> list[str]:
    """The cells of the first row that begins with a word."""
    row = next(line for line in text.splitlines() if line.startswith(first + " "))
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


def test_halves_are_shown_where_the_arms_changed_places(report: Report) -> None:
    assert "by halves" not in report_text("x", shown_report(msgspec.json.encode(report).decode()))
    first, second = (msgspec.structs.replace(report.criteria[0], difference=by, pairs=300) for by in (0.031, -0.012))
    whole = msgspec.structs.replace(report.criteria[0], halves=(first, second))
    text = report_text(
        "x", shown_report(msgspec.json.encode(msgspec.structs.replace(report, criteria=(whole,))).decode())
    )
    shown = text[text.index("Criteria by halves") :].splitlines()[2:4]
    assert [line.split()[1] for line in shown] == ["first", "second"]
    assert ["+3.1" in shown[0], "-1.2" in shown[1]] == [True, True]


def test_where_the_arms_differ_is_shown_line_by_line(report: Report) -> None:
    differing = msgspec.structs.replace(report, facts=msgspec.structs.replace(report.facts, patch="spec.a\nspec.b"))
    text = report_text("x", shown_report(msgspec.json.encode(differing).decode()))
    assert "The candidate differs from the baseline at\nspec.a\nspec.b\n" in text


def test_latencies_are_shown_for_each_arm_and_class(report: Report) -> None:
    text = report_text("x", shown_report(msgspec.json.encode(report).decode()))
    for arm in ("baseline", "candidate"):
        assert any(line.split()[:3] == ["all", arm, "TTFT"] for line in text.splitlines())


def test_what_there_is_nothing_to_say_of_is_left_out(report: Report) -> None:
    text = report_text("x", shown_report(msgspec.json.encode(report).decode()))
    for title in ("Flagged", "Waiting", "Conversations", "Customers", "Weights", "Sampling rate", "estimated\n"):
        assert title not in text


def test_how_the_pairs_were_measured_is_shown() -> None:
    recorder = recorded(names=("long", "default"))
    part = recorder.windows[1].classes["long"]
    part.flagged = {"Queued": Amount(requests=30, bytes=1), "Lagged": Amount(requests=3, bytes=1)}
    part.queue.add(2.0)
    part.primary = PrimaryEvidence(answered=Amount(requests=290), cut=Amount(requests=4))
    part.primary.first_byte.add(0.25)
    recorder.windows[1].lineage = Lineage(openings=10, conversations=40, continued=90, broken=10, joined_late=7)
    rules = msgspec.structs.replace(DEFAULT_RULES, superset=True, class_rates={"long": 0.5, "default": 0.01})
    known = msgspec.structs.replace(
        facts(recorder), rates=(RateChange(at=1_800_000_000.0, share=250_000, rate=50_000),)
    )
    capture = recorder.capture(oversized=Amount(requests=3, bytes=300_000))
    paths = {"on": (LivePath(requests=200, errors=3), "copying on"), "off": (LivePath(requests=50), "paused slots")}
    changes = {name: path for name, (path, _) in paths.items()} | {"paused": Amount(requests=50, bytes=1)}
    capture.windows[1] = msgspec.structs.replace(capture.windows[1], **changes)
    made = judge(rules, merged([recorder.evidence()], [capture], final=True), known)
    text = report_text("x", shown_report(msgspec.json.encode(made).decode()))
    flags = [line.split() for line in text.splitlines() if line.startswith("Lagged ")]
    assert flags == [["Lagged", "all", "3", "0.50%"], ["Lagged", "long", "3", "1.00%"]]
    assert "30 of 600 pairs (5.0%) waited for a slot" in text
    assert cells(text, "40") == ["40", "10", "4.0", "90", "10", "10.00%", "7"]
    assert cells(text, "primary") == ["primary", "290", "0", "0", "4", "306"]
    assert cells(text, "first byte of the primary")[5] == "1"
    assert cells(text, "2027-01-15T08:00:00Z")[-1] == "25.0000%"
    assert ["default", "1%", "50"] in [line.split() for line in text.splitlines()]
    assert cells(text, "copying on")[2:4] == ["200", "1.50%"]
    assert cells(text, "paused slots")[2:4] == ["50", "0.00%"]
    assert cells(text, "selected: estimated")[2] == "3"
    assert cells(text, "not selected: copying paused")[4] == "50"


def test_figures_come_with_intervals_and_the_challenger_beside_the_baseline() -> None:
    recorder = recorded()
    part = recorder.windows[1].classes["default"]
    part.wins = {"candidate": Wins(pairs=600, won=450, lost=150)}
    part.forward.add(0.001)
    part.arms["candidate"].per_token.add(0.02)
    for arm, first in (("baseline", 310), ("candidate", 290)):
        part.arms[arm].sent_first = first
        part.arms[arm].usage = Usage(
            answers=600, body_bytes=10, prompt_tokens=1000, cached_tokens=250, output_tokens=6000
        )
    recorder.drop(1, "Shed", 40)
    again = msgspec.structs.replace(facts(recorder), attempt=2)
    made = judge(DEFAULT_RULES, recorder.merged(), again)
    text = report_text("x", shown_report(msgspec.json.encode(made).decode()))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    found = made.arms[0].latencies[0]
    assert found.p50 is not None
    assert found.ranges[0].low is not None
    assert found.ranges[0].high is not None
    told = f"{1000 * found.p50:.3g} ms [{1000 * found.ranges[0].low:.3g} ms, {1000 * found.ranges[0].high:.3g} ms]"
    assert any(line.startswith("all baseline TTFT 600 0 " + told) for line in lines)
    assert any(line.startswith("all candidate TokensPerSecond 1 0 ") and "/s [0, ∞]" in line for line in lines)
    assert any(line.startswith("all candidate 600 450 150 75.00% [") and line.endswith("1.000") for line in lines)
    assert any(line.startswith("all Forward 1 ") for line in lines)
    assert any(line.startswith("faster 40 of 640 6.25% ") for line in lines)
    assert any(line.startswith("baseline 51.67% 25.00% ") for line in lines)
    assert any(line.startswith("1 of 24 hours of the day (13) on Mon; 1 of 168") for line in lines)
    assert "400 pairs, 400 of them for the baseline's limits." in lines
    assert any(line.startswith("2 runs of this spec have copied traffic") for line in lines)


def test_copies_of_the_users_own_proxy_are_said_to_be_so() -> None:
    recorder = recorded()
    rules = msgspec.structs.replace(DEFAULT_RULES, external=True)
    made = judge(rules, merged([recorder.evidence()], [], final=True), facts(recorder))
    assert "a proxy or gateway of your own" in report_text("x", shown_report(msgspec.json.encode(made).decode()))


def test_the_command_prints_the_report_of_the_run(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    stored = {"x-report": {"report.json": msgspec.json.encode(report).decode()}}
    reader = FakeReader([run(complete(report_ref=ReportRef(name="x-report")))], stored)
    assert main(["report", "x"], connect=lambda kubeconfig, context, namespace: reader) == 0
    assert capsys.readouterr().out.startswith(f"x: {report.verdict} ")


def test_columns_are_as_wide_as_their_widest_cell_and_an_empty_cell_is_a_dash() -> None:
    assert table(("A", "B"), [("long", "1"), ("", "22")]) == "A      B\nlong   1\n-      22"


def test_answers_that_match_are_shown_with_the_controls_beside() -> None:
    recorder = recorded(control=equal)
    window = recorder.windows[1]
    window.classes["default"].matches = {
        "candidate": Matches(pairs={"Match": 590, "Value": 7, "Failed": 1, "BothFailed": 2}),
        "control": Matches(pairs={"Match": 600}),
    }
    window.differing = {
        "candidate": BlockSeries(sums=dict.fromkeys(range(299), (2, 0)) | {300: (2, -2)}),
        "control": BlockSeries(sums=dict.fromkeys(range(300), (2, 0))),
    }
    rules = msgspec.structs.replace(DEFAULT_RULES, control="control")
    text = report_text("x", shown_report(msgspec.json.encode(judged(recorder, rules)).decode()))
    section = text[text.index("Answers that match the baseline's (no part of the verdict)") :]
    rows = [line.split() for line in section.splitlines()[1:4]]
    assert rows[0][:5] == ["CLASS", "ARM", "COMPARED", "MATCHED", "SHARE"]
    assert rows[1][:5] == ["all", "candidate", "598", "590", "98.66%"]
    assert rows[2][:5] == ["all", "control", "600", "600", "100.00%"]
    assert "Failed 1, Value 7   BothFailed 2" in section
    assert [row[5].endswith("%") for row in rows[1:]] == [True, True], "what the shares are at least"


def test_where_answers_are_not_compared_nothing_is_said_of_it(report: Report) -> None:
    assert "Answers that match the" not in report_text("x", shown_report(msgspec.json.encode(report).decode()))
