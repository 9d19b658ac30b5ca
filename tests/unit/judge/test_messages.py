"""For every verdict one sentence names what decided it, with observed figures, limit, interval and pairs."""

import msgspec
import pytest
from shadowrun_operator.api.status import MESSAGE_LENGTH
from shadowrun_operator.judge.criteria import CriterionResult
from shadowrun_operator.judge.report import Report
from shadowrun_operator.judge.rules import Rules
from shadowrun_operator.judge.verdict import judge
from shadowrun_operator.judge.words import figure, interval, requirement

from tests.unit.judge.synthetic import BETTER, DEFAULT_RULES, NO_ERRORS, equal, facts, faster, judged, recorded, slower

pytestmark = pytest.mark.verdict

ONLY_BETTER = Rules(criteria=(BETTER,))
TIMEOUTS = judged(recorded(candidate=lambda draw, s: float("inf") if draw.random() < 0.2 else 0.9 * s))
REPORTS: dict[str, tuple[Report, str, str]] = {
    "Pass": (judged(recorded(candidate=faster)), "Pass", "faster"),
    "Fail": (judged(recorded(candidate=slower)), "Fail", "faster"),
    "Fail of a critical one": (TIMEOUTS, "Fail", NO_ERRORS.name),
    "Undecided": (judged(recorded(ONLY_BETTER, candidate=equal), ONLY_BETTER), "Inconclusive", "faster"),
    "TooFewPairs": (judged(recorded(pairs=150)), "Inconclusive", "faster"),
}


@pytest.mark.parametrize(("report", "verdict", "criterion"), REPORTS.values(), ids=REPORTS.keys())
def test_the_message_names_the_deciding_criterion_with_all_its_numbers(
    report: Report, verdict: str, criterion: str
) -> None:
    assert report.verdict == verdict
    decisive: CriterionResult = next(r for r in report.criteria if r.name == criterion)
    assert report.message.startswith(f'"{criterion}" ')
    told = (
        f"candidate {figure(decisive, decisive.candidate)}",
        f"baseline {figure(decisive, decisive.baseline)}",
        f"needed {requirement(decisive)}",
        interval(decisive),
        f"over {decisive.pairs} pairs",
    )
    assert [part for part in told if part not in report.message] == []
    assert len(report.message) <= MESSAGE_LENGTH


def test_a_repeated_run_says_so_first() -> None:
    recorder = recorded()
    again = msgspec.structs.replace(facts(recorder), attempt=3)
    report = judge(DEFAULT_RULES, recorder.merged(), again)
    assert report.message.startswith('Attempt 3 of this spec. "faster" holds')
    assert report.circumstances.attempt == 3
