"""Evidence is read from Envoy's statistics exactly, and anything missing is an error instead of a zero."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.capture.stats import (
    StatsError,
    applied,
    capture_evidence,
    envoy_epoch,
    envoy_version,
    parse_stats,
    version_text,
)
from shadowrun_mirror.evidence import Amount, CaptureWindow, Source

pytestmark = pytest.mark.path

SOURCE = Source(pod="p", pod_uid="u", epoch="e", sequence=1, time=1.0)
ALWAYS: dict[str, int | str] = {
    "http.customers.downstream_rq_active": 3,
    "http.customers.downstream_cx_active": 9,
    "http.customers.rds.shadowrun.version_text": "12.2.copying",
    "cluster.copies.upstream_rq_active_overflow": 1,
    "cluster.copies.upstream_rq_pending_overflow": 2,
    "cluster.copies.upstream_rq_pending_failure_eject": 4,
    "cluster.copies.upstream_cx_none_healthy": 8,
}
ABSORBED: dict[str, int | str] = ALWAYS | {
    "cluster.mirror.upstream_rq_pending_failure_eject": 300,
    "cluster.mirror.upstream_rq_retry": 200,
    "cluster.mirror.upstream_cx_none_healthy": 16,
}


def answer(stats: dict[str, Any], histograms: dict[str, list[tuple[float, float, int]]] | None = None) -> bytes:
    listed: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in stats.items()]
    details = [
        {"name": name, "totals": [dict(zip(("lower_bound", "width", "count"), each, strict=True)) for each in buckets]}
        for name, buckets in (histograms or {}).items()
    ]
    return json.dumps({"stats": [*listed, {"histograms": {"supported_quantiles": [0], "details": details}}]}).encode()


amounts = st.builds(Amount, requests=st.integers(1, 2**53), bytes=st.integers(1, 2**63))
windows = st.dictionaries(
    st.integers(0, 10_000),
    st.builds(CaptureWindow, sampled=amounts, oversized=amounts, plain=amounts, paused=amounts),
    max_size=5,
)


@given(windows)
def test_counters_come_back_as_they_were_counted(counted: dict[int, CaptureWindow]) -> None:
    stats: dict[str, Any] = {**ALWAYS, "shadowrun.requests.route.other": 7, "shadowrun.bytes.route.-": 1}
    for number, window in counted.items():
        for kind in ("sampled", "oversized", "plain", "paused"):
            amount: Amount = getattr(window, kind)
            stats[f"shadowrun.requests.route.{kind}-{number}"] = amount.requests
            stats[f"shadowrun.bytes.route.{kind}-{number}"] = amount.bytes
    evidence = capture_evidence(answer(stats), run_uid="r", source=SOURCE)
    assert evidence.windows == counted
    assert (evidence.directive_version, evidence.copying) == (12, True)
    assert (evidence.active_requests, evidence.overflow) == (3, 15)
    assert (evidence.run_uid, evidence.source) == ("r", SOURCE)


def test_bodies_of_unknown_size_count_as_requests_without_bytes() -> None:
    stats = {**ALWAYS, "shadowrun.requests.route.oversized-1": 2}
    evidence = capture_evidence(answer(stats), run_uid="r", source=SOURCE)
    assert evidence.windows == {1: CaptureWindow(oversized=Amount(requests=2))}


def test_customers_are_compared_by_whether_copying_was_paused() -> None:
    stats: dict[str, Any] = {**ALWAYS, "shadowrun.troubles.route.other.status.500.flags.-": 99}
    for kind in ("sampled", "plain", "paused"):
        stats[f"shadowrun.requests.route.{kind}-3"] = 50
    stats["shadowrun.troubles.route.sampled-3.status.503.flags.UF,URX"] = 2  # answered, by Envoy
    stats["shadowrun.troubles.route.plain-3.status.0.flags.DC"] = 4  # the customer left
    stats["shadowrun.troubles.route.plain-3.status.0.flags.UC,DPE"] = 8
    stats["shadowrun.troubles.route.paused-3.status.200.flags.UC"] = 16  # an answer cut short
    histograms: dict[str, list[tuple[float, float, int]]] = {
        "shadowrun.first_byte.route.sampled-3": [(1000, 100, 10), (0, 0, 1)],
        "shadowrun.first_byte.route.plain-3": [(1000, 100, 20)],
        "shadowrun.first_byte.route.paused-3": [(2_000_000, 100_000, 40)],
        "shadowrun.first_byte.route.other": [(1, 0.1, 1000)],
    }
    window = capture_evidence(answer(stats, histograms), run_uid="r", source=SOURCE).windows[3]
    assert (window.on.requests, window.on.errors) == (31 + 12, 2 + 8)
    assert (window.off.requests, window.off.errors) == (40, 16)
    assert window.off.first_byte.total == pytest.approx(40 * 2.05)
    assert 2.0 < window.off.first_byte.quantile(0.5) < 2.1


def test_a_copy_that_another_mirror_got_is_not_lost() -> None:
    evidence = capture_evidence(answer(ABSORBED), run_uid="r", source=SOURCE)
    assert evidence.overflow == 15 + (300 - 200) + 16


@pytest.mark.parametrize(
    ("stats", "name"),
    [(stats, name) for stats in (ALWAYS, ABSORBED) for name in stats if not name.endswith("cx_active")],
)
def test_a_missing_statistic_is_an_error(stats: dict[str, int | str], name: str) -> None:
    missing = {key: value for key, value in stats.items() if key != name}
    with pytest.raises(StatsError, match=name):
        capture_evidence(answer(missing), run_uid="r", source=SOURCE)


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"stats": 1}', b"no healthy upstream"])
def test_an_answer_that_is_not_statistics_is_an_error(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        parse_stats(raw)


def test_a_counter_that_is_not_a_number_is_an_error() -> None:
    with pytest.raises(StatsError, match="not a number"):
        capture_evidence(answer({**ALWAYS, "shadowrun.bytes.route.plain-1": "x"}), run_uid="r", source=SOURCE)


@given(
    st.integers(0, 2**31),
    st.integers(0, 2**31),
    st.sampled_from(["copying", "paused", "nolease", "notasked", "expired"]),
)
def test_what_envoy_follows_is_read_back_from_the_version_it_shows(version: int, window: int, standing: str) -> None:
    text = version_text(version, window, standing)
    stats: dict[str, int | str] = {"http.customers.rds.shadowrun.version_text": text}
    assert applied(stats) == (version, standing in ("copying", "paused"))


def test_the_version_of_envoy_is_what_it_says_of_itself() -> None:
    said = b'{"node": {"id": "abc"}, "version": "0bf0ab/1.40.0/Clean/RELEASE/BoringSSL"}'
    assert envoy_version(said) == "1.40.0"
    assert [envoy_version(b'{"node": {"id": "a"}%s}' % more) for more in (b"", b', "version": "odd"')] == ["", ""]


def test_the_epoch_is_the_service_node_and_must_be_there() -> None:
    assert envoy_epoch(b'{"node": {"id": "abc"}, "state": "LIVE"}') == "abc"
    with pytest.raises(StatsError, match="service-node"):
        envoy_epoch(b'{"node": {"id": ""}}')
