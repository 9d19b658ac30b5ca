"""Arms that changed places halfway: a node decides no verdict, and what is true of the candidate is found anyway."""

import math
import random
from collections.abc import Callable

import msgspec
import pytest
from shadowrun_mirror.evidence import Amount, Window
from shadowrun_mirror.reasons import FlagReason
from shadowrun_operator.judge import report as module
from shadowrun_operator.judge.criteria import CriterionResult
from shadowrun_operator.judge.facts import Facts
from shadowrun_operator.judge.halves import apart, halves_of, outcomes
from shadowrun_operator.judge.merge import SECOND_HALF, SECOND_WARM_UP, identity, merged
from shadowrun_operator.judge.report import Report, packed_report, unpacked_report
from shadowrun_operator.judge.rules import Criterion, Rules
from shadowrun_operator.judge.thresholds import indicators
from shadowrun_operator.judge.verdict import judge, judged_again
from shadowrun_operator.judge.words import criterion_sentence

from tests.unit.judge.synthetic import BETTER, NO_ERRORS, NOT_SLOWER, SLO_KEPT, Recorder, facts, lognormal

pytestmark = pytest.mark.verdict

STAY = Rules(criteria=(NOT_SLOWER, NO_ERRORS))
CROSS = msgspec.structs.replace(STAY, crossover=True)
LENIENT = Rules(criteria=(msgspec.structs.replace(NO_ERRORS, margin=0.5),), crossover=True)
"""So many failures are allowed that only what is unsound stands against a Pass."""
Speed = Callable[[str], float]
"""How many times the usual time an arm's answers take on the node that it stands on."""


def crossed(
    rules: Rules,
    node: dict[str, float],
    *,
    gain: float = 1.0,
    halves: tuple[int, int] = (1200, 1200),
    fails: Callable[[str, float], bool] = lambda _arm, _size: False,
    seed: int = 3,
) -> Recorder:
    """A run whose nodes A and B differ by these factors: the baseline on A, the candidate on B, and then changed.

    `gain` is the candidate's own factor; `fails` says whether an answer of a node fails, by node and size.
    """
    draw, recorder = random.Random(seed), Recorder()
    recorder.windows[SECOND_HALF] = Window(id=SECOND_HALF)
    second = 1_000_000
    for number, count, places in ((0, 400, "AB"), (1, halves[0], "AB"), (SECOND_HALF, halves[1], "BA")):
        if number == 1:
            recorder.indicators = indicators(rules, recorder.windows[0])
        for _ in range(count):
            second += draw.random() < 0.5
            usual, noise, size = lognormal(draw), math.exp(draw.gauss(0, 0.05)), draw.choice((1000, 1000, 9000))
            times = {
                "baseline": usual * node[places[0]],
                "candidate": usual * node[places[1]] * noise * gain,
            }
            for arm, place in zip(times, places, strict=True):
                times[arm] = math.inf if fails(place, size) else times[arm]
            recorder.pair(number, second, times, size=size)
    if not halves[1]:
        del recorder.windows[SECOND_HALF]
    return recorder


def report_of(recorder: Recorder, rules: Rules, known: Facts | None = None) -> Report:
    return judge(rules, recorder.merged(), known or facts(recorder))


EQUAL, UNEQUAL = {"A": 1.0, "B": 1.0}, {"A": 1.2, "B": 1.0}


def test_equal_arms_on_unequal_nodes_look_like_a_better_candidate_until_they_change_places() -> None:
    better = msgspec.structs.replace(STAY, criteria=(BETTER, NO_ERRORS))
    fooled = report_of(crossed(better, UNEQUAL, halves=(2400, 0)), better)
    assert fooled.verdict == "Pass", "the candidate had the faster node"
    report = report_of(crossed(better, UNEQUAL), msgspec.structs.replace(better, crossover=True))
    assert (report.verdict, report.reason) == ("Inconclusive", "HalvesDisagree")
    assert "the node or the hour" in report.message
    first, second = report.criteria[0].halves
    assert (first.outcome, second.outcome) == ("Pass", "Fail")
    assert f"{100 * (first.difference or 0):+.1f} in the first half" in report.message


def test_no_node_makes_equal_arms_better_and_no_node_hides_a_gain_beyond_it() -> None:
    better = Rules(criteria=(BETTER, NO_ERRORS), crossover=True)
    draw = random.Random(11)
    for seed in range(12):
        node = {"A": 1.0, "B": draw.uniform(0.7, 1.4)}
        assert report_of(crossed(better, node, halves=(700, 700), seed=seed), better).verdict != "Pass", node
        assert report_of(crossed(better, node, gain=0.5, halves=(700, 700), seed=seed), better).verdict == "Pass", node


def test_equal_arms_on_unequal_nodes_do_not_look_worse_either() -> None:
    slow = {"A": 1.0, "B": 1.2}
    assert report_of(crossed(STAY, slow, halves=(2400, 0)), STAY).verdict == "Fail"
    report = report_of(crossed(STAY, slow), CROSS)
    assert (report.verdict, report.reason) == ("Inconclusive", "HalvesDisagree")


@pytest.mark.parametrize("node", [EQUAL, UNEQUAL, {"A": 1.0, "B": 1.2}], ids=["equal", "slow first", "slow second"])
def test_a_candidate_that_is_faster_by_more_than_nodes_differ_passes(node: dict[str, float]) -> None:
    rules = msgspec.structs.replace(CROSS, criteria=(BETTER, NOT_SLOWER, SLO_KEPT, NO_ERRORS))
    report = report_of(crossed(rules, node, gain=0.6), rules)
    assert report.verdict == "Pass", report.message


@pytest.mark.parametrize("node", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_a_candidate_that_is_slower_by_more_than_nodes_differ_fails(node: dict[str, float]) -> None:
    report = report_of(crossed(CROSS, node, gain=1.8), CROSS)
    assert (report.verdict, report.reason) == ("Fail", "CriterionFailed")


def test_equal_arms_on_equal_nodes_pass() -> None:
    assert report_of(crossed(CROSS, EQUAL), CROSS).verdict == "Pass"


@pytest.mark.parametrize(("gain", "verdict"), [(0.6, "Pass"), (1.8, "Fail")])
def test_without_a_second_half_there_is_no_verdict(gain: float, verdict: str) -> None:
    recorder = crossed(CROSS, EQUAL, gain=gain, halves=(1200, 0))
    assert report_of(recorder, STAY).verdict == verdict
    report = report_of(recorder, CROSS)
    assert (report.verdict, report.reason) == ("Inconclusive", "HalfMissing")
    assert "1200 pairs were counted before, none after" in report.message


@pytest.mark.parametrize("halves", [(2400, 150), (150, 2400)])
def test_neither_half_makes_up_for_the_other(halves: tuple[int, int]) -> None:
    report = report_of(crossed(CROSS, EQUAL, gain=0.6, halves=halves), CROSS)
    assert (report.verdict, report.reason) == ("Inconclusive", "TooFewPairs")
    half = "second" if halves[1] < halves[0] else "first"
    assert f"in the {half} half 150 of at least 200 pairs" in report.message


def long_ones_fail_on(node: str) -> Callable[[str, float], bool]:
    return lambda place, size: place == node and size > 5000


def test_a_node_that_fails_long_requests_is_not_taken_for_the_candidate() -> None:
    recorder = crossed(STAY, EQUAL, halves=(2400, 0), fails=long_ones_fail_on("B"))
    assert report_of(recorder, STAY).reason == "DroppedHardRequests"
    report = report_of(crossed(CROSS, EQUAL, fails=long_ones_fail_on("B")), CROSS)
    assert (report.verdict, report.reason) == ("Inconclusive", "LongRequestsFailed")
    assert report.message.startswith("In the first half alone: The candidate failed the long requests of class ")
    assert "HalvesDisagree" in {finding.reason for finding in report.findings}


def test_long_requests_that_fail_in_one_half_only_forbid_a_pass_and_are_no_fail() -> None:
    recorder = crossed(CROSS, EQUAL, gain=0.6, fails=long_ones_fail_on("B"))
    for of_class in recorder.windows[SECOND_HALF].classes.values():
        of_class.failing.clear()
        of_class.arms["baseline"].failed.clear()
        of_class.arms["baseline"].completed = of_class.admitted
    report = report_of(recorder, LENIENT)
    assert (report.verdict, report.reason) == ("Inconclusive", "LongRequestsFailed")
    assert "It isn't proven in each half by itself." in report.message


def test_arms_that_both_fail_everything_in_one_half_are_not_equal_there() -> None:
    rules = Rules(criteria=(NO_ERRORS,), crossover=True)
    recorder = crossed(rules, EQUAL, halves=(1200, 0))
    recorder.windows[SECOND_HALF] = Window(id=SECOND_HALF)
    for i in range(600):
        recorder.pair(SECOND_HALF, 2_000_000 + i // 2, {"baseline": math.inf, "candidate": math.inf})
    report = report_of(recorder, rules)
    assert [half.outcome for half in report.criteria[0].halves] == ["Pass", "Pass"]
    assert (report.verdict, report.reason) == ("Inconclusive", "BaselineFailed")
    assert "600 of 600 pairs of one half" in report.message


def test_a_candidate_that_fails_the_longest_in_one_half_only_does_not_pass() -> None:
    """8 % of the tokens of the second half are 4 % of the run's, which alone would be overlooked."""
    recorder = crossed(CROSS, EQUAL, halves=(1200, 1176))
    for i in range(24):
        times = {"baseline": 0.4, "candidate": math.inf}
        recorder.pair(SECOND_HALF, 2_000_000 + 20 * i, times, size=15_000)
    report = report_of(recorder, LENIENT)
    assert (report.verdict, report.reason) == ("Inconclusive", "LongRequestsFailed")
    assert report.message.startswith("In the second half alone: The candidate failed ")
    assert all(finding.group == "Open" for finding in report.findings)


@pytest.mark.parametrize(("number", "name"), [(1, "first"), (SECOND_HALF, "second")])
@pytest.mark.parametrize(
    ("flag", "reason"), [(FlagReason.LAGGED, "MirrorOverloaded"), (FlagReason.DISPATCH_SKEW, "ArmsOutOfStep")]
)
def test_a_half_whose_pairs_are_flagged_is_not_outweighed_by_the_other(
    flag: FlagReason, reason: str, number: int, name: str
) -> None:
    recorder = crossed(CROSS, EQUAL)
    recorder.windows[number].classes["default"].flagged[flag.value] = Amount(requests=420, bytes=420_000)
    report = report_of(recorder, CROSS)
    assert (report.verdict, report.reason) == ("Inconclusive", reason)
    assert report.message.startswith(f"In the {name} half alone: 420 of 1200 pairs of the run (35.0%)")
    assert report_of(recorder, STAY).verdict == "Pass", "17.5 % of the whole"


def test_a_half_that_shed_too_much_is_not_made_up_for_by_a_longer_one() -> None:
    recorder = crossed(CROSS, EQUAL, halves=(2100, 490))
    recorder.drop(SECOND_HALF, "Shed", 210)
    report = report_of(recorder, CROSS)
    assert (report.verdict, report.reason) == ("Inconclusive", "LowCoverage")
    assert report.message.startswith("In the second half alone: Only 70.0% of the selected requests of the run became")
    assert report_of(recorder, STAY).verdict == "Pass", "92.5 % of the whole"


def test_what_one_half_lost_is_held_against_what_that_half_selected() -> None:
    recorder = crossed(CROSS, EQUAL)
    assert report_of(recorder, CROSS).verdict == "Pass", "the other half's copies are not lost"
    lost = recorder.merged(sampled=Amount(requests=18, bytes=72_000))
    report = judge(CROSS, lost, facts(recorder))
    assert (report.verdict, report.reason) == ("Inconclusive", "EvidenceLost")
    assert report.message.startswith("In the first half alone: 18 of 1218 selected requests")
    assert judge(STAY, lost, facts(recorder)).verdict == "Pass", "0.7 % of the whole"
    assert judged_again(unpacked_report(*packed_report(report))) == report


def test_an_unsound_half_takes_no_fail_away() -> None:
    recorder = crossed(CROSS, EQUAL, gain=1.8)
    recorder.windows[SECOND_HALF].classes["default"].flagged["Lagged"] = Amount(requests=420, bytes=420_000)
    recorder.drop(SECOND_HALF, "Shed", 600)
    report = report_of(recorder, CROSS)
    assert (report.verdict, report.reason) == ("Fail", "CriterionFailed")
    assert {"LowCoverage", "MirrorOverloaded"} <= {finding.reason for finding in report.findings}


@pytest.mark.parametrize("final", [True, False])
def test_what_died_in_one_half_is_no_loss_of_the_other(final: bool) -> None:
    recorder = crossed(CROSS, EQUAL, halves=(300, 200))
    of_class, one = recorder.windows[1].classes["default"], Amount(requests=7, bytes=7000)
    of_class.received, of_class.admitted, of_class.in_flight = of_class.received + one, of_class.admitted + one, one
    snapshot = recorder.evidence()
    dead = () if final else (identity(snapshot.source),)
    evidence = merged([snapshot], [recorder.capture()], dead=dead, final=final)
    assert evidence.stranded["default"] == one
    first, second = apart(CROSS, evidence)
    assert first.funnel.dropped["MirrorLost"].requests == 7
    assert not second.funnel.drops.requests
    assert [half.funnel.selected.requests for half in (first, second)] == [307, 200]


def test_the_bounds_of_the_whole_are_the_outer_ones_and_its_difference_the_mean_of_the_halves() -> None:
    recorder = crossed(CROSS, UNEQUAL, halves=(1500, 700))
    for result in outcomes(CROSS, recorder.merged(), facts(recorder)):
        first, second = result.halves
        assert result.pairs == first.pairs + second.pairs == 2200
        assert result.difference == pytest.approx((_known(first.difference) + _known(second.difference)) / 2)
        assert result.lower == min(_known(first.lower), _known(second.lower))
        assert result.upper == max(_known(first.upper), _known(second.upper))


def _known(value: float | None) -> float:
    assert value is not None
    return value


def test_the_second_warm_up_is_no_evidence() -> None:
    recorder = crossed(CROSS, EQUAL)
    before = recorder.merged()
    recorder.windows[SECOND_WARM_UP] = Window(id=SECOND_WARM_UP)
    recorder.pair(SECOND_WARM_UP, 1_000_500, {"baseline": 0.1, "candidate": math.inf})
    after = recorder.merged()
    assert after.warm_again == 1_000_500
    assert msgspec.structs.replace(after, warm_again=None) == before


def test_halves_add_up_to_what_is_counted() -> None:
    evidence = crossed(CROSS, EQUAL, halves=(300, 200)).merged()
    assert [half.pairs for half in halves_of(evidence)] == [300, 200]
    assert evidence.pairs == 500


def test_a_report_with_halves_can_be_judged_again() -> None:
    report = report_of(crossed(CROSS, UNEQUAL, gain=0.6), CROSS)
    stored = unpacked_report(*packed_report(report))
    assert stored == report
    assert judged_again(stored) == report


def test_halves_that_are_too_much_for_one_object_are_kept_in_coarser_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of(crossed(CROSS, EQUAL, gain=0.6), CROSS)
    _, whole = packed_report(report)
    monkeypatch.setattr(module, "EVIDENCE_BOUND", len(whole) - 1)
    readable, evidence = packed_report(report)
    assert len(evidence) < len(whole)
    stored = unpacked_report(readable, evidence)
    for kept, half in zip(stored.evidence.halves, report.evidence.halves, strict=True):
        for name, series in half.pairs["candidate"].items():
            coarser = kept.pairs["candidate"][name]
            assert coarser.level > series.level
            assert (coarser.pairs, sum(s for _, s in coarser.sums.values())) == (
                series.pairs,
                sum(s for _, s in series.sums.values()),
            )
    assert judged_again(stored).verdict == report.verdict


def test_how_many_pairs_are_needed_counts_both_halves_until_the_first_is_over() -> None:
    rules = Rules(
        criteria=(Criterion(name="slo", metric="WithinSLO", require="NotWorse", margin=0.02),), crossover=True
    )
    (early,) = _results(crossed(rules, EQUAL, halves=(150, 0)), rules)
    assert early.needed >= 2 * 50 + 150, "as many again in the second half"
    (late,) = _results(crossed(rules, EQUAL, halves=(150, 150)), rules)
    assert late.needed == 0, "the first half is over: no number of pairs helps"
    assert "in the first half 150 of at least 200 pairs" in criterion_sentence(late)
    (going_on,) = _results(crossed(rules, EQUAL, halves=(1200, 150)), rules)
    assert going_on.needed == going_on.halves[1].needed >= 50


def _results(recorder: Recorder, rules: Rules) -> tuple[CriterionResult, ...]:
    return outcomes(rules, recorder.merged(), facts(recorder))
