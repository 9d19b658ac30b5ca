"""Other ways to look faster than one is: whatever a candidate leaves out, it never passes by it."""

import math
import random
from collections.abc import Callable

import msgspec
import pytest
from shadowrun_mirror.evidence import Amount, Usage
from shadowrun_mirror.reasons import FailureReason
from shadowrun_operator.judge.rules import Criterion, Rules
from shadowrun_operator.judge.thresholds import indicators

from tests.unit.judge.synthetic import Recorder, faster, judged, recorded
from tests.unit.judge.synthetic import slower as slower_arm
from tests.unit.judge.test_survivors import RULES, conversations

pytestmark = pytest.mark.verdict

PAIRS = 1500
Trick = Callable[[int, float], bool]
"""Whether a request of so many tokens is left out; the second argument is its rank among all, from 0 to 1."""


def longest(_tokens: int, rank: float) -> bool:
    return rank >= 0.9


def all_but_short(tokens: int, _rank: float) -> bool:
    return tokens > 4000


def run(trick: Trick, *, jointly: bool = False, per_token: float) -> Recorder:
    """The candidate needs `per_token` times as long per prompt token and fails what the trick leaves out; or, jointly,
    nobody gets those."""
    draw, recorder = random.Random(29), Recorder()
    for number, count in ((0, 400), (1, PAIRS)):
        recorder.indicators = indicators(RULES, recorder.windows[0]) if number else ()
        tokens = conversations(draw, count)
        ranks = {length: i / count for i, length in enumerate(sorted(tokens))}
        for i, length in enumerate(tokens):
            baseline, candidate = (
                0.05 + share * length / 8000 * math.exp(draw.gauss(0, 0.15)) for share in (1.0, per_token)
            )
            left_out = bool(number) and trick(length, ranks[length])
            if left_out and jointly:
                recorder.drop(number, "Shed", 1, size=4 * length)
                continue
            ttft = {"baseline": baseline, "candidate": math.inf if left_out else candidate}
            recorder.pair(number, 5000 + i // 2, ttft, size=4 * length)
    return recorder


SPEEDS = pytest.mark.parametrize("per_token", [1.25, 0.5])


@SPEEDS
def test_shedding_the_long_ones_leaves_too_little_to_judge(per_token: float) -> None:
    report = judged(run(longest, jointly=True, per_token=per_token), RULES)
    assert report.verdict != "Pass"
    assert "LowCoverage" in [f.reason for f in report.findings]
    if per_token < 1:
        assert report.verdict == "Inconclusive"


@SPEEDS
@pytest.mark.parametrize("reason", [FailureReason.STREAM_CUT, FailureReason.EMPTY, FailureReason.HTTP_4XX])
def test_no_way_of_not_answering_the_long_ones_is_overlooked(reason: FailureReason, per_token: float) -> None:
    recorder = run(longest, per_token=per_token)
    candidate = recorder.windows[1].classes["default"].arms["candidate"]
    candidate.failed = {reason.value: candidate.failed["Timeout"]}
    report = judged(recorder, RULES)
    assert (report.verdict, report.reason) == ("Fail", "DroppedHardRequests")


@SPEEDS
@pytest.mark.parametrize("factor", [0.0, 0.1, 10.0])
def test_wrong_counts_of_tokens_change_nothing(factor: float, per_token: float) -> None:
    recorder = run(longest, per_token=per_token)
    honest = judged(recorder, RULES)
    candidate = recorder.windows[1].classes["default"].arms["candidate"]
    counted = candidate.usage
    candidate.usage = Usage(
        answers=counted.answers if factor else 0,
        body_bytes=counted.body_bytes if factor else 0,
        prompt_tokens=round(factor * counted.prompt_tokens),
    )
    report = judged(recorder, RULES)
    assert (report.verdict, report.reason, report.message) == ("Fail", "DroppedHardRequests", honest.message)
    assert msgspec.json.encode(report.funnel) == msgspec.json.encode(honest.funnel)


TPOT = Criterion(name="streams-faster", metric="TPOT", quantile=0.5, require="Better")
BY_TPOT = Rules(criteria=(TPOT,))
TTFT_ONLY = Rules(criteria=(msgspec.structs.replace(TPOT, name="starts-faster", metric="TTFT"),))


def streamed(rules: Rules, *, hidden: int = 0, counted: float = 1.0, slower: bool = False) -> Recorder:
    """Answers of 100 tokens. The candidate streams in 60 % of the time (or in 160 %), `hidden` of its answers have no
    TPOT, and it reports `counted` times as many tokens as it made."""
    recorder = recorded(rules, candidate=slower_arm if slower else faster)
    arms = recorder.windows[1].classes["default"].arms
    for arm, tokens in (("baseline", 100), ("candidate", round(100 * counted))):
        arms[arm].usage.output_tokens = tokens * arms[arm].usage.answers
    for value in sorted(arms["candidate"].tpot.bins, reverse=True):  # its slowest, as a cheat would
        taken = min(hidden, arms["candidate"].tpot.bins[value])
        arms["candidate"].tpot.bins[value] -= taken
        hidden -= taken
    return recorder


@pytest.mark.parametrize(("hidden", "verdict"), [(0, "Pass"), (6, "Pass"), (7, "Inconclusive"), (300, "Inconclusive")])
def test_answers_without_a_tpot_are_not_left_out_of_it_unseen(hidden: int, verdict: str) -> None:
    report = judged(streamed(BY_TPOT, hidden=hidden), BY_TPOT)
    assert report.verdict == verdict
    if verdict == "Inconclusive":
        assert report.reason == "TPOTMissing"
        assert f"a TPOT for {600 - hidden} answers of all classes together and the baseline for 600" in report.message
    assert judged(streamed(TTFT_ONLY, hidden=hidden), TTFT_ONLY).verdict == "Pass"


@pytest.mark.parametrize(
    ("counted", "verdict"),
    [
        (0.5, "Inconclusive"),
        (0.79, "Inconclusive"),
        (0.8, "Pass"),
        (1.25, "Pass"),
        (1.26, "Inconclusive"),
        (10.0, "Inconclusive"),
    ],
)
def test_more_tokens_than_the_baseline_reports_make_no_candidate_faster(counted: float, verdict: str) -> None:
    report = judged(streamed(BY_TPOT, counted=counted), BY_TPOT)
    assert report.verdict == verdict
    if verdict == "Inconclusive":
        assert report.reason == "AnswerLengthsDiffer"
        assert report.message.startswith("Tokens per answer are not comparable")
        assert f"{100 * counted:.1f} output tokens" in report.message
    assert judged(streamed(TTFT_ONLY, counted=counted), TTFT_ONLY).verdict == "Pass"


@pytest.mark.parametrize(("name", "verdict"), [("a", "Inconclusive"), ("b", "Pass")])
def test_tokens_are_compared_in_the_class_that_a_criterion_on_tpot_names(name: str, verdict: str) -> None:
    rules = Rules(criteria=(msgspec.structs.replace(TPOT, traffic_class="a"),))
    recorder = recorded(rules, names=("a", "b"), pairs=1200)
    for of_class, counted in recorder.windows[1].classes.items():
        counted.arms["baseline"].usage.output_tokens = 100 * 600
        counted.arms["candidate"].usage.output_tokens = (300 if of_class == name else 100) * 600
    assert judged(recorder, rules).verdict == verdict


@pytest.mark.parametrize(("hidden", "counted"), [(300, 1.0), (0, 10.0), (300, 0.1)])
def test_no_count_of_tokens_takes_a_fail_away(hidden: int, counted: float) -> None:
    assert judged(streamed(BY_TPOT, hidden=hidden, counted=counted, slower=True), BY_TPOT).verdict == "Fail"


SLO_OF_CHAT = Criterion(name="slo", metric="WithinSLO", require="NotWorse", margin=0.05)


def by_slo(*limited: str, of: str = "") -> Rules:
    """A criterion on WithinSLO of a class (of all: ""), where the SLOs of these classes limit TPOT."""
    return Rules(criteria=(msgspec.structs.replace(SLO_OF_CHAT, traffic_class=of),), tpot_limits=limited)


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        (by_slo("a", "default"), "Inconclusive"),
        (by_slo("a", of="a"), "Inconclusive"),
        (by_slo("default"), "Pass"),
        (by_slo("default", of="a"), "Pass"),
        (by_slo(), "Pass"),
    ],
)
@pytest.mark.parametrize(
    ("trick", "reason"),
    [
        ({"counted": 3}, "AnswerLengthsDiffer"),
        ({"hidden": 50}, "TPOTMissing"),
        ({"flagged": 20}, "TokenSourcesDiffer"),
    ],
)
def test_a_limit_on_tpot_in_an_slo_is_watched_like_tpot_itself(
    trick: dict[str, int], reason: str, rules: Rules, verdict: str
) -> None:
    recorder = recorded(rules, names=("a", "default"), pairs=1200)
    for of_class in recorder.windows[1].classes.values():
        for arm in of_class.arms.values():
            arm.usage.output_tokens = 100 * arm.usage.answers
    cheated = recorder.windows[1].classes["a"]
    ours = cheated.arms["candidate"]
    ours.usage.output_tokens *= trick.get("counted", 1)
    ours.tpot.bins = {0: ours.tpot.count - trick.get("hidden", 0)}
    cheated.flagged = {"TokenSourcesDiffer": Amount(requests=trick.get("flagged", 0), bytes=1)}
    report = judged(recorder, rules)
    assert report.verdict == verdict
    assert (reason in [f.reason for f in report.findings]) == (verdict == "Inconclusive")


@SPEEDS
def test_answering_only_short_ones_fails(per_token: float) -> None:
    assert judged(run(all_but_short, per_token=per_token), RULES).verdict == "Fail"
