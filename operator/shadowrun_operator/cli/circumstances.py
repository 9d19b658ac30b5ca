"""How the pairs of a report were measured, as titled sections of text. Pure; empty sections are left out."""

from collections.abc import Iterator
from datetime import UTC, datetime

from shadowrun_operator.cli.report import Circumstances, LineageNumbers, Spread
from shadowrun_operator.cli.tables import duration, percent, table

_WHOLE = 1_000_000
_KINDS = {"before": "before copying", "copying": "copying on", "paused": "paused slots"}


def circumstances_sections(found: Circumstances) -> Iterator[tuple[str, str]]:
    """Title and body of each section; an empty body is not to be shown."""
    yield "Attempt", _attempt(found)
    yield "Hours in which pairs were counted (UTC)", _hours(found)
    yield "Warm-up (in no other figure)", _warm_up(found)
    yield "What the arms met", _parities(found)
    yield (
        "Copies",
        "Sent by a proxy or gateway of your own: seen are those that arrived." if found.mode == "External" else "",
    )
    yield "Flagged pairs (counted all the same)", _flags(found)
    yield "Waiting for a slot", f"{found.queue_effect}\n{_spreads(('wait', found.queue))}" if found.queue_effect else ""
    yield "Conversations", _lineage(found.lineage) if found.lineage is not None else ""
    yield "What the primary and the arms made of the pairs", _outcomes(found)
    yield "The mirror's own lag", _spreads(("late by", found.lag)) if found.lag.count else ""
    yield "Sampling rate", _rates(found)
    yield "Changed while it ran", _changes(found)
    yield "Weights of classes (a pair stands for so many, relative to the class of the highest rate)", _weights(found)
    yield "Customers", _customers(found)


def _attempt(found: Circumstances) -> str:
    if found.attempt <= 1:
        return ""
    return (
        f"{found.attempt} runs of this spec have copied traffic in this namespace, this one included. Whoever repeats a"
        " run until it passes will see a false Pass in time: each run has its own chance of one."
    )


def _hours(found: Circumstances) -> str:
    hours = found.hours
    if not hours.of_the_day:
        return ""
    seen, peaks = ", ".join(str(h) for h in hours.of_the_day), ", ".join(str(h) for h in hours.peaks)
    told = (
        f"{len(hours.of_the_day)} of 24 hours of the day ({seen}) on {', '.join(hours.days)};"
        f" {hours.of_the_week} of 168 hours of the week; busiest: {peaks}."
    )
    return f"{told}\n{hours.note}" if hours.note else told


def _warm_up(found: Circumstances) -> str:
    if not found.warm_up.pairs:
        return ""
    length = f" over {found.warm_up.seconds:.0f} s" if found.warm_up.seconds is not None else ""
    return f"{found.warm_up.pairs} pairs{length}, {found.warm_up.measured} of them for the baseline's limits."


def _parities(found: Circumstances) -> str:
    rows = [
        (
            p.arm,
            percent(p.first),
            percent(p.cached),
            "" if p.in_hand is None else f"{p.in_hand:.2f}",
            duration(p.held_s),
        )
        for p in found.parities
    ]
    head = ("ARM", "SENT TO FIRST", "PROMPT TOKENS FROM CACHE", "REQUESTS IN HAND", "MEAN TIME OF AN ANSWER")
    return table(head, rows) if rows else ""


def _flags(found: Circumstances) -> str:
    rows = [(f.reason, f.traffic_class or "all", str(f.pairs), percent(f.share)) for f in found.flags]
    return table(("FLAG", "CLASS", "PAIRS", "SHARE"), rows) if rows else ""


def _spreads(*named: tuple[str, Spread]) -> str:
    rows = [(name, str(s.count), *(duration(t) for t in (s.p50, s.p95, s.p99, s.most))) for name, s in named]
    return table(("TIME", "COUNT", "P50", "P95", "P99", "MOST"), rows)


def _lineage(found: LineageNumbers) -> str:
    shared = "" if found.per_opening is None else f"{found.per_opening:.1f}"
    row = (
        *(str(n) for n in (found.conversations, found.openings)),
        shared,
        *(str(n) for n in (found.continued, found.broken)),
        percent(found.broken_share),
        str(found.joined_late),
    )
    return table(("BEGUN", "OPENINGS", "PER OPENING", "CONTINUED", "BROKEN", "BROKEN SHARE", "JOINED LATE"), [row])


def _outcomes(found: Circumstances) -> str:
    if not found.outcomes:
        return ""
    rows = [
        (o.receiver, *(str(n) for n in (o.answered, o.refused, o.failed, o.cut, o.unknown))) for o in found.outcomes
    ]
    shown = table(("RECEIVER", "ANSWERED", "REFUSED (4XX)", "FAILED", "CUT BY CUSTOMER", "UNKNOWN"), rows)
    first = found.primary_first_byte
    return f"{shown}\n\n{_spreads(('first byte of the primary', first))}" if first.count else shown


def _rates(found: Circumstances) -> str:
    """Nothing where the rate stayed what it was when copying began."""
    if len(found.rates) == 1 and found.rates[0].share == _WHOLE:
        return ""
    rows = [
        (
            datetime.fromtimestamp(c.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            f"{c.rate / 10_000:g}%" if c.rate else "unknown",
            f"{c.share / 10_000:.4f}%",
        )
        for c in found.rates
    ]
    return table(("FROM", "SAMPLING.RATE", "SHARE OF IT THAT IS COPIED"), rows) if rows else ""


def _changes(found: Circumstances) -> str:
    """Nothing where the spec stayed what it was when copying began."""
    began = {c.field: c.value for c in found.changes if c.at == found.changes[0].at}
    rows = [
        (datetime.fromtimestamp(c.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), c.field, c.value or "(absent)")
        for c in found.changes
        if c.at != found.changes[0].at
    ]
    if not rows:
        return ""
    before = ", ".join(f"{field} {began.get(field) or '(absent)'}" for field in dict.fromkeys(row[1] for row in rows))
    return f"{table(('FROM', 'FIELD', 'VALUE'), rows)}\nWhen copying began: {before}."


def _weights(found: Circumstances) -> str:
    if not found.weights:
        return ""
    rows = [(w.traffic_class, f"{100 * w.rate:g}%", f"{w.weight:g}") for w in found.weights]
    shares = [(w.arm, percent(w.within_slo)) for w in found.weighted]
    shown = table(("CLASS", "RATE", "WEIGHT"), rows)
    return f"{shown}\n\n{table(('ARM', 'WITHIN SLO, AS IN LIVE TRAFFIC'), shares)}" if shares else shown


def _customers(found: Circumstances) -> str:
    if not found.customers:
        return ""
    rows = [
        (_KINDS.get(c.kind, c.kind), str(c.requests), percent(c.errors), *(duration(t) for t in _times(c.first_byte)))
        for c in found.customers
    ]
    shown = table(("WHEN", "REQUESTS", "ERRORS", "FIRST BYTE P50", "P95", "P99"), rows)
    compared = [
        (
            c.metric,
            percent(c.on),
            percent(c.off),
            f"{100 * c.difference:+.2f}",
            f"{100 * c.margin:.2f}",
            f"{100 * c.tolerated:g}",
        )
        for c in found.comparisons
    ]
    head = ("COMPARED", "BAD WITH COPYING", "BAD IN PAUSES", "POINTS MORE", "± BY CHANCE", "ALLOWED")
    return f"{shown}\n\n{table(head, compared)}" if compared else shown


def _times(spread: Spread) -> tuple[float | None, ...]:
    return spread.p50, spread.p95, spread.p99
