"""Quantiles, shares and win rates of a report, as titled sections of text. Pure; empty sections are left out."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from shadowrun_operator.cli.report import ArmLatencies, ArmMatches, Quantiles, Range, ShownReport
from shadowrun_operator.cli.tables import duration, percent, table

_RATES = ("TokensPerSecond",)
"""Metrics that are no times."""


def figure_sections(report: ShownReport) -> Iterator[tuple[str, str]]:
    """Title and body of each section; an empty body is not to be shown."""
    yield "Latencies [95 % interval]", _latencies(report.arms)
    yield "Before the arms [95 % interval]", _times(report)
    yield "Shares of requests (and of prompt tokens)", _shares(report.arms)
    yield "Beside the baseline", _against(report.arms)
    yield "Answers that match the baseline's (no part of the verdict)", _matches(report.matches)
    yield "If all that was selected had become pairs, in points", _worst_cases(report)


def _latencies(arms: Sequence[ArmLatencies]) -> str:
    rows = [
        (a.traffic_class or "all", a.arm, q.metric, str(q.answers), str(q.failed), *_quantiles(q))
        for a in arms
        for q in a.latencies
        if q.answers
    ]
    return table(("CLASS", "ARM", "METRIC", "ANSWERS", "FAILED", "P50", "P95", "P99"), rows) if rows else ""


def _times(report: ShownReport) -> str:
    rows = [
        (c.traffic_class or "all", q.metric, str(q.answers), *_quantiles(q))
        for c in report.classes
        for q in c.times
        if q.answers
    ]
    return table(("CLASS", "TIME", "COUNT", "P50", "P95", "P99"), rows) if rows else ""


def _quantiles(found: Quantiles) -> tuple[str, ...]:
    told = _rate if found.metric in _RATES else duration
    ranges = found.ranges or (None,) * 3
    return tuple(
        _with_range(told, value, within)
        for value, within in zip((found.p50, found.p95, found.p99), ranges, strict=True)
    )


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}/s"


def _with_range(told: Callable[[float | None], str], value: float | None, within: Range | None) -> str:
    if value is None:
        return ""
    if within is None:
        return told(value)
    return f"{told(value)} [{told(within.low) or '0'}, {told(within.high) or '∞'}]"


def _shares(arms: Sequence[ArmLatencies]) -> str:
    rows = [
        (
            a.traffic_class or "all",
            a.arm,
            _both(a.shares.within_slo, a.shares.within_slo_tokens),
            _both(a.shares.failed, a.shares.failed_tokens),
            percent(a.shares.cached),
            "" if a.shares.output_tokens is None else f"{a.shares.output_tokens:.1f}",
        )
        for a in arms
        if a.shares.within_slo is not None
    ]
    head = ("CLASS", "ARM", "WITHIN SLO", "FAILED", "PROMPT TOKENS FROM CACHE", "TOKENS AN ANSWER")
    return table(head, rows) if rows else ""


def _both(requests: float | None, tokens: float | None) -> str:
    return f"{percent(requests)} ({percent(tokens) or '-'})"


def _against(arms: Sequence[ArmLatencies]) -> str:
    rows = [
        (
            a.traffic_class or "all",
            a.arm,
            str(found.pairs),
            str(found.won),
            str(found.lost),
            _with_range(percent, found.win_rate, found.win_range),
            "" if found.output_ratio is None else f"{found.output_ratio:.3f}",
        )
        for a in arms
        if (found := a.against) is not None and found.pairs
    ]
    return table(("CLASS", "ARM", "PAIRS", "FIRST", "LAST", "WIN RATE", "LENGTH RATIO"), rows) if rows else ""


def _matches(found: Sequence[ArmMatches]) -> str:
    rows = [
        (
            m.traffic_class or "all",
            m.arm,
            str(m.compared),
            str(m.matched),
            percent(m.share),
            percent(m.lower),
            _counted(m.differed),
            _counted(m.uncompared),
        )
        for m in found
    ]
    head = ("CLASS", "ARM", "COMPARED", "MATCHED", "SHARE", "AT LEAST", "DIFFERED IN", "NOT COMPARED")
    return table(head, rows) if rows else ""


def _counted(pairs: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {n}" for kind, n in pairs.items())


def _worst_cases(report: ShownReport) -> str:
    rows = [
        (
            w.criterion,
            f"{w.missing} of {w.selected}",
            percent(w.share),
            f"{100 * w.low:+.1f}",
            f"{100 * w.high:+.1f}",
            "yes" if w.holds else "no",
        )
        for w in report.worst_cases
        if w.missing
    ]
    return table(("CRITERION", "MISSING", "SHARE", "AT WORST", "AT BEST", "HOLDS AT WORST"), rows) if rows else ""
