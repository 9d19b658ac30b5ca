"""The report: verdict, every number it rests on, and the evidence itself, so that it can be judged again. Types only.

The JSON form is stable under `version`; a reader ignores fields it does not know. Nothing in it is content.
"""

import math

import msgspec
from shadowrun_mirror.evidence import ArmEvidence
from shadowrun_mirror.histogram import Histogram

from shadowrun_operator.judge.criteria import CriterionResult, Outcome
from shadowrun_operator.judge.facts import Facts
from shadowrun_operator.judge.funnel import Funnel
from shadowrun_operator.judge.guards import Finding
from shadowrun_operator.judge.merge import Merged
from shadowrun_operator.judge.rules import Rules

VERSION = 1

METHOD = (
    "One look at the end. Mean of the pair indicator over blocks of time; variance of the ratio by linearisation,"
    " Student's t with one degree of freedom less than blocks, and the score bound for paired shares where wider."
    " Pass: lower bound at alpha {pass_alpha:g} above the limit, for every criterion. Fail: upper bound below the limit"
    " at alpha {fail_alpha:g}, shared among criteria by Holm's method. Failures count as infinitely slow."
)


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """A latency in seconds, for display. None where failures (counted as infinity) reach it or nothing was counted."""

    metric: str
    answers: int
    failed: int
    p50: float | None
    p95: float | None
    p99: float | None


class ArmReport(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies of one arm in one class; class "" is all together."""

    arm: str
    traffic_class: str
    latencies: tuple[Quantiles, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run. `reason` is a machine word, `message` a sentence with numbers."""

    version: int = VERSION
    verdict: Outcome
    reason: str
    message: str
    findings: tuple[Finding, ...]
    criteria: tuple[CriterionResult, ...]
    funnel: Funnel
    arms: tuple[ArmReport, ...]
    method: str
    rules: Rules
    facts: Facts
    evidence: Merged


def quantiles(results: ArmEvidence) -> tuple[Quantiles, ...]:
    """The displayed quantiles of an arm's three latencies."""
    named = (("TTFT", results.ttft), ("TPOT", results.tpot), ("E2E", results.e2e))
    return tuple(
        Quantiles(
            metric=name,
            answers=histogram.count,
            failed=histogram.failed,
            p50=_finite(histogram, 0.5),
            p95=_finite(histogram, 0.95),
            p99=_finite(histogram, 0.99),
        )
        for name, histogram in named
    )


def decode_report(raw: bytes | str) -> Report:
    """Parse a report; raises `msgspec.ValidationError` naming the field that is wrong."""
    return msgspec.json.decode(raw, type=Report)


def _finite(histogram: Histogram, p: float) -> float | None:
    value = histogram.quantile(p)
    return value if math.isfinite(value) else None
