"""Equal arms meet equal conditions: who was first, what came from the cache, how much was in hand."""

import msgspec
import pytest
from shadowrun_mirror.evidence import Usage
from shadowrun_operator.judge.report import Report
from shadowrun_operator.judge.rules import Rules

from tests.unit.judge.synthetic import DEFAULT_RULES, Recorder, equal, judged, recorded, slower

pytestmark = pytest.mark.verdict

WITH_CONTROL = msgspec.structs.replace(DEFAULT_RULES, control="control")


def said(report: Report) -> tuple[str, str]:
    return report.verdict, report.reason


def sent(recorder: Recorder, **firsts: int) -> Recorder:
    for arm, first in firsts.items():
        recorder.windows[1].classes["default"].arms[arm].sent_first = first
    return recorder


@pytest.mark.parametrize(("baseline", "candidate"), [(300, 300), (330, 270), (270, 330)])
def test_arms_that_take_turns_are_no_objection(baseline: int, candidate: int) -> None:
    assert judged(sent(recorded(), baseline=baseline, candidate=candidate)).verdict == "Pass"


def test_an_arm_that_is_nearly_always_first_forbids_a_pass_and_takes_no_fail_away() -> None:
    report = judged(sent(recorded(), baseline=500, candidate=100))
    assert said(report) == ("Inconclusive", "SendOrderBiased")
    assert "The baseline was sent to first in 500 of 600 pairs (83.3%) instead of about 50.0%" in report.message
    assert judged(sent(recorded(candidate=slower), baseline=500, candidate=100)).verdict == "Fail"


def test_a_few_pairs_prove_no_order() -> None:
    assert judged(sent(recorded(), baseline=6, candidate=2)).verdict == "Pass"


def cached(recorder: Recorder, **tokens: int) -> Recorder:
    for arm, found in tokens.items():
        recorder.windows[1].classes["default"].arms[arm].usage = Usage(
            answers=600, body_bytes=2_400_000, prompt_tokens=600_000, cached_tokens=found
        )
    return recorder


def with_caches(rules: Rules = WITH_CONTROL, **tokens: int) -> Report:
    return judged(cached(recorded(rules, control=equal), **tokens), rules)


def test_equal_arms_with_unequal_caches_are_a_noisy_baseline() -> None:
    report = with_caches(baseline=60_000, candidate=60_000, control=240_000)
    assert said(report) == ("Inconclusive", "NoisyBaseline")
    assert "40.0% of its prompt tokens from its cache and the baseline, its equal, 10.0%" in report.message


def test_a_candidate_with_another_cache_is_only_reported() -> None:
    report = with_caches(baseline=60_000, candidate=540_000, control=60_000)
    assert report.verdict == "Pass"
    assert [p.cached for p in report.circumstances.parities] == [0.1, 0.9, 0.1]


def test_what_an_arm_has_in_hand_follows_from_the_time_its_answers_take() -> None:
    recorder = recorded()
    recorder.windows[1].first_pair, recorder.windows[1].last_pair = 1000.0, 1300.0
    total = recorder.windows[1].classes["default"].arms["baseline"].e2e.total
    (baseline, candidate) = judged(recorder).circumstances.parities
    assert baseline.in_hand == pytest.approx(total / 300)
    assert baseline.held_s == pytest.approx(total / 600)
    assert candidate.held_s == pytest.approx(0.6 * total / 600)


@pytest.mark.parametrize(
    ("candidate", "cause"),
    [(slower, "the candidate holds them longer"), (equal, "the arms are too small for the rate")],
)
def test_pairs_that_were_shed_say_whether_the_candidate_is_slow_or_the_pool_too_small(
    candidate: object, cause: str
) -> None:
    rules = msgspec.structs.replace(DEFAULT_RULES, criteria=DEFAULT_RULES.criteria[2:])
    recorder = recorded(rules, candidate=lambda draw, s: 4 * s if candidate is slower else s)
    recorder.drop(1, "Shed", 400)
    report = judged(recorder, rules)
    (low,) = (f for f in report.findings if f.reason == "LowCoverage")
    assert f"400 were shed while every slot was taken: {cause}" in low.message


def test_the_warm_up_is_counted_and_in_no_other_figure() -> None:
    report = judged(recorded(warm_up=400, pairs=600))
    assert (report.circumstances.warm_up.pairs, report.circumstances.warm_up.measured) == (400, 400)
    assert report.funnel.pairs.requests == 600
