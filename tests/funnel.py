"""The funnel's equations, checked on any snapshot of evidence. For tests of every level; no I/O."""

from collections.abc import Iterable

from shadowrun_mirror.evidence import Amount, ClassEvidence, Evidence


def assert_adds_up(evidence: Evidence) -> None:
    """Every request and every byte of every class is somewhere, exactly once, for every arm."""
    for number, window in evidence.windows.items():
        assert window.id == number
        for name, counted in window.classes.items():
            _assert_class_adds_up(f"window {number}, class {name}", counted)
        pairs = _total(counted.admitted - counted.in_flight for counted in window.classes.values())
        assert (window.first_pair is None) == (pairs.requests == 0)
        assert (window.last_pair is None) == (pairs.requests == 0)
        for arm, series in window.pairs.items():
            for criterion, blocks in series.items():
                assert number > 0, "the warm-up counts no indicators"
                assert blocks.pairs <= pairs.requests, f"{arm}, {criterion}: more pairs than there were"
                assert all(abs(z) <= n for n, z in blocks.sums.values())
        for arm, blocks in window.differing.items():
            found = [counted.matches[arm] for counted in window.classes.values() if arm in counted.matches]
            assert blocks.pairs == sum(matches.compared for matches in found), arm
            assert -sum(z for _, z in blocks.sums.values()) == sum(m.compared - m.matched for m in found), arm


def _assert_class_adds_up(where: str, counted: ClassEvidence) -> None:
    excluded, dropped = _total(counted.excluded.values()), _total(counted.dropped.values())
    assert counted.received == excluded + dropped + counted.admitted, where
    assert counted.queue.count == counted.admitted.requests, where
    ended = counted.admitted - counted.in_flight
    assert counted.forward.count <= ended.requests, where
    assert sum(arm.sent_first for arm in counted.arms.values()) == counted.forward.count, where
    for name, matches in counted.matches.items():
        assert sum(matches.pairs.values()) <= ended.requests, f"{where}, arm {name}"
    for name, arm in counted.arms.items():
        failed = _total(arm.failed.values())
        assert counted.admitted == arm.completed + failed + counted.in_flight, f"{where}, arm {name}"
        assert arm.within_slo.requests <= arm.completed.requests, f"{where}, arm {name}"
        assert arm.e2e.count == arm.completed.requests + failed.requests, f"{where}, arm {name}"
        assert arm.e2e.failed == failed.requests, f"{where}, arm {name}"
        assert arm.ttft.count <= arm.e2e.count, f"{where}, arm {name}"
        assert arm.tpot.count <= arm.ttft.count, f"{where}, arm {name}"
        assert arm.usage.answers <= arm.completed.requests, f"{where}, arm {name}"


def _total(amounts: Iterable[Amount]) -> Amount:
    total = Amount()
    for amount in amounts:
        total = total + amount
    return total
