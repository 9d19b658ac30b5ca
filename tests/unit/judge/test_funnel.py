"""The funnel adds up in requests and tokens, whatever the evidence, while a run is active and at its end."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shadowrun_mirror.evidence import Amount, CaptureEvidence, CaptureWindow, ClassEvidence, Evidence
from shadowrun_operator.judge.funnel import ArmCounts, Count, Funnel, Ratio, funnel
from shadowrun_operator.judge.merge import inconsistencies, merged
from shadowrun_operator.judge.rules import Rules
from shadowrun_operator.judge.summary import classes_status, dropped_status, failures_status, funnel_status

from tests.unit.evidence.evidences import ARMS, evidences
from tests.unit.judge.synthetic import Recorder, recorded, source

pytestmark = pytest.mark.verdict

routed = st.builds(
    CaptureWindow,
    **{
        kind: st.builds(Amount, requests=st.integers(0, 200), bytes=st.integers(0, 10**6))
        for kind in ("sampled", "oversized", "plain", "paused")
    },
)


def capture(windows: dict[int, CaptureWindow], sequence: int = 1) -> CaptureEvidence:
    return CaptureEvidence(
        run_uid="run",
        source=source("capture-0", sequence),
        directive_version=1,
        copying=True,
        active_requests=0,
        windows=windows,
    )


captures = st.dictionaries(st.integers(0, 3), routed, max_size=4).map(capture)


def assert_adds_up(found: Funnel) -> None:
    assert found.seen == found.not_selected + found.selected
    assert found.selected == found.drops + found.in_transit + found.admitted
    for arm in found.arms.values():
        assert found.admitted == arm.completed + arm.failures + arm.in_flight
    for part in found.classes:
        assert part.selected == sum(part.dropped.values(), part.admitted)
        for arm in part.arms.values():
            assert part.admitted == arm.completed + arm.failures + arm.in_flight
            assert 0 <= arm.within_slo.tokens <= arm.completed.tokens
            assert 0 <= arm.within_slo.requests <= arm.completed.requests
    assert sum((c.admitted for c in found.classes), Count()) == found.admitted
    assert all(n >= 0 for n in numbers(found))


def numbers(found: Funnel) -> list[int]:
    counts = [found.seen, found.not_selected, found.in_transit, found.admitted, *found.dropped.values()]
    for part in found.classes:
        counts += [*part.excluded.values(), *part.dropped.values()]
        for arm in part.arms.values():
            counts += [arm.completed, arm.within_slo, arm.in_flight, *arm.failed.values()]
    return [n for count in counts for n in (count.requests, count.tokens)]


@settings(max_examples=60)
@given(evidences("mirror-0"), evidences("mirror-1"), captures, st.booleans(), st.booleans(), st.booleans())
def test_the_funnel_adds_up(
    first: Evidence, second: Evidence, copies: CaptureEvidence, died: bool, final: bool, superset: bool
) -> None:
    dead = ["uid-mirror-1/e"] if died else []
    evidence = merged([first, second], [copies], dead=dead, final=final)
    assert not inconsistencies(evidence, ARMS)
    found = funnel(evidence, superset=superset)
    assert_adds_up(found)
    assert found.seen.requests == funnel(evidence).seen.requests
    assert superset or found.estimated == Count()
    if final:
        assert found.in_transit == Count()
        assert all(arm.in_flight == Count() for arm in found.arms.values())
        assert found.pairs.requests == evidence.pairs


@settings(max_examples=40)
@given(evidences("mirror-0"), evidences("mirror-1"), captures)
def test_the_status_adds_up_too(first: Evidence, second: Evidence, copies: CaptureEvidence) -> None:
    found = funnel(merged([first, second], [copies], final=True))
    shown = funnel_status(found)
    for unit, loss in ((shown.requests, "requests"), (shown.tokens, "tokens")):
        assert unit.seen == unit.not_selected + unit.selected
        assert unit.selected == unit.dropped + unit.in_transit + unit.admitted
        assert all(unit.admitted == arm.completed + arm.failed + arm.in_flight for arm in unit.arms)
        if loss == "requests":
            assert sum(d.requests for d in dropped_status(found)) == unit.dropped
    failed = sum(arm.failed for arm in shown.requests.arms)
    assert sum(f.baseline + f.candidate + f.control for f in failures_status(found)) == failed


@settings(max_examples=30)
@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=6), evidences("a"), evidences("b"))
def test_neither_order_nor_repetition_of_snapshots_matters(order: list[str], a: Evidence, b: Evidence) -> None:
    by_name = {"a": a, "b": b}
    assert merged([by_name[k] for k in order], []) == merged([by_name[k] for k in sorted(set(order))], [])


def test_a_later_snapshot_replaces_an_earlier_one_of_the_same_process() -> None:
    windows = [{1: CaptureWindow(sampled=Amount(requests=n, bytes=n))} for n in (5, 9)]
    evidence = merged([], [capture(windows[1], 2), capture(windows[0], 1)])
    assert evidence.capture.sampled.requests == 9
    assert evidence.captures == 1


def test_the_warm_up_is_kept_apart() -> None:
    recorder = recorded(pairs=10, warm_up=70)
    evidence = recorder.merged()
    assert evidence.pairs == 10
    assert evidence.warm_up.classes["default"].admitted.requests == 70
    assert funnel(evidence).admitted.requests == 10


def test_what_was_in_flight_in_a_dead_mirror_is_dropped_as_mirror_lost() -> None:
    recorder = recorded(pairs=20)
    pending = Amount(requests=3, bytes=12_000)
    part = recorder.windows[1].classes["default"]
    part.received, part.admitted, part.in_flight = part.received + pending, part.admitted + pending, pending
    living = funnel(merged([recorder.evidence()], [recorder.capture()]))
    assert living.arms["candidate"].in_flight.requests == 3
    dead = funnel(merged([recorder.evidence()], [recorder.capture()], dead=["uid-mirror-0/e"]))
    assert dead.dropped == {"MirrorLost": Count(requests=3, tokens=3000)}
    assert dead.admitted.requests == 20


def test_what_left_capture_and_never_arrived_is_in_transit_and_at_the_end_lost() -> None:
    recorder = recorded(pairs=20)
    copies = recorder.capture(sampled=Amount(requests=4, bytes=16_000))
    assert funnel(merged([recorder.evidence()], [copies])).in_transit == Count(requests=4, tokens=4000)
    final = funnel(merged([recorder.evidence()], [copies], final=True))
    assert final.dropped == {"LostInTransit": Count(requests=4, tokens=4000)}


def test_oversized_requests_are_dropped_as_too_large() -> None:
    found = funnel(recorded(pairs=20).merged(oversized=Amount(requests=2, bytes=800_000)))
    assert found.dropped == {"TooLarge": Count(requests=2, tokens=200_000)}


def superset_run() -> Recorder:
    """Of 100 copies the mirrors selected 20."""
    recorder = recorded(pairs=20)
    part = recorder.windows[1].classes["default"]
    part.received += Amount(requests=80, bytes=80 * 1000)
    part.excluded = {"NotSelected": Amount(requests=80, bytes=80 * 1000)}
    return recorder


def test_of_a_superset_only_the_mirrors_share_of_what_they_never_received_counts_as_selected() -> None:
    recorder = superset_run()
    lost = {"sampled": Amount(requests=10, bytes=10_000), "oversized": Amount(requests=5, bytes=1_000_000)}
    found = funnel(recorder.merged(**lost), superset=True)
    assert found.dropped["LostInTransit"].requests == 2
    assert found.dropped["TooLarge"] == Count(requests=1, tokens=125_000)
    assert found.estimated.requests == 3
    assert found.selected.requests == 23
    whole = funnel(recorder.merged(**lost))
    assert (whole.seen, whole.estimated, whole.selected.requests) == (found.seen, Count(), 35)


def test_a_superset_of_which_nothing_was_received_counts_as_selected() -> None:
    evidence = merged([], [capture({1: CaptureWindow(sampled=Amount(requests=7, bytes=700))})], final=True)
    assert funnel(evidence, superset=True).dropped["LostInTransit"].requests == 7


def test_what_came_while_copying_paused_was_not_selected() -> None:
    found = funnel(merged([], [capture({1: CaptureWindow(paused=Amount(requests=7, bytes=700))})], final=True))
    assert (found.seen.requests, found.not_selected.requests, found.paused.requests) == (7, 7, 7)


def test_copies_of_a_proxy_that_is_not_ours_are_seen_as_far_as_they_were_received() -> None:
    found = funnel(merged([superset_run().evidence()], [], final=True), external=True)
    assert (found.seen.requests, found.not_selected.requests, found.selected.requests) == (100, 80, 20)
    assert (found.uncounted, found.in_transit) == (Count(), Count())


@pytest.mark.parametrize("reason", ["QueueTimeout", "ConversationJoinedLate"])
def test_every_reason_of_the_mirrors_is_carried_through(reason: str) -> None:
    recorder = recorded(pairs=20)
    recorder.drop(1, reason, 3)
    assert funnel(recorder.merged()).dropped == {reason: Count(requests=3, tokens=3000)}


def test_copies_that_the_run_never_wanted_are_not_selected() -> None:
    recorder = recorded(pairs=20)
    part = recorder.windows[1].classes["default"]
    part.received += Amount(requests=5, bytes=500)
    part.excluded = {"ModelNotListed": Amount(requests=5, bytes=500)}
    found = funnel(recorder.merged())
    assert found.not_selected == Count(requests=1005, tokens=1_000_125)
    assert found.selected.requests == 20


def test_what_capture_failed_to_count_is_still_seen_and_selected() -> None:
    recorder = recorded(pairs=20)
    found = funnel(merged([recorder.evidence()], [capture({})], final=True))
    assert found.uncounted.requests == 20
    assert found.selected.requests == found.seen.requests == 20


def test_tokens_follow_the_ratio_that_the_baseline_reported() -> None:
    recorder = recorded(pairs=20)
    recorder.windows[1].classes["default"].arms["candidate"].usage.prompt_tokens = 10**9
    found = funnel(recorder.merged())
    assert found.learned
    assert found.admitted.tokens == 20 * 1000


def test_without_any_usage_a_token_is_four_bytes() -> None:
    part = ClassEvidence(received=Amount(requests=1, bytes=402), dropped={"Shed": Amount(requests=1, bytes=402)})
    recorder = recorded(pairs=0, warm_up=0)
    recorder.windows[1].classes["default"] = part
    found = funnel(recorder.merged())
    assert not found.learned
    assert found.selected == Count(requests=1, tokens=101)


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 10**6), st.integers(1, 10**6))
def test_tokens_never_fall_as_bytes_grow(size: int, more: int, tokens: int, of_bytes: int) -> None:
    ratio = Ratio(tokens=tokens, bytes=of_bytes)
    assert ratio.of(size) <= ratio.of(size + more)
    assert abs(ratio.of(size) - size * tokens / of_bytes) <= 0.5 + 1e-6 * size * tokens / of_bytes


def test_evidence_of_another_run_is_refused() -> None:
    ours, theirs = recorded(pairs=1).evidence(), recorded(pairs=1).evidence("mirror-1")
    theirs.run_uid = "other"
    with pytest.raises(ValueError, match="2 different runs"):
        merged([ours, theirs], [])


def test_counters_that_contradict_each_other_are_told() -> None:
    recorder = recorded(pairs=20)
    part = recorder.windows[1].classes["default"]
    part.arms["candidate"].completed -= Amount(requests=1, bytes=0)
    del part.arms["baseline"]
    told = inconsistencies(recorder.merged(), ("baseline", "candidate"))
    assert ["baseline" in told[0], "candidate" in told[1], len(told)] == [True, True, 2]


def test_oversized_requests_count_in_the_classes_they_may_belong_to() -> None:
    found = funnel(recorded(pairs=20, names=("long", "default")).merged(oversized=Amount(requests=10, bytes=0)))
    shown = classes_status(Rules(criteria=(), oversized_classes=("long",)), found)
    assert {c.name: c.request_coverage for c in shown} == {"default": "100.0%", "long": "50.0%"}


def test_no_counts_at_all_are_a_funnel_of_zeros() -> None:
    found = funnel(merged([], []))
    assert found.seen == Count()
    assert found.arms == {}
    assert ArmCounts().failures == Count()
