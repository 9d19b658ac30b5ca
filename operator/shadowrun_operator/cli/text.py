"""Everything the command prints, as text from data. Pure: no output, no reads."""

from collections.abc import Iterable, Sequence

from shadowrun_operator.api.status import Status
from shadowrun_operator.cli.circumstances import circumstances_sections
from shadowrun_operator.cli.figures import figure_sections
from shadowrun_operator.cli.report import Amount, CriterionLine, Funnel, ShownReport
from shadowrun_operator.cli.seen import SeenRun
from shadowrun_operator.cli.tables import duration, table

_LATENCIES = ("TTFT", "TPOT", "E2E")


def verdict_text(run: SeenRun) -> str:
    """The end of a run: verdict, reason, sentence, and a line for each criterion."""
    status = run.status
    head = f"{run.metadata.name}: {status.verdict} ({status.reason or status.end_reason or 'no reason given'})"
    parts = [head, status.message, _criteria_of(status)]
    if status.report_ref is not None:
        parts.append(f"Report: ConfigMap {status.report_ref.name}, or: shadowrun report {run.metadata.name}")
    return "\n\n".join(part for part in parts if part)


def _criteria_of(status: Status) -> str:
    if not status.criteria:
        return ""
    return table(
        ("CRITERION", "CLASS", "OUTCOME", "CANDIDATE", "BASELINE", "INTERVAL", "LIMIT", "PAIRS", "NEEDED"),
        (
            (
                f"{c.name} (informational)" if c.informational else c.name,
                c.traffic_class or "all",
                c.outcome,
                c.observed,
                c.baseline,
                c.interval,
                c.limit,
                str(c.pairs),
                str(c.needed) if c.needed else "",
            )
            for c in status.criteria
        ),
    )


def report_text(name: str, report: ShownReport) -> str:
    """A whole report for a person."""
    parts = [
        f"{name}: {report.verdict} ({report.reason})",
        report.message,
        _titled("The candidate differs from the baseline at", report.facts.patch),
        _titled("Findings", "\n".join(f"{f.reason}: {f.message}" for f in report.findings)),
        _titled("Criteria", _criteria(report.criteria)),
        _titled("Criteria by halves: the arms changed places between them", _halves(report.criteria)),
        _titled("Funnel (tokens are estimated from bytes)", _funnel(report.funnel)),
        _titled("Dropped, by reason", _reasons(report.funnel.dropped)),
        *(_titled(f"Failed in {arm}, by reason", _reasons(c.failed)) for arm, c in report.funnel.arms.items()),
        *(_titled(title, body) for title, body in figure_sections(report)),
        *(_titled(title, body) for title, body in circumstances_sections(report.circumstances)),
        _titled("Method", report.method),
    ]
    return "\n\n".join(part for part in parts if part)


def _titled(title: str, body: str) -> str:
    return f"{title}\n{body}" if body else ""


def _criteria(criteria: Sequence[CriterionLine]) -> str:
    return table(
        ("CRITERION", "METRIC", "CLASS", "OUTCOME", "CANDIDATE", "BASELINE", "DIFFERENCE", "LIMIT", "PAIRS"),
        (
            (
                f"{c.name} (informational)" if c.informational else c.name,
                c.metric,
                c.traffic_class or "all",
                f"{c.outcome} ({c.gap})" if c.gap else c.outcome,
                _figure(c.metric, c.candidate),
                _figure(c.metric, c.baseline),
                _difference(c),
                _points(c.limit),
                str(c.pairs),
            )
            for c in criteria
        ),
    )


def _halves(criteria: Sequence[CriterionLine]) -> str:
    rows = [
        (
            c.name,
            number,
            f"{half.outcome} ({half.gap})" if half.gap else half.outcome,
            _difference(half),
            str(half.pairs),
        )
        for c in criteria
        for number, half in zip(("first", "second"), c.halves, strict=False)
    ]
    return table(("CRITERION", "HALF", "OUTCOME", "DIFFERENCE", "PAIRS"), rows) if rows else ""


def _difference(criterion: CriterionLine) -> str:
    if criterion.difference is None:
        return ""
    low = "-∞" if criterion.lower is None else _points(criterion.lower)
    high = "∞" if criterion.upper is None else _points(criterion.upper)
    return f"{_points(criterion.difference)} [{low}, {high}]"


def _funnel(funnel: Funnel) -> str:
    rows: list[tuple[str, Amount]] = [
        ("seen", funnel.seen),
        ("not selected", funnel.not_selected),
        *([("not selected: copying paused", funnel.paused)] if funnel.paused.requests else []),
        ("selected", funnel.selected),
        *([("selected: estimated", funnel.estimated)] if funnel.estimated.requests else []),
        ("dropped", sum_of(funnel.dropped.values())),
        ("in transit", funnel.in_transit),
        ("admitted", funnel.admitted),
    ]
    for arm, counts in funnel.arms.items():
        rows += [
            (f"{arm}: completed", counts.completed),
            (f"{arm}: within SLO", counts.within_slo),
            (f"{arm}: failed", sum_of(counts.failed.values())),
            (f"{arm}: in flight", counts.in_flight),
        ]
    return table(("STEP", "REQUESTS", "TOKENS"), ((step, str(a.requests), str(a.tokens)) for step, a in rows))


def sum_of(amounts: Iterable[Amount]) -> Amount:
    """All together."""
    listed = list(amounts)
    return Amount(requests=sum(a.requests for a in listed), tokens=sum(a.tokens for a in listed))


def _reasons(amounts: dict[str, Amount]) -> str:
    if not amounts:
        return ""
    return table(
        ("REASON", "REQUESTS", "TOKENS"), ((r, str(a.requests), str(a.tokens)) for r, a in sorted(amounts.items()))
    )


def _figure(metric: str, value: float | None) -> str:
    if metric in _LATENCIES:
        return duration(value)
    return "" if value is None else f"{100 * value:.2f}%"


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"
