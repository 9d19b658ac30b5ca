"""What is said of how often answers match, and that no verdict looks at it."""

import random
from typing import get_args

import msgspec
import numpy as np
import pytest
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.evidence import ClassEvidence, Evidence, Matches
from shadowrun_mirror.reasons import DIFFERENCES, Likeness
from shadowrun_operator.api.status import DifferenceKind
from shadowrun_operator.judge.figures import at_least
from shadowrun_operator.judge.matches import MIN_COMPARED, ArmMatches, matches, of_candidate, rate_is_proven
from shadowrun_operator.judge.merge import merged
from shadowrun_operator.judge.report import packed_report, unpacked_report
from shadowrun_operator.judge.rules import Rules
from shadowrun_operator.judge.summary import comparison_status
from shadowrun_operator.judge.verdict import judge, judged_again

from tests.unit.judge.synthetic import DEFAULT_RULES, Recorder, facts, recorded

pytestmark = pytest.mark.answers

WITH_CONTROL = msgspec.structs.replace(DEFAULT_RULES, control="control")


def compared(
    recorder: Recorder, arm: str, found: list[Likeness], *, name: str = "default", each_s: float = 0.5, first: int = 0
) -> None:
    """Count what comparing came to, pair by pair, as a mirror does."""
    window = recorder.windows[1]
    counted = window.classes.setdefault(name, ClassEvidence()).matches.setdefault(arm, Matches())
    series = window.differing.setdefault(arm, BlockSeries())
    for i, likeness in enumerate(found, first):
        counted.add(likeness)
        if likeness not in (Likeness.BOTH_FAILED, Likeness.TOO_LONG):
            series.add(1_000_000 + int(i * each_s), 0 if likeness is Likeness.MATCH else -1)


def found(recorder: Recorder, rules: Rules = DEFAULT_RULES) -> tuple[ArmMatches, ...]:
    return matches(rules, recorder.merged())


def test_matches_differences_and_what_is_not_compared_are_told_for_each_class_and_challenger() -> None:
    recorder = Recorder()
    compared(recorder, "candidate", [Likeness.MATCH] * 3 + [Likeness.VALUE, Likeness.FAILED], name="long")
    compared(recorder, "candidate", [Likeness.MATCH, Likeness.TOO_LONG])
    compared(recorder, "control", [Likeness.MATCH] * 2)
    by_place = {(m.traffic_class, m.arm): m for m in found(recorder, WITH_CONTROL)}
    assert [f"{name} {arm}" for name, arm in by_place] == [
        *(" candidate", " control", "default candidate", "default control", "long candidate")
    ]
    whole = by_place["", "candidate"]
    assert (whole.compared, whole.matched) == (6, 4)
    assert whole.share == pytest.approx(4 / 6)
    assert whole.differed == {"Failed": 1, "Value": 1}
    assert list(whole.differed) == [kind for kind in DIFFERENCES if kind in whole.differed]
    assert whole.uncompared == {"TooLong": 1}
    assert by_place["default", "candidate"].compared == 1
    assert by_place["", "control"].share == 1.0


def test_below_the_fewest_pairs_no_share_is_proven() -> None:
    for pairs, told in ((MIN_COMPARED - 1, False), (MIN_COMPARED, True)):
        recorder = Recorder()
        compared(recorder, "candidate", [Likeness.MATCH] * pairs)
        (whole, _) = found(recorder)
        assert (whole.lower is not None) == told
        low = msgspec.structs.replace(DEFAULT_RULES, match_rate=0.5)
        assert rate_is_proven(low, found(recorder)) == told
    assert not rate_is_proven(DEFAULT_RULES, found(recorder)), "nobody asks for it"


def test_many_pairs_of_one_moment_prove_nothing() -> None:
    recorder = Recorder()
    compared(recorder, "candidate", [Likeness.MATCH] * 5000, each_s=0.001)
    assert found(recorder)[0].lower is None


def test_whole_agreement_proves_more_the_longer_it_lasts_and_never_all() -> None:
    lowers = []
    for pairs in (200, 500, 1000):
        recorder = Recorder()
        compared(recorder, "candidate", [Likeness.MATCH] * pairs)
        lowers.append(found(recorder)[0].lower or 0.0)
    assert [at_least(lower) for lower in lowers] == ["97.86%", "99.17%", "99.61%"]


def test_a_failure_of_the_candidate_never_raises_what_is_proven() -> None:
    dice = random.Random(5)
    for _ in range(20):
        whole = [dice.choices([Likeness.MATCH, Likeness.VALUE], [0.97, 0.03])[0] for _ in range(400)]
        some = set(dice.sample(range(400), dice.randint(1, 100)))
        worse = [Likeness.FAILED if i in some else likeness for i, likeness in enumerate(whole)]
        before, after = Recorder(), Recorder()
        compared(before, "candidate", whole)
        compared(after, "candidate", worse)
        ours, theirs = found(before)[0], found(after)[0]
        assert (theirs.share or 0) <= (ours.share or 0)
        assert (theirs.lower or 0) <= (ours.lower or 0) + 1e-12


def test_a_share_below_the_rate_is_proven_to_be_the_rate_in_few_runs_however_often_it_is_looked_at() -> None:
    """The true share is the rate itself; each run is looked at every 50 pairs and may end at each look."""
    rate, runs, wrong = 0.95, 60, 0
    dice = np.random.default_rng(3)
    rules = msgspec.structs.replace(DEFAULT_RULES, match_rate=rate)
    for _ in range(runs):
        differs = dice.random(2000) > rate
        recorder = Recorder()
        for look in range(0, 2000, 50):
            series = recorder.windows[1].differing.setdefault("candidate", BlockSeries())
            counted = recorder.windows[1].classes.setdefault("default", ClassEvidence())
            for i in range(look, look + 50):
                counted.matches.setdefault("candidate", Matches()).add(Likeness.VALUE if differs[i] else Likeness.MATCH)
                series.add(1_000_000 + i // 2, -int(differs[i]))
            if rate_is_proven(rules, found(recorder)):
                wrong += 1
                break
    assert wrong <= 6  # 5 % of 60, and chance


def test_the_verdict_is_the_same_whatever_the_answers_are() -> None:
    plain, differing = recorded(), recorded()
    compared(differing, "candidate", [Likeness.VALUE] * 600)
    ours, theirs = (judge(DEFAULT_RULES, r.merged(), facts(r)) for r in (plain, differing))
    assert (ours.verdict, ours.message, ours.criteria) == (theirs.verdict, theirs.message, theirs.criteria)
    assert ours.matches == ()
    assert theirs.matches[0].matched == 0


def test_the_status_knows_every_kind_of_difference() -> None:
    assert get_args(DifferenceKind) == tuple(kind.value for kind in DIFFERENCES)


def test_a_report_with_matches_is_read_back_and_judged_again_and_so_is_one_from_before_there_were_any() -> None:
    recorder = recorded()
    compared(recorder, "candidate", [Likeness.MATCH] * 590 + [Likeness.ORDER] * 10)
    report = judge(DEFAULT_RULES, recorder.merged(), facts(recorder))
    readable, evidence = packed_report(report)
    assert unpacked_report(readable, evidence) == report
    assert judged_again(unpacked_report(readable, evidence)) == report
    old = msgspec.json.decode(readable)
    del old["matches"]
    del old["rules"]["match_rate"]
    assert unpacked_report(msgspec.json.encode(old).decode(), evidence).matches == ()


def test_a_checkpoint_from_before_there_were_comparisons_is_read() -> None:
    recorder = recorded(pairs=5)
    raw = msgspec.json.decode(msgspec.json.encode(recorder.evidence()))
    for window in raw["windows"].values():
        del window["differing"]
        for of_class in window["classes"].values():
            del of_class["matches"]
    old = Evidence.decode(msgspec.json.encode(raw))
    assert matches(DEFAULT_RULES, merged([old], [])) == ()


def test_the_sum_of_two_mirrors_says_what_one_would_have_said() -> None:
    likenesses = [Likeness.MATCH] * 300 + [Likeness.VALUE] * 7 + [Likeness.BOTH_FAILED] * 2
    one, first, second = Recorder(), Recorder(), Recorder()
    compared(one, "candidate", likenesses)
    compared(first, "candidate", likenesses[:-5])
    compared(second, "candidate", likenesses[-5:], first=len(likenesses) - 5)
    both = merged([first.evidence("a"), second.evidence("b")], [])
    assert matches(DEFAULT_RULES, both) == found(one)


def test_the_status_shows_it_small_and_with_the_control_beside() -> None:
    recorder = Recorder()
    compared(recorder, "candidate", [Likeness.MATCH] * 396 + [Likeness.VALUE] * 3 + [Likeness.FAILED])
    compared(recorder, "control", [Likeness.MATCH] * 399 + [Likeness.VALUE])
    told = found(recorder, WITH_CONTROL)
    status = comparison_status(WITH_CONTROL, told)
    assert status is not None
    whole = of_candidate(WITH_CONTROL, told)
    assert whole is not None
    assert whole.lower is not None
    assert status.to_json() == {
        "compared": 400,
        "matched": 396,
        "matchRate": at_least(whole.lower),
        "control": "99.8%",
        "differed": [{"kind": "Failed", "pairs": 1}, {"kind": "Value", "pairs": 3}],
    }
    assert comparison_status(DEFAULT_RULES, ()) is None


@pytest.mark.parametrize(("share", "said"), [(0.98999, "98.99%"), (0.99, "99.00%"), (0.0, "0.00%"), (1.0, "100.00%")])
def test_a_lower_bound_is_rounded_down(share: float, said: str) -> None:
    assert at_least(share) == said
