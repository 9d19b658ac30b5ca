"""The report as the command reads it: the fields it shows, by name; the whole stays as it was written. Pure types.

The judge is not imported: it brings numerical libraries that a machine which only reads a verdict need not have.
"""

import msgspec

from shadowrun_operator.cli.exits import CommandError

KEY = "report.json"
"""Key of the report in its ConfigMap."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One objection to the verdict Pass."""

    reason: str
    message: str


class CriterionLine(msgspec.Struct, frozen=True, kw_only=True):
    """One criterion; latencies in seconds, shares in [0, 1], the difference and its bounds as shares."""

    name: str
    metric: str
    traffic_class: str
    outcome: str
    gap: str = ""
    candidate: float | None = None
    baseline: float | None = None
    difference: float | None = None
    lower: float | None = None
    upper: float | None = None
    limit: float
    pairs: int = 0
    needed: int = 0
    informational: bool = False


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """Requests and their prompt tokens."""

    requests: int = 0
    tokens: int = 0


class ArmCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the admitted in one arm."""

    completed: Amount = Amount()
    within_slo: Amount = Amount()
    failed: dict[str, Amount] = {}
    in_flight: Amount = Amount()


class Funnel(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the traffic in scope."""

    seen: Amount
    not_selected: Amount
    selected: Amount
    dropped: dict[str, Amount]
    in_transit: Amount
    admitted: Amount
    arms: dict[str, ArmCounts]


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """A latency in seconds; None where failures reach the quantile or nothing was counted."""

    metric: str
    answers: int
    failed: int
    p50: float | None
    p95: float | None
    p99: float | None


class ArmLatencies(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies of one arm in one class; class "" is all together."""

    arm: str
    traffic_class: str
    latencies: tuple[Quantiles, ...]


class ShownReport(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a report that is shown to a person."""

    verdict: str
    reason: str
    message: str
    findings: tuple[Finding, ...]
    criteria: tuple[CriterionLine, ...]
    funnel: Funnel
    arms: tuple[ArmLatencies, ...]
    method: str


def shown_report(raw: str) -> ShownReport:
    """Parse a report; raises `CommandError` naming the field that is wrong."""
    try:
        return msgspec.json.decode(raw, type=ShownReport)
    except msgspec.DecodeError as wrong:
        raise CommandError(f"the report cannot be read: {wrong}") from wrong
