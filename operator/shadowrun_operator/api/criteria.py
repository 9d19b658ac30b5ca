"""Blocks of the spec about judging: objectives, classes of requests, coverage, comparison, criteria.

Bounds and rules only; the spec as a whole is in `spec`. This module must not decide anything.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from shadowrun_operator.api.block import AS_SET, DEFAULT_CLASS, Block, FieldPath, ShortName, rules
from shadowrun_operator.api.quantities import Latency, Percent

Metric = Literal["TTFT", "TPOT", "E2E", "WithinSLO", "Failures"]


class SLO(Block):
    """Limits that an answer must all meet to be within the service level objective."""

    ttft: Latency | None = None
    """Longest time to the first token."""
    tpot: Latency | None = None
    """Longest mean time per output token after the first."""
    e2e: Latency | None = Field(default=None, alias="e2e")
    """Longest time to the last content of the answer."""


class CountRange(Block):
    """A range of counts, both ends included."""

    model_config = ConfigDict(
        json_schema_extra=rules(("!has(self.min) || !has(self.max) || self.min <= self.max", "min must not exceed max"))
    )

    min: int | None = Field(default=None, ge=0, le=100_000_000)
    """Smallest count."""
    max: int | None = Field(default=None, ge=0, le=100_000_000)
    """Largest count."""


_CONDITIONS = ("promptTokens", "turns", "stream", "tools", "schema", "images")
_ANY_CONDITION = " || ".join(f"has(self.{name})" for name in _CONDITIONS)


class ClassCondition(Block):
    """What a request must look like to be of a class; all that is set must hold."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                _ANY_CONDITION,
                "a class needs at least one condition",
            )
        )
    )

    prompt_tokens: CountRange | None = None
    """Length of the prompt in tokens, estimated from its bytes."""
    turns: CountRange | None = None
    """How many messages of the user the request has; the first request of a conversation has one."""
    stream: bool | None = None
    """Whether the answer is asked for as a stream."""
    tools: bool | None = None
    """Whether the request offers tools."""
    structured: bool | None = Field(default=None, alias="schema")
    """Whether the answer is asked for in a given form: JSON, or a JSON schema."""
    images: bool | None = None
    """Whether the request contains images."""


class ClassCoverage(Block):
    """Shares of one class's selected traffic that must have been measured."""

    min_requests: Percent | None = None
    """Least share of the selected requests; the run's coverage.minRequests when absent."""
    min_tokens: Percent | None = None
    """Least share of the selected tokens; the run's coverage.minTokens when absent."""


class TrafficClass(Block):
    """A class of requests, known before they are answered; the first that matches wins, the rest is "default"."""

    name: ShortName = Field(
        json_schema_extra=rules((f"self != '{DEFAULT_CLASS}'", "the class default exists by itself"))
    )
    """Name of the class."""
    when: ClassCondition
    """What a request of the class looks like."""
    slo: SLO | None = None
    """Limits of the class, used as a whole instead of spec.slo."""
    coverage: ClassCoverage = ClassCoverage()
    """Floors of the class where they differ from spec.coverage."""


class Coverage(Block):
    """Shares of the selected traffic that must have been measured, in every class that a criterion looks at."""

    min_requests: Percent = Percent("90%")
    """Least share of the selected requests of a class that became pairs."""
    min_tokens: Percent = Percent("80%")
    """Least share of the selected tokens of a class that became pairs."""


class Comparison(Block):
    """How the arms' answers are compared with each other; what comes of it is reported and no part of the verdict."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "self.output == 'Parity' || (size(self.ignoreFields) == 0 && self.arrayOrder == 'Significant')",
                "ignoreFields and arrayOrder say how answers are compared: set output to Parity, or leave them out",
            )
        )
    )

    output: Literal["None", "Parity", "Distribution"] = "None"
    """Whether answers are not compared, match when equal, or (not implemented) may differ as the control's do."""
    ignore_fields: tuple[FieldPath, ...] = Field(default=(), max_length=32, json_schema_extra=AS_SET)
    """Fields of an answer that are known to differ, as paths through objects, lists and texts that are JSON."""
    array_order: Literal["Significant", "Ignored"] = "Significant"
    """Whether the order inside lists matters."""
    checks: tuple[Literal["JSONSchema", "ToolCalls"], ...] = Field(default=(), max_length=2, json_schema_extra=AS_SET)
    """Not implemented: checks that each answer must pass by itself."""


class Criterion(Block):
    """One statement about the candidate against the baseline, which the evidence proves, refutes or leaves open."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "self.metric in ['TTFT', 'TPOT', 'E2E'] ? has(self.quantile) : !has(self.quantile)",
                "quantile is required for TTFT, TPOT and E2E, and not allowed for WithinSLO and Failures",
            ),
            (
                "self.require != 'NotWorse' || self.margin.matches('[1-9]')",
                "NotWorse needs a margin above 0%: without one no amount of data can prove it",
            ),
            (
                "!(self.critical && self.informational)",
                "a criterion is critical or informational, not both",
            ),
        )
    )

    name: ShortName
    """Name of the criterion, unique in the run."""
    metric: Metric
    """What is compared: a latency, the share of answers within the SLO, or the share of failures."""
    quantile: Literal["p50", "p90", "p95", "p99"] | None = None
    """Quantile of a latency."""
    traffic_class: Annotated[str, StringConstraints(pattern="^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", max_length=32)] = (
        Field(default="", alias="class")
    )
    """Class of requests the criterion looks at; empty means all together."""
    require: Literal["Better", "NotWorse"]
    """Whether the candidate must be better, or only not worse by more than the margin."""
    weight: Literal["Requests", "Tokens"] = "Requests"
    """Whether every pair counts once or by the length of its prompt, estimated from its bytes and bounded."""
    margin: Percent = Field(
        default=Percent("0%"), json_schema_extra=rules(("!self.startsWith('100')", "margin must be below 100%"))
    )
    """Tolerated loss of NotWorse or demanded gain of Better: a ratio for latencies, percentage points for shares."""
    min_pairs: int = Field(default=200, ge=1, le=100_000_000)
    """Fewest counted pairs for a judgement."""
    critical: bool = False
    """Whether its proven violation ends the run at once, and is named first as the reason of the verdict Fail."""
    informational: bool = False
    """Whether the criterion is only reported and takes no part in the verdict."""
