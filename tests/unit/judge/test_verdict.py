"""Properties of the verdict: it can be repeated, never improves by failing, and follows the floors."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shadowrun_mirror.config import encode
from shadowrun_mirror.evidence import CaptureEvidence, Evidence
from shadowrun_operator.api.status import MESSAGE_LENGTH, CriterionStatus
from shadowrun_operator.judge.facts import Facts
from shadowrun_operator.judge.merge import merged
from shadowrun_operator.judge.report import decode_report
from shadowrun_operator.judge.rules import CoverageFloor
from shadowrun_operator.judge.summary import criteria_status, within_slo_status
from shadowrun_operator.judge.thresholds import indicators
from shadowrun_operator.judge.verdict import judge, judged_again

from tests.unit.evidence.evidences import evidences
from tests.unit.judge.synthetic import (
    DEFAULT_RULES,
    Answer,
    Recorder,
    equal,
    faster,
    judged,
    recorded,
    slower,
)
from tests.unit.judge.test_funnel import captures

pytestmark = pytest.mark.verdict

RANK = {"Fail": 0, "Inconclusive": 1, "Pass": 2}


@pytest.mark.parametrize("candidate", [faster, equal, slower])
def test_a_stored_report_judged_again_is_the_same_report(candidate: Answer) -> None:
    report = judged(recorded(candidate=candidate, names=("long", "default")))
    stored = decode_report(encode(report))
    assert stored == report
    assert judged_again(stored) == report


@settings(max_examples=25)
@given(evidences("mirror-0"), evidences("mirror-1"), captures)
def test_any_evidence_gives_a_report_that_survives_json(
    first: Evidence, second: Evidence, copies: CaptureEvidence
) -> None:
    evidence = merged([first, second], [copies], final=True)
    known = Facts(
        run="x", run_uid="run", end_reason="DurationReached", indicators=indicators(DEFAULT_RULES, first.windows.get(0))
    )
    report = judge(DEFAULT_RULES, evidence, known)
    assert decode_report(encode(report)) == report
    assert judged_again(report) == report
    assert report.verdict != "Pass"  # the series of these criteria are empty
    assert report.message


@settings(max_examples=40)
@given(st.integers(0, 120), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_higher_floors_never_improve_a_verdict(shed: int, a: float, b: float, c: float, d: float) -> None:
    recorder = FASTER_SHED[shed % len(FASTER_SHED)]
    lower = CoverageFloor(requests=min(a, b), tokens=min(c, d))
    higher = CoverageFloor(requests=max(a, b), tokens=max(c, d))
    easy = judged(recorder, msgspec.structs.replace(DEFAULT_RULES, floor=lower))
    strict = judged(recorder, msgspec.structs.replace(DEFAULT_RULES, floor=higher))
    assert RANK[strict.verdict] <= RANK[easy.verdict]


def with_shed(requests: int, candidate: Answer) -> Recorder:
    recorder = recorded(candidate=candidate)
    recorder.drop(1, "Shed", requests, size=9000)
    return recorder


FASTER_SHED = [with_shed(shed, candidate) for shed in (0, 40, 300) for candidate in (faster, slower)]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([0.5, 0.7, 0.9, 1.0]), st.lists(st.floats(0, 1), min_size=2, max_size=2))
def test_a_candidate_that_fails_more_requests_never_gets_a_better_verdict(
    seed: int, speed: float, shares: list[float]
) -> None:
    """Failures replace answers at random: those of the smaller share also happen at the larger one."""
    fewer, more = sorted(shares)

    def failing(share: float) -> Answer:
        fate = random.Random(seed)
        return lambda _draw, baseline_s: float("inf") if fate.random() < share else speed * baseline_s

    reports = [judged(recorded(candidate=failing(share), seed=seed)) for share in (fewer, more)]
    for easy, strict in zip(reports[0].criteria, reports[1].criteria, strict=True):
        assert easy.difference is not None
        assert strict.difference is not None
        assert strict.difference <= easy.difference
    assert RANK[reports[1].verdict] <= RANK[reports[0].verdict]


def test_a_candidate_that_fails_everything_fails() -> None:
    assert judged(recorded(candidate=lambda _draw, _baseline_s: float("inf"))).verdict == "Fail"


@pytest.mark.parametrize("candidate", [faster, equal, slower])
def test_what_the_status_shows_fits_it(candidate: Answer) -> None:
    report = judged(recorded(candidate=candidate))
    shown: tuple[CriterionStatus, ...] = criteria_status(report.criteria)
    assert [c.outcome for c in shown] == [r.outcome for r in report.criteria]
    assert len(report.message) <= MESSAGE_LENGTH


def test_the_message_names_the_deciding_criterion_with_its_numbers() -> None:
    report = judged(recorded())
    assert report.message == (
        '"faster" holds: p50 TTFT of all classes, candidate 291 ms and baseline 479 ms, share within 522 ms differs by'
        " +28.8 points [+23.5, ∞) over 600 pairs in 28 blocks, needed > 0 points. Also hold: errors, slo, not-slower."
    )
    assert judged(recorded(candidate=slower)).message.startswith(
        '"faster" is violated: p50 TTFT of all classes, candidate 771 ms and baseline 479 ms, share within 522 ms'
        " differs by -33.3 points (-∞, -25.6] over 600 pairs"
    )


def test_shares_within_the_slo_are_those_of_the_histograms() -> None:
    recorder = recorded(candidate=slower)
    arms = recorder.windows[1].classes["default"].arms
    report = judged(recorder)
    shares = [100 * arms[name].within_slo.requests / 600 for name in ("candidate", "baseline")]
    assert within_slo_status(DEFAULT_RULES, report.funnel) == f"{shares[0]:.1f}% (baseline {shares[1]:.1f}%)"


def test_the_report_shows_quantiles_of_every_arm_and_class() -> None:
    report = judged(recorded(names=("long", "default")))
    shown = {(a.arm, a.traffic_class) for a in report.arms}
    assert shown == {(arm, c) for arm in ("baseline", "candidate") for c in ("", "long", "default")}
    for arm in report.arms:
        for latency in arm.latencies:
            assert latency.p50 is not None
            assert latency.p99 is not None
            assert latency.p50 <= latency.p99
