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
    """One criterion; latencies in seconds, shares in [0, 1], the difference and its bounds as shares.

    `halves` are the same of each half, where the arms changed places.
    """

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
    halves: tuple["CriterionLine", ...] = ()


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
    estimated: Amount = Amount()
    paused: Amount = Amount()


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """A 95 % interval; None where it has no end on that side."""

    low: float | None
    high: float | None


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """A latency in seconds, or tokens a second; None where failures reach the quantile or nothing was counted."""

    metric: str
    answers: int
    failed: int
    p50: float | None
    p95: float | None
    p99: float | None
    ranges: tuple[Range, ...] = ()


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of an arm's ended requests and of their prompt tokens."""

    within_slo: float | None = None
    within_slo_tokens: float | None = None
    failed: float | None = None
    failed_tokens: float | None = None
    cached: float | None = None
    output_tokens: float | None = None


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """A challenger beside the baseline."""

    pairs: int
    won: int
    lost: int
    win_rate: float | None
    win_range: Range
    output_ratio: float | None


class ClassTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Times of one class before an arm had the request."""

    traffic_class: str
    times: tuple[Quantiles, ...]


class WorstCase(msgspec.Struct, frozen=True, kw_only=True):
    """What a criterion could have been if nothing selected had been missing; as shares."""

    criterion: str
    missing: int
    selected: int
    share: float
    low: float
    high: float
    holds: bool


class ArmMatches(msgspec.Struct, frozen=True, kw_only=True):
    """How often the answers of a challenger were the baseline's; pairs by kind of difference, or why not compared."""

    arm: str
    traffic_class: str
    compared: int
    matched: int
    share: float | None
    lower: float | None = None
    differed: dict[str, int] = {}
    uncompared: dict[str, int] = {}


class WarmUp(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs before anything counted."""

    pairs: int = 0
    measured: int = 0
    seconds: float | None = None


class Hours(msgspec.Struct, frozen=True, kw_only=True):
    """When pairs were counted, UTC."""

    of_the_day: tuple[int, ...] = ()
    days: tuple[str, ...] = ()
    of_the_week: int = 0
    peaks: tuple[int, ...] = ()
    note: str = ""


class ArmParity(msgspec.Struct, frozen=True, kw_only=True):
    """What one arm met."""

    arm: str
    first: float | None
    cached: float | None
    in_hand: float | None
    held_s: float | None


class ArmLatencies(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies of one arm in one class; class "" is all together."""

    arm: str
    traffic_class: str
    latencies: tuple[Quantiles, ...]
    shares: Shares = Shares()
    against: Against | None = None


class FlagLine(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs of a class with something to know about them, and their share there; class "" is all together."""

    reason: str
    traffic_class: str
    pairs: int
    share: float


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds; None where there is no such quantile."""

    count: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    most: float | None = None


class LineageNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Conversations among the selected copies."""

    openings: int
    conversations: int
    continued: int
    broken: int
    joined_late: int
    broken_share: float | None
    per_opening: float | None


class OutcomeLine(msgspec.Struct, frozen=True, kw_only=True):
    """What the primary or an arm made of the pairs."""

    receiver: str
    answered: int
    refused: int
    failed: int
    cut: int
    unknown: int


class RateChange(msgspec.Struct, frozen=True, kw_only=True):
    """From `at` (UTC seconds) on, `share` millionths of the spec's rates were copied.

    `rate` is `sampling.rate` as the spec then had it, in millionths; 0 where that is not known.
    """

    at: float
    share: int
    rate: int = 0


class SpecChange(msgspec.Struct, frozen=True, kw_only=True):
    """From `at` (UTC seconds) on, a field of the spec had this value; the first ones are as when copying began."""

    at: float
    field: str
    value: str


class ClassWeight(msgspec.Struct, frozen=True, kw_only=True):
    """What a pair of a class stands for, relative to other classes."""

    traffic_class: str
    rate: float
    weight: float


class WeightedShare(msgspec.Struct, frozen=True, kw_only=True):
    """Share of answers within the SLO as in live traffic."""

    arm: str
    within_slo: float | None


class CustomerLine(msgspec.Struct, frozen=True, kw_only=True):
    """Customers before copying began, with copying on, or in paused slots."""

    kind: str
    requests: int
    errors: float | None
    first_byte: Spread


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of bad requests with copying on and in paused slots, and what their difference may be."""

    metric: str
    on: float
    off: float
    difference: float
    margin: float
    tolerated: float


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """How the pairs were measured."""

    mode: str = ""
    flags: tuple[FlagLine, ...] = ()
    queue: Spread = Spread()
    queue_effect: str = ""
    lineage: LineageNumbers | None = None
    outcomes: tuple[OutcomeLine, ...] = ()
    primary_first_byte: Spread = Spread()
    lag: Spread = Spread()
    rates: tuple[RateChange, ...] = ()
    changes: tuple[SpecChange, ...] = ()
    weights: tuple[ClassWeight, ...] = ()
    weighted: tuple[WeightedShare, ...] = ()
    customers: tuple[CustomerLine, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    warm_up: WarmUp = WarmUp()
    hours: Hours = Hours()
    parities: tuple[ArmParity, ...] = ()
    attempt: int = 1


class ShownFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared: `patch` has a line for every path at which the candidate's pods differ from the baseline's."""

    patch: str = ""


class ShownReport(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a report that is shown to a person."""

    verdict: str
    reason: str
    message: str
    findings: tuple[Finding, ...]
    criteria: tuple[CriterionLine, ...]
    funnel: Funnel
    arms: tuple[ArmLatencies, ...]
    classes: tuple[ClassTimes, ...] = ()
    worst_cases: tuple[WorstCase, ...] = ()
    matches: tuple[ArmMatches, ...] = ()
    method: str
    circumstances: Circumstances = Circumstances()
    facts: ShownFacts = ShownFacts()


def shown_report(raw: str) -> ShownReport:
    """Parse a report; raises `CommandError` naming the field that is wrong."""
    try:
        return msgspec.json.decode(raw, type=ShownReport)
    except msgspec.DecodeError as wrong:
        raise CommandError(f"the report cannot be read: {wrong}") from wrong
