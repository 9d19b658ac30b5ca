"""Envoy's admin answers as `CaptureEvidence`. Pure: no I/O, no clock; numbers that are missing are errors, never zero.

Counters named after routes appear with their first request; everything else exists from Envoy's start.
"""

import re
from typing import Any

import msgspec

from shadowrun_mirror.capture.live_path import FIRST_BYTE, TROUBLES, Bucket, Trouble, live_path, trouble
from shadowrun_mirror.evidence import CaptureEvidence, CaptureWindow, LivePath, Source

STATS_FILTER = (
    r"^(shadowrun\.(requests|bytes|troubles|first_byte)\."
    r"|http\.customers\.(downstream_(rq|cx)_active|rds\.shadowrun\.version_text)$"
    r"|cluster\.copies\.upstream_rq_(active|pending)_overflow$"
    r"|cluster\.(copies|mirror)\.upstream_(rq_pending_failure_eject|cx_none_healthy)$"
    r"|cluster\.mirror\.upstream_rq_retry$)"
)
STATS_QUERY = {"format": "json", "histogram_buckets": "detailed", "filter": STATS_FILTER}
"""What to ask the admin port for, at `/stats`."""

_ACTIVE = "http.customers.downstream_rq_active"
_CONNECTIONS = "http.customers.downstream_cx_active"
_APPLIED = "http.customers.rds.shadowrun.version_text"
_NOT_COPIED = (
    "cluster.copies.upstream_rq_active_overflow",  # at the cap
    "cluster.copies.upstream_rq_pending_overflow",
    "cluster.copies.upstream_rq_pending_failure_eject",  # no connection to the mirror
    "cluster.copies.upstream_cx_none_healthy",  # no address for it
)
_NOT_SENT_ON = (  # where a copy is absorbed inside Envoy first, and another cluster leads to the mirror
    "cluster.mirror.upstream_rq_pending_failure_eject",
    "cluster.mirror.upstream_cx_none_healthy",
)
_RETRIED = "cluster.mirror.upstream_rq_retry"  # each after one failed connection: another mirror gets the copy
_COUNTER = re.compile(r"shadowrun\.(requests|bytes)\.route\.(sampled|oversized|plain|paused)-(\d+)")
_PAUSED = "paused"
_IN_SCOPE = ("sampled", "oversized", "plain", _PAUSED)
_VERSION = re.compile(r"(\d+)\.\d+\.([a-z]+)")

Stats = dict[str, int | str]
Buckets = dict[str, tuple[Bucket, ...]]


class StatsError(ValueError):
    """Envoy answered, but not with what a capture Envoy must have."""


class _Detail(msgspec.Struct, frozen=True):
    name: str
    totals: tuple[Bucket, ...] = ()


class _Histograms(msgspec.Struct, frozen=True):
    details: tuple[_Detail, ...] = ()


class _Stat(msgspec.Struct):
    name: str = ""  # the entry that holds histograms has neither
    value: int | str = ""
    histograms: _Histograms = _Histograms()


class _StatsAnswer(msgspec.Struct):
    stats: list[_Stat]


class _Node(msgspec.Struct):
    id: str


class _ServerInfo(msgspec.Struct):
    node: _Node
    version: str = ""


def version_text(version: int, window: int, standing: str) -> str:
    """How a route file is named, so that `applied` can tell from Envoy itself what it follows."""
    return f"{version}.{window}.{standing}"


def parse_stats(raw: bytes) -> Stats:
    """Name to value; raises `msgspec.DecodeError` on anything that is not a statistics answer."""
    return parse_answer(raw)[0]


def parse_answer(raw: bytes) -> tuple[Stats, Buckets]:
    """Counters and gauges, and histograms, by name; raises like `parse_stats`."""
    answer = msgspec.json.decode(raw, type=_StatsAnswer)
    histograms = {each.name: each.totals for stat in answer.stats for each in stat.histograms.details}
    return {stat.name: stat.value for stat in answer.stats if stat.name}, histograms


def envoy_epoch(server_info: bytes) -> str:
    """The `--service-node` of the running Envoy, new at every start; raises `StatsError` when it has none."""
    epoch = msgspec.json.decode(server_info, type=_ServerInfo).node.id
    if not epoch:
        raise StatsError("Envoy runs without --service-node")
    return epoch


def envoy_version(server_info: bytes) -> str:
    """The version of the running Envoy, such as 1.40.0; "" where it doesn't say so in the way Envoy does."""
    parts = msgspec.json.decode(server_info, type=_ServerInfo).version.split("/")  # commit/version/state/build/library
    return parts[1] if len(parts) > 1 else ""


def capture_windows(stats: Stats, histograms: Buckets) -> dict[int, CaptureWindow]:
    """Requests and their body bytes by window and kind of route; bodies of unknown size add no bytes."""
    counts: dict[int, dict[str, dict[str, int]]] = {}
    for name, value in stats.items():
        if found := _COUNTER.fullmatch(name):
            what, kind, window = found.groups()
            counts.setdefault(int(window), {}).setdefault(kind, {})[what] = _number(name, value)
    windows = {window: msgspec.convert(kinds, CaptureWindow) for window, kinds in sorted(counts.items())}
    for (kind, number), path in _live_paths(stats, histograms).items():
        if kind in _IN_SCOPE and number in windows:
            window = windows[number]
            if kind == _PAUSED:
                window.off = window.off.merged(path)
            else:
                window.on = window.on.merged(path)
    return windows


def _live_paths(stats: Stats, histograms: Buckets) -> dict[tuple[str, int], LivePath]:
    """How customers fared by kind of route and window."""
    buckets: dict[tuple[str, int], tuple[Bucket, ...]] = {}
    troubles: dict[tuple[str, int], list[Trouble]] = {}
    for name, held in histograms.items():
        if found := FIRST_BYTE.fullmatch(name):
            buckets[found[1], int(found[2])] = held
    for name, value in stats.items():
        if found := TROUBLES.fullmatch(name):
            ended = trouble(found[3], found[4], _number(name, value))
            troubles.setdefault((found[1], int(found[2])), []).append(ended)
    return {key: live_path(buckets.get(key, ()), troubles.get(key, ())) for key in buckets.keys() | troubles.keys()}


def active_requests(stats: Stats) -> int:
    """Customers' requests now in Envoy, streams and web sockets included."""
    return _required(stats, _ACTIVE)


def open_connections(stats: Stats) -> int:
    """Customers' connections now open, idle ones included."""
    return _required(stats, _CONNECTIONS)


def applied(stats: Stats) -> tuple[int, bool]:
    """(directive version, copying) of the route configuration Envoy follows, not of the one it was given last.

    An Envoy that pauses counts as copying: it goes on by itself when the slot is over.
    """
    text = stats.get(_APPLIED)
    found = _VERSION.fullmatch(text) if isinstance(text, str) else None
    if not found:
        raise StatsError(f"{_APPLIED} is {text!r}")
    return int(found[1]), found[2] in ("copying", _PAUSED)


def capture_evidence(raw: bytes, *, run_uid: str, source: Source, envoy: str = "") -> CaptureEvidence:
    """The snapshot that follows from a statistics answer; raises `StatsError` or `msgspec.DecodeError`."""
    stats, histograms = parse_answer(raw)
    version, copying = applied(stats)
    return CaptureEvidence(
        run_uid=run_uid,
        source=source,
        directive_version=version,
        copying=copying,
        active_requests=active_requests(stats),
        windows=capture_windows(stats, histograms),
        overflow=_overflow(stats),
        envoy=envoy,
    )


def _overflow(stats: Stats) -> int:
    lost = sum(_required(stats, name) for name in _NOT_COPIED)
    if not stats.keys().isdisjoint((*_NOT_SENT_ON, _RETRIED)):
        lost += sum(_required(stats, name) for name in _NOT_SENT_ON) - _required(stats, _RETRIED)
    return max(0, lost)


def _required(stats: Stats, name: str) -> int:
    if name not in stats:
        raise StatsError(f"Envoy has no statistic {name}")
    return _number(name, stats[name])


def _number(name: str, value: Any) -> int:
    if not isinstance(value, int):
        raise StatsError(f"{name} is {value!r}, not a number")
    return value
