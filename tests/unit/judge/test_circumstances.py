"""The report says how the pairs were measured: flags, waits, conversations, the primary, lag, rates and weights."""

import msgspec
import pytest
from shadowrun_mirror.evidence import Amount, Lineage, LivePath, PrimaryEvidence, added
from shadowrun_mirror.histogram import Histogram
from shadowrun_operator.judge.circumstances import Circumstances, spread
from shadowrun_operator.judge.facts import RateChange
from shadowrun_operator.judge.live_path import Moments, Watch
from shadowrun_operator.judge.merge import merged
from shadowrun_operator.judge.report import Report, packed_report, unpacked_report
from shadowrun_operator.judge.rules import LivePathLimits
from shadowrun_operator.judge.verdict import judge, judged_again

from tests.unit.judge.synthetic import DEFAULT_RULES, Recorder, facts, judged, recorded

pytestmark = pytest.mark.verdict


def histogram(*seconds: float) -> Histogram:
    found = Histogram()
    for value in seconds:
        found.add(value)
    return found


def circumstances(recorder: Recorder) -> Circumstances:
    return judged(recorder).circumstances


def test_a_plain_run_has_nothing_to_tell_but_its_mode() -> None:
    found = circumstances(recorded())
    always = Circumstances(mode="Proxy", warm_up=found.warm_up, hours=found.hours, parities=found.parities)
    assert found == always


def test_flags_are_shares_of_the_pairs_of_their_class_and_of_all() -> None:
    recorder = recorded(names=("a", "b"), pairs=600)
    part = recorder.windows[1].classes["a"]
    part.flagged = added(part.flagged, {"AfterGap": Amount(requests=30, bytes=1)})
    shares = {(f.reason, f.traffic_class): (f.pairs, f.share) for f in circumstances(recorder).flags}
    assert shares == {("AfterGap", ""): (30, 0.05), ("AfterGap", "a"): (30, 0.1)}


def test_waiting_is_reported_with_its_effect_in_words() -> None:
    recorder = recorded(pairs=600)
    part = recorder.windows[1].classes["default"]
    part.flagged = {"Queued": Amount(requests=60, bytes=1)}
    part.queue = histogram(*[0.001] * 540, *[2.0] * 60)
    found = circumstances(recorder)
    assert found.queue.count == 600
    assert found.queue.p95 == pytest.approx(2.0, rel=0.03)
    assert "60 of 600 pairs (10.0%) waited for a slot, up to 2 s" in found.queue_effect
    assert "no latency of an arm contains the wait" in found.queue_effect


def test_conversations_are_reported_with_the_broken_and_those_that_share_an_opening() -> None:
    recorder = recorded()
    recorder.windows[1].lineage = Lineage(openings=10, conversations=40, continued=90, broken=10, joined_late=7)
    found = circumstances(recorder).lineage
    assert found is not None
    assert (found.broken_share, found.per_opening, found.joined_late) == (0.1, 4.0, 7)


def test_the_primary_s_outcomes_stand_beside_those_of_the_arms() -> None:
    recorder = recorded(pairs=100)
    part = recorder.windows[1].classes["default"]
    part.primary = PrimaryEvidence(
        answered=Amount(requests=80),
        refused=Amount(requests=10),
        failed=Amount(requests=3),
        cut=Amount(requests=2),
        first_byte=histogram(0.5),
    )
    arm = part.arms["candidate"]
    arm.completed -= Amount(requests=10, bytes=40_000)
    arm.failed = {"HTTP4xx": Amount(requests=9, bytes=36_000), "Timeout": Amount(requests=1, bytes=4000)}
    found = circumstances(recorder)
    said = {o.receiver: (o.answered, o.refused, o.failed, o.cut, o.unknown) for o in found.outcomes}
    assert said == {
        "primary": (80, 10, 3, 2, 5),
        "baseline": (100, 0, 0, 0, 0),
        "candidate": (90, 9, 1, 0, 0),
    }
    assert found.primary_first_byte.count == 1


def test_the_lag_of_every_mirror_is_in() -> None:
    recorder = recorded()
    first, second = recorder.evidence(), recorder.evidence("mirror-1")
    first.lag, second.lag, second.windows = histogram(0.001), histogram(0.004, 0.1), {}
    evidence = merged([first, second], [recorder.capture()], final=True)
    found = judge(DEFAULT_RULES, evidence, facts(recorder)).circumstances.lag
    assert found.count == 3
    assert found.most == pytest.approx(0.1, rel=0.03)


def test_class_rates_give_weights_and_a_share_within_the_slo_as_in_live_traffic() -> None:
    rules = msgspec.structs.replace(DEFAULT_RULES, class_rates={"long": 1.0, "default": 0.1})
    recorder = recorded(rules, names=("long", "default"), pairs=600)
    long, default = (recorder.windows[1].classes[name].arms["baseline"] for name in ("long", "default"))
    long.within_slo, default.within_slo = Amount(requests=300, bytes=1), Amount(requests=150, bytes=1)
    found = judged(recorder, rules).circumstances
    assert {w.traffic_class: w.weight for w in found.weights} == {"long": 1.0, "default": 10.0}
    shares = {w.arm: w.within_slo for w in found.weighted}
    assert shares["baseline"] == pytest.approx((300 + 10 * 150) / (300 + 10 * 300))


def watched_report() -> Report:
    """A run with a history of rates, and customers on both kinds of slots."""
    recorder = recorded()
    on = LivePath(requests=1000, errors=50, first_byte=histogram(*[0.4] * 950))
    off = LivePath(requests=400, errors=1, first_byte=histogram(*[0.2] * 399))
    before = LivePath(requests=100, errors=0, first_byte=histogram(*[0.2] * 100))
    moments = Moments()
    for _ in range(10):
        moments = moments.plus(100, 5, 30, 0)
    known = msgspec.structs.replace(
        facts(recorder),
        rates=(RateChange(at=5.0, share=250_000),),
        watch=Watch(closed=9.0, before=before, on=on, off=off, errors=moments),
    )
    capture = recorder.capture()
    capture.windows[1] = msgspec.structs.replace(capture.windows[1], on=on, off=off)
    rules = msgspec.structs.replace(DEFAULT_RULES, live_path=LivePathLimits(errors=0.01, latency=0.2))
    return judge(rules, merged([recorder.evidence()], [capture], final=True), known)


def test_customers_and_rates_are_in_the_report_and_survive_storage() -> None:
    report = watched_report()
    found = report.circumstances
    assert [(c.kind, c.requests, c.errors) for c in found.customers] == [
        ("before", 100, 0.0),
        ("copying", 1000, 0.05),
        ("paused", 300, 1 / 300),
    ]
    assert [c.metric for c in found.comparisons] == ["errors"]
    assert found.rates == (RateChange(at=5.0, share=250_000),)
    restored = unpacked_report(*packed_report(report))
    assert restored == report
    assert judged_again(restored) == report


def test_a_report_from_before_these_numbers_existed_can_still_be_read() -> None:
    readable, evidence = packed_report(judged(recorded()))
    parts = msgspec.json.decode(readable)
    del parts["circumstances"]
    assert unpacked_report(msgspec.json.encode(parts).decode(), evidence).circumstances == Circumstances()


def test_a_quantile_that_failures_reach_is_none() -> None:
    assert spread(histogram(1.0, float("inf"))).most is None
    assert spread(Histogram()).count == 0
