"""Envoy's admin answers as `CaptureEvidence`. Pure: no I/O, no clock; numbers that are missing are errors, never zero.

Counters named after routes appear with their first request; everything else exists from Envoy's start.
"""

import re
from typing import Any

import msgspec

from shadowrun_mirror.evidence import CaptureEvidence, CaptureWindow, Source

STATS_FILTER = (
    r"^(shadowrun\.(requests|bytes)\."
    r"|http\.customers\.(downstream_(rq|cx)_active|rds\.shadowrun\.version_text)$"
    r"|cluster\.copies\.upstream_rq_(active|pending)_overflow$"
    r"|cluster\.mirror\.upstream_(rq_pending_failure_eject|cx_none_healthy)$)"
)
"""What to ask the admin port for: `/stats?format=json&filter=…`."""

_ACTIVE = "http.customers.downstream_rq_active"
_CONNECTIONS = "http.customers.downstream_cx_active"
_APPLIED = "http.customers.rds.shadowrun.version_text"
_NOT_COPIED = (
    "cluster.copies.upstream_rq_active_overflow",  # at the cap
    "cluster.copies.upstream_rq_pending_overflow",
    "cluster.mirror.upstream_rq_pending_failure_eject",  # no connection to the mirror
    "cluster.mirror.upstream_cx_none_healthy",  # no address for it
)
_COUNTER = re.compile(r"shadowrun\.(requests|bytes)\.route\.(sampled|oversized|plain)-(\d+)")
_VERSION = re.compile(r"(\d+)\.\d+\.([a-z]+)")

Stats = dict[str, int | str]


class StatsError(ValueError):
    """Envoy answered, but not with what a capture Envoy must have."""


class _Stat(msgspec.Struct):
    name: str = ""  # the entry that holds histograms has neither
    value: int | str = ""


class _StatsAnswer(msgspec.Struct):
    stats: list[_Stat]


class _Node(msgspec.Struct):
    id: str


class _ServerInfo(msgspec.Struct):
    node: _Node


def version_text(version: int, window: int, standing: str) -> str:
    """How a route file is named, so that `applied` can tell from Envoy itself what it follows."""
    return f"{version}.{window}.{standing}"


def parse_stats(raw: bytes) -> Stats:
    """Name to value; raises `msgspec.DecodeError` on anything that is not a statistics answer."""
    answer = msgspec.json.decode(raw, type=_StatsAnswer)
    return {stat.name: stat.value for stat in answer.stats if stat.name}


def envoy_epoch(server_info: bytes) -> str:
    """The `--service-node` of the running Envoy, new at every start; raises `StatsError` when it has none."""
    epoch = msgspec.json.decode(server_info, type=_ServerInfo).node.id
    if not epoch:
        raise StatsError("Envoy runs without --service-node")
    return epoch


def capture_windows(stats: Stats) -> dict[int, CaptureWindow]:
    """Requests and their body bytes by window and kind of route; bodies of unknown size add no bytes."""
    counts: dict[int, dict[str, dict[str, int]]] = {}
    for name, value in stats.items():
        if found := _COUNTER.fullmatch(name):
            what, kind, window = found.groups()
            counts.setdefault(int(window), {}).setdefault(kind, {})[what] = _number(name, value)
    return {window: msgspec.convert(kinds, CaptureWindow) for window, kinds in sorted(counts.items())}


def active_requests(stats: Stats) -> int:
    """Customers' requests now in Envoy, streams and web sockets included."""
    return _required(stats, _ACTIVE)


def open_connections(stats: Stats) -> int:
    """Customers' connections now open, idle ones included."""
    return _required(stats, _CONNECTIONS)


def applied(stats: Stats) -> tuple[int, bool]:
    """(directive version, copying) of the route configuration Envoy follows, not of the one it was given last."""
    text = stats.get(_APPLIED)
    found = _VERSION.fullmatch(text) if isinstance(text, str) else None
    if not found:
        raise StatsError(f"{_APPLIED} is {text!r}")
    return int(found[1]), found[2] == "copying"


def capture_evidence(raw: bytes, *, run_uid: str, source: Source) -> CaptureEvidence:
    """The snapshot that follows from a statistics answer; raises `StatsError` or `msgspec.DecodeError`."""
    stats = parse_stats(raw)
    version, copying = applied(stats)
    return CaptureEvidence(
        run_uid=run_uid,
        source=source,
        directive_version=version,
        copying=copying,
        active_requests=active_requests(stats),
        windows=capture_windows(stats),
        overflow=sum(_required(stats, name) for name in _NOT_COPIED),
    )


def _required(stats: Stats, name: str) -> int:
    if name not in stats:
        raise StatsError(f"Envoy has no statistic {name}")
    return _number(name, stats[name])


def _number(name: str, value: Any) -> int:
    if not isinstance(value, int):
        raise StatsError(f"{name} is {value!r}, not a number")
    return value
