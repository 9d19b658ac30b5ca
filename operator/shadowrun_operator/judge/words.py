"""Sentences about results for people who don't do statistics; every number is the report's. Decides nothing."""

from collections.abc import Sequence

from shadowrun_operator.judge.criteria import CriterionResult
from shadowrun_operator.judge.figures import percent, seconds
from shadowrun_operator.judge.rules import LATENCIES

_METRICS = {
    "TTFT": "time to first token",
    "TPOT": "time per output token",
    "E2E": "time to the end of the answer",
    "WithinSLO": "answers within the SLO",
    "Failures": "failed answers",
}


def figure(result: CriterionResult, value: float | None) -> str:
    """The metric of an arm: a latency or a share; "none" where failures reach the quantile or nothing was counted."""
    if value is None:
        return "none"
    return seconds(value) if result.metric in LATENCIES else percent(value, 1)


def names(results: Sequence[CriterionResult], said: str) -> str:
    """A further sentence that names criteria, such as " Also violated: a, b."; "" for none."""
    return f" {said}: {', '.join(r.name for r in results)}." if results else ""


def interval(result: CriterionResult) -> str:
    """The bounds of the difference in points: from below for Pass, from above for Fail, both while it is open."""
    low = "-∞" if result.lower is None or result.outcome == "Fail" else _points(result.lower)
    high = "∞" if result.upper is None or result.outcome == "Pass" else _points(result.upper)
    return f"{'(' if low == '-∞' else '['}{low}, {high}{')' if high == '∞' else ']'}"


def requirement(result: CriterionResult) -> str:
    """What the difference has to exceed."""
    return f"> {_points(result.limit) if result.limit else '0'} points"


def subject(result: CriterionResult) -> str:
    """What the criterion looks at, such as "p95 TTFT of class long"."""
    what = f"p{round(100 * result.quantile)} {result.metric}" if result.quantile is not None else result.metric
    scope = f"class {result.traffic_class}" if result.traffic_class else "all classes"
    return f"{what} of {scope}{' by prompt tokens' if result.weight == 'Tokens' else ''}"


def criterion_sentence(result: CriterionResult) -> str:
    """One sentence about a criterion: outcome, figures of both arms, difference, interval, pairs, what was needed."""
    head = f'"{result.name}" {_OUTCOMES[result.outcome]}: {subject(result)}'
    if result.difference is None:
        return f"{head}, {_why_open(result)}."
    body = (
        f"{head}, candidate {figure(result, result.candidate)} and baseline {figure(result, result.baseline)},"
        f" {_comparison(result)} differs by {_points(result.difference)} points {interval(result)} over"
        f" {result.pairs} pairs in {result.blocks} blocks{_by_halves(result)}, needed {requirement(result)}"
    )
    return f"{body}; {_why_open(result)}." if result.outcome == "Inconclusive" else f"{body}."


def criterion_note(result: CriterionResult) -> str:
    """A short form beside the figures: what differs by how much, or why it is open."""
    if result.outcome == "Inconclusive":
        return _why_open(result)
    return f"{_comparison(result)} differs by {_points(result.difference or 0.0)} points, in {result.blocks} blocks"


def _by_halves(result: CriterionResult) -> str:
    """The difference in each half, where the arms changed places."""
    said = ["none" if half.difference is None else _points(half.difference) for half in result.halves]
    return f" ({said[0]} in the first half, {said[1]} in the second)" if said else ""


_HALVES_DIFFER = "the halves differ by more than chance, so it is the node or the hour that differs, not the arm alone"
_UNLIKE = "quantiles between do not all say the same"
_OUTCOMES = {"Pass": "holds", "Fail": "is violated", "Inconclusive": "is open"}


def _comparison(result: CriterionResult) -> str:
    """What the points are a share of; positive is good for the candidate."""
    return _share_compared(result) + (" by tokens" if result.weight == "Tokens" else "")


def _share_compared(result: CriterionResult) -> str:
    if result.metric == "Failures":
        return "share that did not fail"
    if result.metric == "WithinSLO":
        return "share within the SLO"
    if result.baseline_limit_s is None or result.challenger_limit_s is None:
        return "share within the limit"
    theirs, ours = seconds(result.baseline_limit_s), seconds(result.challenger_limit_s)
    return f"share within {ours}" if ours == theirs else f"share within {ours} (baseline: {theirs})"


def _why_open(result: CriterionResult) -> str:
    if result.gap == "HalvesDisagree":
        return _HALVES_DIFFER
    for half, number in zip(result.halves, ("first", "second"), strict=False):
        if half.gap == result.gap:
            return f"in the {number} half {_why_open(half)}"
    further = f"about {result.needed} further pairs needed" if result.needed else "how many more is unknown"
    if result.gap == "TooFewPairs":
        if result.pairs >= result.min_pairs:
            return f"{result.pairs} pairs lie in only {result.blocks} blocks of time, {further}"
        return f"{result.pairs} of at least {result.min_pairs} pairs, {further}"
    if result.gap == "NoThreshold":
        return f"the warm-up gave no limit for the baseline's {_METRICS[result.metric]}"
    if result.gap == "ThresholdDrifted" and result.position is not None and result.quantile is not None:
        place = result.position
        between = "shares of tokens between are not known" if result.weight == "Tokens" else _UNLIKE
        return (
            f"the baseline's frozen limit should be its p{100 * result.quantile:.0f} and became"
            f" p{100 * place.low:.1f} to p{100 * place.high:.1f}, and {between}"
        )
    return f"the interval still contains the limit, {further}"


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"
