"""The candidate that looks faster because it drops the hard requests: the verdict must be Fail, and say why."""

import math
import random

import pytest
from shadowrun_mirror.histogram import Histogram
from shadowrun_operator.judge.report import Report
from shadowrun_operator.judge.rules import Criterion, Rules
from shadowrun_operator.judge.thresholds import indicators

from tests.unit.judge.synthetic import Recorder, judged

pytestmark = pytest.mark.verdict

PAIRS = 1500
RULES = Rules(criteria=(Criterion(name="starts-faster", metric="TTFT", quantile=0.95, require="Better"),))


def conversations(draw: random.Random, count: int) -> list[int]:
    """Prompt lengths in tokens: many short turns and a heavy tail of long conversations, at most 120,000."""
    return [min(120_000, int(7000 * math.exp(draw.gauss(0, 1.1)))) for _ in range(count)]


def run(*, dropping: bool, per_token: float = 1.25) -> Recorder:
    """The candidate needs `per_token` times as long per prompt token; `dropping`, it times out on the longest 10 %."""
    draw, recorder = random.Random(23), Recorder()
    for number, count in ((0, 400), (1, PAIRS)):
        recorder.indicators = indicators(RULES, recorder.windows[0]) if number else ()
        tokens = conversations(draw, count)
        longest = sorted(tokens)[int(0.9 * count)]
        for i, length in enumerate(tokens):
            baseline, candidate = (
                0.05 + share * length / 8000 * math.exp(draw.gauss(0, 0.15)) for share in (1.0, per_token)
            )
            lost = dropping and length >= longest
            ttft = {"baseline": baseline, "candidate": math.inf if lost else candidate}
            recorder.pair(number, 5000 + i // 2, ttft, size=4 * length)
    return recorder


def survivors_p95(recorder: Recorder, arm: str) -> float:
    histogram = recorder.windows[1].classes["default"].arms[arm].ttft
    return Histogram(bins=histogram.bins, total=histogram.total).quantile(0.95)


@pytest.fixture(scope="module")
def dropped() -> Recorder:
    return run(dropping=True)


def test_among_survivors_the_slower_candidate_looks_faster(dropped: Recorder) -> None:
    assert survivors_p95(dropped, "candidate") < 0.8 * survivors_p95(dropped, "baseline")


def test_it_fails_because_it_dropped_the_hard_requests(dropped: Recorder) -> None:
    report: Report = judged(dropped, RULES)
    assert (report.verdict, report.reason) == ("Fail", "DroppedHardRequests")
    assert "150 of 1500 requests (10.0%)" in report.message


def test_the_coverage_in_tokens_shows_it(dropped: Recorder) -> None:
    found = judged(dropped, RULES).funnel
    completed = found.arms["candidate"].completed
    assert completed.requests / found.admitted.requests == pytest.approx(0.9)
    assert completed.tokens / found.admitted.tokens < 0.7


def test_the_same_candidate_without_drops_is_judged_by_its_speed() -> None:
    report = judged(run(dropping=False), RULES)
    assert "DroppedHardRequests" not in [f.reason for f in report.findings]
    assert report.verdict != "Pass"


def test_a_faster_candidate_without_drops_passes_on_the_same_traffic() -> None:
    assert judged(run(dropping=False, per_token=0.5), RULES).verdict == "Pass"


def test_a_faster_candidate_that_drops_fails_all_the_same() -> None:
    report = judged(run(dropping=True, per_token=0.5), RULES)
    assert (report.verdict, report.reason) == ("Fail", "DroppedHardRequests")
