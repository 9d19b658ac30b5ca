"""Each guard objects when it should, says the number, and stays silent otherwise."""

import random
from collections.abc import Callable
from typing import Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shadowrun_mirror.config import Indicator
from shadowrun_mirror.evidence import Amount, added
from shadowrun_mirror.reasons import FlagReason
from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.judge.facts import Facts, Hardware
from shadowrun_operator.judge.merge import Merged, merged
from shadowrun_operator.judge.report import Report
from shadowrun_operator.judge.rules import CoverageFloor, Criterion, Require, Rules
from shadowrun_operator.judge.summary import classes_status
from shadowrun_operator.judge.thresholds import indicators
from shadowrun_operator.judge.verdict import judge

from tests.unit.judge.synthetic import (
    BETTER,
    DEFAULT_RULES,
    NO_ERRORS,
    SLO_KEPT,
    Recorder,
    equal,
    facts,
    judged,
    lognormal,
    recorded,
    slower,
)

pytestmark = pytest.mark.verdict

INF = float("inf")


def said(report: Report) -> tuple[str, str]:
    return report.verdict, report.reason


def test_a_clearly_faster_candidate_passes() -> None:
    report = judged(recorded())
    assert said(report) == ("Pass", "AllCriteriaPassed")
    assert report.findings == ()


def test_a_clearly_slower_candidate_fails() -> None:
    assert said(judged(recorded(candidate=slower))) == ("Fail", "CriterionFailed")


@pytest.mark.parametrize("end", [e for e in EndReason if not e.judged] + ["SomethingNew"])
def test_an_end_that_is_not_judged_is_inconclusive_even_for_a_failing_candidate(end: str) -> None:
    for candidate in (slower, equal):
        recorder = recorded(candidate=candidate)
        report = judge(DEFAULT_RULES, recorder.merged(), facts(recorder, str(end)))
        assert said(report) == ("Inconclusive", str(end))
        assert "600 pairs" in report.message


@pytest.mark.parametrize("end", [e for e in EndReason if e.judged])
def test_a_normal_end_is_judged(end: EndReason) -> None:
    recorder = recorded()
    assert judge(DEFAULT_RULES, recorder.merged(), facts(recorder, end.value)).verdict == "Pass"


@pytest.mark.parametrize(("end", "final"), [("", True), ("DurationReached", False)])
def test_a_run_that_goes_on_has_no_verdict_yet(end: str, final: bool) -> None:
    recorder = recorded()
    evidence = merged([recorder.evidence()], [recorder.capture()], final=final)
    assert said(judge(DEFAULT_RULES, evidence, facts(recorder, end))) == ("Inconclusive", "NotEnded")


@pytest.mark.parametrize("matched", [False, None])
def test_unequal_or_unverified_hardware_is_inconclusive_where_required(matched: bool | None) -> None:
    recorder = recorded(candidate=slower)
    known = msgspec.structs.replace(
        facts(recorder), hardware=Hardware(matched=matched, message="gpu: A on n1, B on n2")
    )
    required = msgspec.structs.replace(DEFAULT_RULES, hardware_required=True)
    report = judge(required, recorder.merged(), known)
    assert said(report) == ("Inconclusive", "HardwareMismatch")
    assert "A on n1" in report.message
    assert judge(DEFAULT_RULES, recorder.merged(), known).verdict == "Fail"


@pytest.mark.parametrize(
    ("clocks", "reason"),
    [
        ({"m-0": 0.0}, "CriterionFailed"),
        ({"m-0": -3600.0}, "CriterionFailed"),  # alone, it puts all pairs of one moment into one block
        ({"m-0": 0.0, "m-1": 0.9}, "CriterionFailed"),
        ({"m-0": -30.0, "m-1": -30.5}, "CriterionFailed"),
        ({"m-0": 0.0, "m-1": -2.0, "m-2": 3.0}, "ClocksApart"),
    ],
)
def test_mirrors_that_do_not_agree_on_the_time_leave_no_verdict(clocks: dict[str, float], reason: str) -> None:
    recorder = recorded(candidate=slower)
    report = judge(DEFAULT_RULES, recorder.merged(), msgspec.structs.replace(facts(recorder), clocks=clocks))
    assert report.reason == reason
    if reason == "ClocksApart":
        assert said(report)[0] == "Inconclusive"
        assert "The clock of m-2 was 5 s ahead of that of m-1" in report.message


def fails(share: float) -> Callable[[random.Random, float], float]:
    return lambda draw, seconds: INF if draw.random() < share else seconds


@pytest.mark.parametrize(("share", "verdict"), [(1.0, "Inconclusive"), (0.6, "Inconclusive"), (0.4, "Pass")])
def test_arms_that_both_fail_most_of_it_are_not_no_worse_than_each_other(share: float, verdict: str) -> None:
    rules, draw = Rules(criteria=(SLO_KEPT, NO_ERRORS)), random.Random(1)
    recorder = Recorder()
    recorder.indicators = indicators(rules, recorder.windows[0])
    for second in range(2000):
        seconds = fails(share)(draw, 0.5)
        recorder.pair(1, 1_000_000 + second, {"baseline": seconds, "candidate": seconds})
    report = judge(rules, recorder.merged(), facts(recorder))
    assert report.verdict == verdict, report.message
    if verdict == "Inconclusive":
        assert report.reason == "BaselineFailed"
        assert "of 2000 pairs of the run" in report.message


@pytest.mark.parametrize(("judged_class", "reason"), [("long", "BaselineFailed"), ("default", "AllCriteriaPassed")])
def test_a_class_whose_baseline_fails_counts_where_a_criterion_is_about_it(judged_class: str, reason: str) -> None:
    rules = Rules(criteria=(msgspec.structs.replace(NO_ERRORS, traffic_class=judged_class),))
    recorder = Recorder()
    recorder.indicators = indicators(rules, recorder.windows[0])
    for second in range(3000):
        name = "long" if second % 3 == 0 else "default"
        seconds = INF if name == "long" else 0.5
        recorder.pair(1, 1_000_000 + second, {"baseline": seconds, "candidate": seconds}, name=name)
    assert judge(rules, recorder.merged(), facts(recorder)).reason == reason


def test_no_pairs_are_no_evidence() -> None:
    report = judged(recorded(pairs=0))
    assert said(report) == ("Inconclusive", "NoEvidence")
    assert "1000 requests seen" in report.message


@pytest.mark.parametrize("missing", [(), ("x-capture-1",)])
def test_unread_evidence_is_named(missing: tuple[str, ...]) -> None:
    recorder = recorded(candidate=slower)
    captures = [recorder.capture()] if missing else []
    evidence = merged([recorder.evidence()], captures, missing=missing, final=True)
    report = judge(DEFAULT_RULES, evidence, facts(recorder))
    assert said(report) == ("Inconclusive", "EvidenceMissing")
    assert (missing[0] if missing else "0 pods read") in report.message


def test_counters_that_contradict_each_other_are_not_judged() -> None:
    recorder = recorded(candidate=slower)
    recorder.windows[1].classes["default"].received += Amount(requests=7, bytes=1)
    assert said(judged(recorder)) == ("Inconclusive", "EvidenceInconsistent")


WITH_CONTROL = msgspec.structs.replace(DEFAULT_RULES, control="control")


def noise(draw: random.Random, _baseline_s: float) -> float:
    return lognormal(draw)


def test_an_equal_control_is_no_objection() -> None:
    assert judged(recorded(WITH_CONTROL, control=noise), WITH_CONTROL).verdict == "Pass"


@pytest.mark.parametrize("control", [slower, lambda _draw, baseline_s: baseline_s / 2])
def test_a_control_that_differs_makes_the_run_inconclusive(control: object) -> None:
    report = judged(recorded(WITH_CONTROL, slower, control=control), WITH_CONTROL)  # type: ignore[arg-type]
    assert said(report) == ("Inconclusive", "NoisyBaseline")
    assert '"faster"' in report.message


def test_a_short_run_is_too_short_to_call_its_control_noisy_for_a_few_slow_moments() -> None:
    """A second in six in which the control alone missed the SLO is chance in 40 seconds, and noise in 20 minutes."""
    rules = Rules(criteria=(SLO_KEPT,), control="control")
    found = []
    for seconds in (40, 1200):
        recorder = recorded(rules, pairs=0)
        for i in range(seconds):
            slow = i % 40 in (1, 6, 11, 17, 23, 30, 36)
            for _ in range(6):
                ttft = {"baseline": 0.5, "candidate": 0.5, "control": 9.0 if slow else 0.5}
                recorder.pair(1, 1_000_000 + i, ttft)
        found.append([f.reason for f in judged(recorder, rules).findings])
    assert found == [[], ["NoisyBaseline"]]


def test_the_margin_inside_a_latency_is_not_taken_for_noise() -> None:
    wide = Criterion(name="wide", metric="TTFT", quantile=0.5, require="NotWorse", margin=0.5)
    rules = Rules(criteria=(wide,), control="control")
    assert judged(recorded(rules, control=noise), rules).verdict == "Pass"


def test_a_control_without_results_is_not_judged() -> None:
    assert said(judged(recorded(), WITH_CONTROL)) == ("Inconclusive", "EvidenceInconsistent")


def test_too_few_pairs_say_how_many_are_missing() -> None:
    report = judged(recorded(pairs=150, candidate=slower))
    assert said(report) == ("Inconclusive", "TooFewPairs")
    assert "150 of at least 200 pairs, about 50 further pairs needed" in report.message


def test_pairs_in_too_few_blocks_of_time_are_too_few() -> None:
    rules = Rules(criteria=(BETTER,))
    whole = recorded(rules, pairs=0)
    for i in range(700):
        whole.pair(1, i // 100, {"baseline": 1.0, "candidate": 0.1})
    report = judged(whole, rules)
    assert said(report) == ("Inconclusive", "TooFewPairs")
    assert "700 pairs lie in only 7 blocks of time, about 800 further pairs needed" in report.message


def test_a_class_without_pairs_is_never_overlooked() -> None:
    rare = Criterion(name="rare", metric="WithinSLO", traffic_class="rare", require="NotWorse", margin=0.05)
    rules = msgspec.structs.replace(DEFAULT_RULES, criteria=(BETTER, rare))
    report = judged(recorded(rules), rules)
    assert said(report) == ("Inconclusive", "TooFewPairs")
    assert "0 of at least 200 pairs" in report.message


def test_a_latency_without_a_limit_is_open() -> None:
    report = judged(recorded(warm_up=5, rules=Rules(criteria=(BETTER,))), Rules(criteria=(BETTER,)))
    assert said(report) == ("Inconclusive", "NoThreshold")


def test_shed_requests_lower_the_coverage() -> None:
    recorder = recorded()
    recorder.drop(1, "Shed", 80)
    report = judged(recorder)
    assert said(report) == ("Inconclusive", "LowCoverage")
    assert "88.2% of the selected requests" in report.message
    assert "12 are missing" in report.message


def test_few_but_long_drops_lower_the_coverage_in_tokens() -> None:
    recorder = recorded()
    recorder.drop(1, "Shed", 20, size=40_000)
    report = judged(recorder)
    assert said(report) == ("Inconclusive", "LowCoverage")
    assert "75.0% of the selected tokens" in report.message


@pytest.mark.parametrize(("holder", "reason"), [("a", "LowCoverage"), ("b", "AllCriteriaPassed")])
def test_a_class_is_held_to_its_floor_with_the_oversized_it_may_have_had(holder: str, reason: str) -> None:
    criterion = Criterion(name="c", metric="TTFT", quantile=0.5, traffic_class="a", require="Better")
    rules = Rules(criteria=(criterion,), oversized_classes=(holder,), floor=CoverageFloor(requests=0.93, tokens=0))
    recorder = recorded(rules, names=("a", "b"), pairs=1200)
    assert judged(recorder, rules, oversized=Amount(requests=60, bytes=0)).reason == reason


def shed(names: dict[str, tuple[int, int]], criterion: Criterion) -> Report:
    """Of each class so many pairs and so many shed, judged by one criterion."""
    rules = Rules(criteria=(criterion,))
    recorder = recorded(rules, names=("a",), pairs=600)
    for name, (pairs, missing) in names.items():
        for i in range(pairs):
            recorder.pair(1, 1_000_000 + i, {"baseline": 0.5, "candidate": 0.3}, name=name)
        recorder.drop(1, "Shed", missing, name=name)
    return judged(recorder, rules)


OF_A = Criterion(name="c", metric="TTFT", quantile=0.5, traffic_class="a", require="Better")


@pytest.mark.parametrize(
    ("criterion", "pairs", "missing", "reason"),
    [
        (BETTER, 45, 5, "AllCriteriaPassed"),
        (BETTER, 44, 6, "LowCoverage"),  # 97 % of the run, but 88 % of the class
        (OF_A, 44, 6, "AllCriteriaPassed"),  # nothing is said of class b
        (BETTER, 0, 20, "LowCoverage"),
        (BETTER, 0, 19, "AllCriteriaPassed"),  # too small a class to hold a run up: it is told in the status
    ],
)
def test_what_is_said_of_all_classes_needs_pairs_from_every_one(
    criterion: Criterion, pairs: int, missing: int, reason: str
) -> None:
    report = shed({"b": (pairs, missing)}, criterion)
    assert report.reason == reason
    if reason == "LowCoverage":
        assert f'requests of class "b" became pairs ({pairs} of {pairs + missing})' in report.message


def test_the_coverage_of_a_class_too_small_to_gate_is_told() -> None:
    report = shed({"b": (9, 10)}, BETTER)
    assert report.reason == "AllCriteriaPassed"
    (told,) = (c for c in classes_status(report.rules, report.funnel) if c.name == "b")
    assert (told.selected_requests, told.pairs, told.request_coverage) == (19, 9, "47.4%")


def test_low_coverage_takes_no_fail_away() -> None:
    recorder = recorded(candidate=slower)
    recorder.drop(1, "Shed", 400)
    report = judged(recorder)
    assert report.verdict == "Fail"
    assert "LowCoverage" in [f.reason for f in report.findings]


@pytest.mark.parametrize(("lost", "verdict"), [(6, "Pass"), (7, "Inconclusive")])
def test_more_than_one_percent_lost_in_transit_is_inconclusive(lost: int, verdict: str) -> None:
    report = judged(recorded(), sampled=Amount(requests=lost, bytes=4000 * lost))
    assert report.verdict == verdict
    assert (report.reason == "EvidenceLost") == (verdict == "Inconclusive")


@pytest.mark.parametrize(("size", "verdict"), [(4000, "Pass"), (9000, "Inconclusive")])
def test_few_lost_requests_that_were_long_are_too_many_in_tokens(size: int, verdict: str) -> None:
    report = judged(recorded(), sampled=Amount(requests=4, bytes=4 * size))
    assert report.verdict == verdict
    assert (report.reason == "EvidenceLost") == (verdict == "Inconclusive")


def test_a_capture_that_counted_less_than_arrived_is_lost_evidence() -> None:
    recorder = recorded()
    copies = msgspec.structs.replace(recorder.capture(), windows={})
    report = judge(DEFAULT_RULES, merged([recorder.evidence()], [copies], final=True), facts(recorder))
    assert said(report) == ("Inconclusive", "EvidenceLost")
    assert "capture missed 600" in report.message


def drifted(latencies: tuple[float, ...], candidate: Callable[[float], float], require: Require = "Better") -> Report:
    """Limits from the usual warm-up (p50 is about 0.5 s); then the baseline cycles through these latencies."""
    rules = Rules(criteria=(msgspec.structs.replace(BETTER, require=require),))
    recorder = recorded(rules, pairs=0)
    for i in range(1200):
        baseline = latencies[i % len(latencies)]
        recorder.pair(1, i, {"baseline": baseline, "candidate": candidate(baseline)})
    return judged(recorder, rules)


FASTER = tuple(0.25 * 1.05**i for i in range(16))  # from 0.25 to 0.52 s, so that 0.5 s is its p94
ODD = (*(0.3 + 0.01 * i for i in range(12)), *(0.8, 0.9, 1.0, 1.1))  # 0.5 s is its p75


def test_a_threshold_that_is_no_longer_the_quantile_is_said_and_harmless_where_all_quantiles_agree() -> None:
    report = drifted(ODD, lambda baseline: 0.5 * baseline)
    assert report.verdict == "Pass"
    (result,) = report.criteria
    assert result.position is not None
    assert result.position.low == pytest.approx(0.75, abs=0.01)
    assert result.between is not None
    assert result.between[0] > 0.05


def test_a_drifted_threshold_that_hides_the_quantile_asked_for_is_inconclusive() -> None:
    """The candidate is faster only where the limit went, slower at the quantile that was asked for."""
    report = drifted(ODD, lambda baseline: 0.45 if baseline > 0.7 else max(baseline, 0.44))
    assert said(report) == ("Inconclusive", "ThresholdDrifted")
    assert "should be its p50 and became p75.0" in report.message


def test_a_drifted_threshold_takes_no_fail_away_where_all_quantiles_agree() -> None:
    report = drifted(FASTER, lambda baseline: 2 * baseline)
    assert said(report) == ("Fail", "CriterionFailed")


Length = Literal["long", "short", "any"]


def failing(length: Length, share: float, *, baseline_too: bool = False, pairs: int = 1000) -> Recorder:
    """Lengths from 1 to 40 kB; the candidate fails `share` of the requests: the longest, the shortest, or any."""
    draw, recorder = random.Random(7), recorded(pairs=0)
    sizes = [int(1000 * 40 ** draw.random()) for _ in range(pairs)]
    ranked = sorted(range(pairs), key=lambda i: sizes[i], reverse=length == "long")
    chosen = set(ranked[: int(share * pairs)] if length != "any" else draw.sample(range(pairs), int(share * pairs)))
    for i, size in enumerate(sizes):
        baseline = lognormal(draw)
        failed = i in chosen
        ttft = {"baseline": INF if failed and baseline_too else baseline, "candidate": INF if failed else baseline / 2}
        recorder.pair(1, 1000 + i // 2, ttft, size=size)
    return recorder


@pytest.mark.parametrize(
    ("recorder", "hard"),
    [
        (failing("long", 0.10), True),
        (failing("long", 0.05), True),
        (failing("any", 0.20), False),  # too many failures, but not the hard ones
        (failing("short", 0.30), False),
        (failing("long", 0.10, baseline_too=True), False),  # the baseline fails them just the same
        (failing("long", 0.08, pairs=100), False),  # 8 failures may be chance
        (failing("long", 0.0), False),
        (failing("any", 1.0), False),  # nothing completed, so nothing singled out
    ],
)
def test_failing_the_long_requests_is_told_from_other_failures(recorder: Recorder, hard: bool) -> None:
    report = judged(recorder)
    assert ("DroppedHardRequests" in [f.reason for f in report.findings]) == hard
    assert (report.reason == "DroppedHardRequests") == hard
    assert not hard or report.verdict == "Fail"


def test_failing_others_beside_the_long_ones_that_both_arms_fail_is_not_dropping_the_hard_ones() -> None:
    draw, recorder = random.Random(9), recorded(pairs=0)
    for i in range(1000):
        size, baseline = int(1000 * 40 ** draw.random()), lognormal(draw)
        both = size > 20_000
        ttft = {"baseline": INF if both else baseline, "candidate": INF if both or draw.random() < 0.25 else baseline}
        recorder.pair(1, 1000 + i // 2, ttft, size=size)
    assert "DroppedHardRequests" not in [f.reason for f in judged(recorder).findings]


def test_a_critical_criterion_is_named_before_others_that_failed() -> None:
    def broken(draw: random.Random, baseline_s: float) -> float:
        return INF if draw.random() < 0.3 else 3 * baseline_s

    report = judged(recorded(candidate=broken))
    assert report.message.startswith(f'"{NO_ERRORS.name}" is violated')
    assert "Also violated: faster, not-slower, slo." in report.message


def test_every_finding_is_reported_and_the_gravest_decides() -> None:
    recorder = recorded(pairs=150)
    recorder.drop(1, "Shed", 100)
    report = judge(DEFAULT_RULES, recorder.merged(), facts(recorder, "Stopped"))
    assert [f.reason for f in report.findings] == ["Stopped", "LowCoverage", "TooFewPairs"]
    assert report.reason == "Stopped"


def test_nothing_to_prove_is_not_a_pass() -> None:
    rules = Rules(criteria=(msgspec.structs.replace(BETTER, informational=True),))
    assert said(judged(recorded(rules), rules)) == ("Inconclusive", "NoGatingCriteria")


def test_an_empty_run_is_inconclusive() -> None:
    nothing: Merged = merged([], [], final=True)
    known = Facts(
        run="x", run_uid="u", end_reason="DurationReached", indicators=(Indicator(criterion="a", metric="TTFT"),)
    )
    assert said(judge(DEFAULT_RULES, nothing, known)) == ("Inconclusive", "NoEvidence")


def flagged(recorder: Recorder, reason: str, pairs: int, name: str = "default") -> Recorder:
    """The recorder with so many counted pairs of a class flagged."""
    part = recorder.windows[1].classes[name]
    part.flagged = added(part.flagged, {reason: Amount(requests=pairs, bytes=4000 * pairs)})
    return recorder


@pytest.mark.parametrize(("flag", "word"), [("Lagged", "MirrorOverloaded"), ("DispatchSkew", "ArmsOutOfStep")])
@pytest.mark.parametrize(("pairs", "verdict"), [(120, "Pass"), (121, "Inconclusive")])
def test_more_than_a_fifth_of_the_pairs_measured_badly_forbid_a_pass(
    flag: str, word: str, pairs: int, verdict: str
) -> None:
    report = judged(flagged(recorded(), flag, pairs))
    assert report.verdict == verdict
    assert (report.reason == word) == (verdict == "Inconclusive")
    if verdict == "Inconclusive":
        assert "121 of 600 pairs" in report.message
        assert "20% is allowed" in report.message


def test_a_class_that_gates_is_measured_well_or_the_run_does_not_pass() -> None:
    criterion = Criterion(name="c", metric="TTFT", quantile=0.5, traffic_class="a", require="Better")
    rules = Rules(criteria=(criterion,))
    recorder = flagged(recorded(rules, names=("a", "b"), pairs=1200), "Lagged", 150, "a")
    assert said(judged(recorder, rules)) == ("Inconclusive", "MirrorOverloaded")
    elsewhere = flagged(recorded(rules, names=("a", "b"), pairs=1200), "Lagged", 150, "b")
    assert judged(elsewhere, rules).verdict == "Pass"


TPOT = Criterion(name="tpot", metric="TPOT", quantile=0.5, require="Better")


@pytest.mark.parametrize(("criterion", "verdict"), [(TPOT, "Inconclusive"), (BETTER, "Pass")])
def test_an_arm_that_hides_its_tokens_does_not_choose_the_answers_it_is_judged_by(
    criterion: Criterion, verdict: str
) -> None:
    rules = Rules(criteria=(criterion,))
    report = judged(flagged(recorded(rules), "TokenSourcesDiffer", 7), rules)
    assert report.verdict == verdict
    assert (report.reason == "TokenSourcesDiffer") == (verdict == "Inconclusive")
    assert judged(flagged(recorded(rules), "TokenSourcesDiffer", 6), rules).verdict == "Pass"


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.sampled_from([f.value for f in FlagReason]), st.integers(0, 600)), st.booleans())
def test_no_flag_takes_a_fail_away_or_makes_a_pass(flags: dict[str, int], good: bool) -> None:
    recorder = recorded() if good else recorded(candidate=slower)
    before = judged(recorder).verdict
    for reason, pairs in flags.items():
        flagged(recorder, reason, pairs)
    after = judged(recorder).verdict
    assert before == ("Pass" if good else "Fail")
    assert after in ({"Pass", "Inconclusive"} if good else {"Fail"})


def test_a_proxy_of_the_users_own_leaves_no_evidence_of_capture_and_none_is_asked_for() -> None:
    recorder = recorded()
    evidence = merged([recorder.evidence()], [], final=True)
    assert judge(DEFAULT_RULES, evidence, facts(recorder)).reason == "EvidenceMissing"
    external = msgspec.structs.replace(DEFAULT_RULES, external=True)
    report = judge(external, evidence, facts(recorder))
    assert "EvidenceMissing" not in [f.reason for f in report.findings]
    assert report.funnel.seen.requests == 600
