import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.config import Indicator
from shadowrun_mirror.count import Counts, Pair
from shadowrun_mirror.evidence import Amount, Evidence
from shadowrun_mirror.measure import ArmResult
from shadowrun_mirror.reasons import DropReason, ExcludeReason, FailureReason

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
