import math
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.config import Indicator
from shadowrun_mirror.count import Counts, Pair
from shadowrun_mirror.evidence import Amount, Evidence, Lineage, Matches, Wins
from shadowrun_mirror.histogram import Histogram
from shadowrun_mirror.join import outcome_of
from shadowrun_mirror.measure import ArmResult, sooner
from shadowrun_mirror.reasons import DropReason, ExcludeReason, FailureReason, FlagReason, Likeness
from shadowrun_mirror.shapes import Tokens

from tests.funnel import assert_adds_up

pytestmark = pytest.mark.mirror

ARMS = ("baseline", "candidate", "control")
INDICATORS = (
    Indicator(criterion="ttft", metric="TTFT", baseline_limit_s=1.0, challenger_limit_s=1.0),
    Indicator(criterion="long-only", metric="Failures", traffic_class="long"),
    Indicator(criterion="no-limits-yet", metric="E2E"),
)


def counts() -> Counts:
    return Counts("run-uid", "pod", "pod-uid", "epoch")


def snapshot(counted: Counts) -> Evidence:
    """As a reader gets it."""
    evidence = Evidence.decode(msgspec.json.encode(counted.snapshot(0.0, 1, True, False)))
    assert_adds_up(evidence)
    return evidence


def pair(window: int = 1, name: str = "default", size: int = 10, at: float = 100.0) -> Pair:
    return Pair(
        window=window,
        traffic_class=name,
        size=size,
        arms=ARMS,
        indicators=INDICATORS,
        complete_at=at,
        admitted_at=at,
        admitted_utc=at,
        block_s=2,
    )


def result(failure: FailureReason | None = None, seconds: float = 0.5, written: float | None = 100.0) -> ArmResult:
    value = seconds if failure is None else math.inf
    return ArmResult(
        failure=failure,
        ttft=value,
        tpot=None if failure is None else math.inf,
        e2e=value,
        within_slo=failure is None,
        tokens=None,
        written_at=written,
    )


results = st.builds(
    result,
    st.none() | st.sampled_from(list(FailureReason)),
    st.floats(0.001, 10),
    st.none() | st.floats(100, 200),
)
steps = st.one_of(
    st.tuples(
        st.just("lost"), st.integers(0, 2), st.sampled_from(["default", "long"]), st.integers(0, 999),
        st.sampled_from([*ExcludeReason, *DropReason]),
    ),
    st.tuples(st.just("admitted"), st.integers(0, 2), st.sampled_from(["default", "long"]), st.integers(0, 999)),
    st.tuples(st.just("ended"), st.integers(0, 100), st.tuples(results, results, results)),
)  # fmt: skip


@given(st.lists(steps, max_size=40))
def test_it_adds_up_after_every_step_of_any_run(run: list[tuple[object, ...]]) -> None:
    counted, open_pairs = counts(), []
    for step in run:
        match step:
            case ("lost", int(window), str(name), int(size), reason):
                counted.lost(window, name, size, reason)  # type: ignore[arg-type]
            case ("admitted", int(window), str(name), int(size)):
                open_pairs.append(pair(window, name, size))
                counted.admitted(open_pairs[-1])
            case ("ended", int(index), tuple(outcomes)) if open_pairs:
                ended = open_pairs.pop(index % len(open_pairs))
                counted.ended(ended, dict(zip(ARMS, outcomes, strict=True)), 200.0)
        snapshot(counted)
    in_flight = sum(c.in_flight.requests for w in snapshot(counted).windows.values() for c in w.classes.values())
    assert in_flight == len(open_pairs)


def test_all_results_of_a_pair_appear_at_once_under_its_own_window_and_block() -> None:
    counted = counts()
    admitted = pair(window=3, at=101.0)
    counted.admitted(admitted)
    before = snapshot(counted).windows[3]
    assert before.first_pair is None
    assert before.classes["default"].arms["control"].e2e.count == 0
    outcome = {
        "baseline": result(seconds=2.0, written=101.2),
        "candidate": result(written=101.1),
        "control": result(FailureReason.TIMEOUT, written=101.3),
    }
    counted.ended(admitted, outcome, 150.0)
    window = snapshot(counted).windows[3]
    assert (window.first_pair, window.last_pair) == (150.0, 150.0)
    assert set(window.pairs["candidate"]) == {"ttft"}
    assert window.pairs["candidate"]["ttft"].sums == {50: (1, 1)}  # admitted at 101, blocks of two seconds
    assert window.pairs["control"]["ttft"].sums == {50: (1, 0)}
    default = window.classes["default"]
    assert {name: arm.sent_first for name, arm in default.arms.items()} == {"baseline": 0, "candidate": 1, "control": 0}
    assert default.forward.total == pytest.approx(0.3)


def test_who_answered_first_is_counted_for_each_challenger_and_class() -> None:
    counted = counts()
    outcomes: list[dict[str, ArmResult]] = [
        {"baseline": result(seconds=1.0), "candidate": result(seconds=0.5), "control": result(seconds=1.0)},
        {"baseline": result(seconds=1.0), "candidate": result(FailureReason.TIMEOUT), "control": result(seconds=2.0)},
        {"baseline": result(FailureReason.EMPTY), "candidate": result(FailureReason.EMPTY), "control": result()},
    ]
    for outcome in outcomes:
        admitted = pair(name="long")
        counted.admitted(admitted)
        counted.ended(admitted, outcome, 150.0)
    wins = snapshot(counted).windows[1].classes["long"].wins
    assert wins == {"candidate": Wins(pairs=3, won=1, lost=1), "control": Wins(pairs=3, won=1, lost=1)}


def test_how_answers_compare_is_counted_for_each_challenger_and_class_and_in_blocks_where_it_says_anything() -> None:
    counted = counts()
    for at, candidate, control in (
        (100.0, Likeness.MATCH, Likeness.MATCH),
        (101.0, Likeness.VALUE, Likeness.MATCH),
        (104.0, Likeness.FAILED, Likeness.MATCH),
        (104.0, Likeness.BOTH_FAILED, None),
    ):
        admitted = pair(name="long", at=at)
        counted.admitted(admitted)
        found = [msgspec.structs.replace(result(), likeness=likeness) for likeness in (None, candidate, control)]
        ended(counted, admitted, *found)
    window = snapshot(counted).windows[1]
    matches = window.classes["long"].matches
    assert matches["candidate"] == Matches(pairs={"Match": 1, "Value": 1, "Failed": 1, "BothFailed": 1})
    assert (matches["candidate"].matched, matches["candidate"].compared) == (1, 3)
    assert matches["control"] == Matches(pairs={"Match": 3})
    assert window.differing["candidate"].sums == {50: (2, -1), 52: (1, -1)}
    assert window.differing["control"].sums == {50: (2, 0), 52: (1, 0)}


def test_where_one_arm_has_no_first_token_the_end_of_the_answer_decides_who_was_first() -> None:
    streamed, buffered = result(seconds=1.0), msgspec.structs.replace(result(seconds=0.5), ttft=None)
    assert (sooner(streamed, buffered), sooner(buffered, streamed)) == (1, -1)


def test_pairs_weigh_by_their_size_where_an_indicator_asks_for_it() -> None:
    weighed = (
        Indicator(criterion="plain", metric="Failures"),
        Indicator(criterion="heavy", metric="Failures", weight="Tokens", heaviest=1000),
        Indicator(
            criterion="margin",
            metric="TTFT",
            weight="Tokens",
            heaviest=1000,
            baseline_limit_s=0.4,
            challenger_limit_s=0.6,
        ),
        Indicator(criterion="not-yet", metric="Failures", weight="Tokens"),
    )
    counted = counts()
    for size, failure in ((500, None), (4000, FailureReason.TIMEOUT), (1, None)):
        one = msgspec.structs.replace(pair(size=size), indicators=weighed)
        counted.admitted(one)
        counted.ended(one, {"baseline": result(), "candidate": result(failure), "control": result()}, 100.0)
    found = snapshot(counted).windows[1].pairs
    assert set(found["candidate"]) == {"plain", "heavy", "margin"}
    assert found["candidate"]["plain"] == BlockSeries(sums={50: (3, -1)})
    assert found["candidate"]["heavy"] == BlockSeries(
        sums={50: (1501, -1000)}, weighed=3, differing=1000, squares=10**6
    )
    assert found["candidate"]["margin"] == BlockSeries(
        sums={50: (1501, 501)}, weighed=3, even=1501, differing=501, squares=250_001
    )
    assert found["control"]["margin"].sums == {50: (1501, 1501)}


def test_what_one_arm_failed_alone_is_kept_by_blocks_in_requests_and_bytes() -> None:
    timeout = FailureReason.TIMEOUT
    counted = counts()
    for window, size, theirs, ours in (
        (1, 100, None, timeout),
        (1, 30, None, timeout),
        (1, 7, timeout, None),
        (1, 9, timeout, timeout),
        (1, 9, None, None),
        (0, 50, None, timeout),
    ):
        one = pair(window=window, size=size)
        counted.admitted(one)
        counted.ended(one, {"baseline": result(theirs), "candidate": result(ours), "control": result(theirs)}, 100.0)
    windows = snapshot(counted).windows
    assert windows[1].classes["default"].failing == {"candidate": BlockSeries(sums={50: (1, 123)})}
    assert windows[0].classes["default"].failing == {}


def test_an_indicator_of_a_class_counts_pairs_of_that_class_only() -> None:
    counted = counts()
    for name in ("long", "default", "long"):
        admitted = pair(name=name)
        counted.admitted(admitted)
        counted.ended(admitted, {arm: result() for arm in ARMS}, 150.0)
    series = snapshot(counted).windows[1].pairs["candidate"]
    assert series["long-only"].pairs == 2
    assert series["ttft"].pairs == 3


def test_drops_and_exclusions_are_kept_apart_by_reason_with_their_bytes() -> None:
    counted = counts()
    counted.lost(1, "default", 5, DropReason.SHED)
    counted.lost(1, "default", 6, DropReason.SHED)
    counted.lost(1, "default", 7, ExcludeReason.NOT_SELECTED)
    default = snapshot(counted).windows[1].classes["default"]
    assert default.dropped == {"Shed": Amount(requests=2, bytes=11)}
    assert default.excluded == {"NotSelected": Amount(requests=1, bytes=7)}
    assert default.received == Amount(requests=3, bytes=18)


def ended(counted: Counts, admitted: Pair, *outcomes: ArmResult) -> None:
    counted.admitted(admitted)
    counted.ended(admitted, dict(zip(ARMS, outcomes, strict=True)), 150.0)


def flags(counted: Counts) -> dict[str, int]:
    return {name: amount.requests for name, amount in snapshot(counted).windows[1].classes["default"].flagged.items()}


def test_a_pair_is_flagged_with_what_was_known_when_it_was_admitted_and_what_its_results_say() -> None:
    counted = counts()
    known = msgspec.structs.replace(pair(size=7), flags=(FlagReason.QUEUED, FlagReason.AFTER_GAP))
    usage = Tokens(prompt=1, cached=0, output=3)
    ended(
        counted, known, result(written=100.0), msgspec.structs.replace(result(written=100.02), tokens=usage), result()
    )
    ended(counted, pair(), result(), result(), result())
    assert flags(counted) == {"Queued": 1, "AfterGap": 1, "DispatchSkew": 1, "TokenSourcesDiffer": 1}
    assert snapshot(counted).windows[1].classes["default"].flagged["Queued"].bytes == 7


@pytest.mark.parametrize(("apart", "skewed"), [(0.0, {}), (0.009, {}), (0.011, {"DispatchSkew": 1})])
def test_arms_written_to_far_apart_are_skewed(apart: float, skewed: dict[str, int]) -> None:
    counted = counts()
    ended(counted, pair(), result(written=100.0), result(written=100.0 + apart), result(written=None))
    assert flags(counted) == skewed


def test_a_failed_arm_has_no_token_source_to_differ() -> None:
    counted = counts()
    usage = msgspec.structs.replace(result(), tokens=Tokens(prompt=1, cached=0, output=3))
    ended(counted, pair(), usage, result(FailureReason.STREAM_CUT), usage)
    assert flags(counted) == {}


def test_a_pair_with_a_late_stamp_is_flagged() -> None:
    asked: list[float] = []

    def late_at(stamps: Sequence[float]) -> bool:
        asked.extend(stamps)
        return True

    counted = Counts("run-uid", "pod", "pod-uid", "epoch", Histogram(), late_at)
    began = msgspec.structs.replace(result(written=101.0), ttft=0.5, e2e=2.0)
    buffered = msgspec.structs.replace(result(written=102.0), ttft=None, e2e=3.0)
    ended(counted, pair(at=100.0), began, buffered, result(FailureReason.TIMEOUT, written=103.0))
    assert flags(counted)["Lagged"] == 1
    assert asked == [101.0, 101.5, 103.0, 102.0, 105.0, 103.0]


def test_gap_and_time_per_token_are_counted_where_they_are_known() -> None:
    counted = counts()
    measured = msgspec.structs.replace(result(), gap=0.25, per_token=0.125)
    ended(counted, pair(), measured, result(), measured)
    arms = snapshot(counted).windows[1].classes["default"].arms
    assert [arms[name].gap.total for name in ARMS] == [0.25, 0.0, 0.25]
    assert [arms[name].per_token.count for name in ARMS] == [1, 0, 1]


@pytest.mark.parametrize("first", ["pair", "log"])
def test_the_primarys_outcome_is_counted_in_the_class_of_its_pair_whichever_comes_first(first: str) -> None:
    counted = counts()
    admitted = msgspec.structs.replace(pair(name="long", size=9), request_mark=77)
    outcome = outcome_of(200, "-", 0.5)
    if first == "log":
        assert not counted.primary_ended(77, outcome)
        assert snapshot(counted).windows == {}
    counted.admitted(admitted)
    if first == "pair":
        assert counted.primary_ended(77, outcome)
    counted.primary_ended(78, outcome)
    primary = snapshot(counted).windows[1].classes["long"].primary
    assert primary.answered == Amount(requests=1, bytes=9)
    assert primary.first_byte.total == 0.5
    assert (primary.refused, primary.failed, primary.cut) == (Amount(), Amount(), Amount())


def test_pairs_without_a_request_id_wait_for_no_outcome() -> None:
    counted = counts()
    counted.admitted(pair())
    assert not counted.primary_ended(0, outcome_of(200, "-", None))


def test_lineage_adds_up_in_its_window() -> None:
    counted = counts()
    counted.traced(1, Lineage(openings=1, conversations=1))
    counted.traced(1, Lineage(continued=1))
    counted.traced(2, Lineage(broken=1))
    windows = snapshot(counted).windows
    assert windows[1].lineage == Lineage(openings=1, conversations=1, continued=1)
    assert windows[2].lineage == Lineage(broken=1)


def test_the_lag_of_the_process_is_part_of_the_evidence() -> None:
    lag = Histogram()
    counted = Counts("run-uid", "pod", "pod-uid", "epoch", lag)
    lag.add(0.25)
    assert snapshot(counted).lag.total == 0.25


def test_what_breaks_on_one_pair_loses_no_other() -> None:
    counted = counts()
    results = {arm: result() for arm in ARMS}
    for broken in (False, True, False):
        counted.admitted(one := pair())
        counted.ended(one, {} if broken else results, 100.0)
    with pytest.raises(KeyError):
        counted.snapshot(0.0, 1, True, False)
    evidence = counted.snapshot(0.0, 1, True, False)
    assert evidence.windows[1].classes["default"].arms["baseline"].completed.requests == 2


@pytest.mark.parametrize("missing", [*ARMS, None])
def test_a_pair_that_breaks_is_counted_nowhere_and_stays_in_flight(missing: str | None) -> None:
    """It lacks an arm's result, or (None) its block can't be told."""
    counted = counts()
    counted.admitted(one := pair())
    before = snapshot(counted)
    broken = one if missing else msgspec.structs.replace(one, block_s=0)
    counted.ended(broken, {arm: result() for arm in ARMS if arm != missing}, 100.0)
    with pytest.raises((KeyError, ZeroDivisionError)):
        counted.snapshot(0.0, 1, True, False)
    assert snapshot(counted).windows == before.windows


def test_a_usage_that_does_not_tell_the_output_adds_none() -> None:
    counted = counts()
    told = msgspec.structs.replace(result(), tokens=Tokens(prompt=7, cached=0, output=None))
    counted.admitted(one := pair())
    counted.ended(one, dict.fromkeys(ARMS, told), 100.0)
    usage = snapshot(counted).windows[1].classes["default"].arms["baseline"].usage
    assert (usage.prompt_tokens, usage.output_tokens) == (7, 0)
