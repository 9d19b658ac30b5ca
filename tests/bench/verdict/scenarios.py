"""What is simulated, table by table. Data only; every world is explained by its own line in the document."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from tests.bench.verdict.cost import CLASSES, CRITERIA, counting_us, evidence_bytes, judging_ms
from tests.bench.verdict.drops import Failing
from tests.bench.verdict.play import (
    FAIL_ALPHA,
    PASS_ALPHA,
    Method,
    by_each_request,
    by_halves,
    by_minutes,
    by_the_judge,
    by_two_bands,
)
from tests.bench.verdict.world import World

PHIS = (0.0, 0.5, 0.9, 0.98)
AT_THE_MARGIN = -1.0


@dataclass(frozen=True)
class Line:
    """One line of a table: what it is called, its world, and who judges it."""

    what: str
    world: World
    method: Method = by_the_judge


@dataclass(frozen=True)
class FalsePasses:
    """Candidates worse by exactly the margin: how often they pass or fail. `goals`: the shares that may."""

    name: str
    lines: tuple[Line, ...]
    goals: tuple[float, float] | None


@dataclass(frozen=True)
class Power:
    """Candidates that are not at the margin: pairs until the right outcome. `goal`: times the fixed sample's."""

    name: str
    lines: tuple[Line, ...]
    goal: float | None


@dataclass(frozen=True)
class Noise:
    """Controls, equal to the baseline or off by margins: how often they are called noisy. `goal`: of equal ones."""

    name: str
    lines: tuple[Line, ...]
    goal: float


@dataclass(frozen=True)
class DropLine:
    """One line of the table of drops; `is_one` where the long requests are dropped and Fail is right."""

    what: str
    world: Failing
    is_one: bool = False


@dataclass(frozen=True)
class Drops:
    """Requests that fail: how often that is called DroppedHardRequests. `goal`: where it isn't."""

    name: str
    lines: tuple[DropLine, ...]
    goal: float = 0.01


@dataclass(frozen=True)
class CostLine:
    """One cost: what, in which unit, at most how much, and how it is measured."""

    what: str
    unit: str
    at_most: float | None
    measure: Callable[[], float]


@dataclass(frozen=True)
class Costs:
    """What counting and judging cost."""

    name: str
    lines: tuple[CostLine, ...]


def _phi(phi: float) -> str:
    return f"φ = {phi:g}"


LEVELS = (PASS_ALPHA, FAIL_ALPHA)
LOAD = FalsePasses(
    "verdict-load",
    (
        *(Line(f"p95, {_phi(phi)}", World(phi=phi)) for phi in PHIS),
        *(Line(f"p50, {_phi(phi)}", World(phi=phi, quantile=0.5)) for phi in PHIS),
        *(Line(f"within SLO, 1 point, {_phi(phi)}", World(phi=phi, quantile=None, margin=0.01)) for phi in PHIS),
        Line("within SLO, 3 points, φ = 0", World(quantile=None, margin=0.03)),
        Line("p95, φ = 0.98, with a control", World(phi=0.98, control=True)),
        Line("p50, φ = 0.98, noise twice as strong", World(phi=0.98, quantile=0.5, noise=0.8)),
    ),
    goals=LEVELS,
)
TRAFFIC = FalsePasses(
    "verdict-traffic",
    (
        *(
            Line(f"lengths of {name}", World(phi=0.9, lengths=name))
            for name in ("mooncake", "azure-code", "azure-conv")
        ),
        Line("a day's waves, 1 pair in 20 s", World(phi=0.9, per_second=0.05, diurnal=True)),
        *(Line(f"{shed:.0%} shed at high load", World(phi=0.9, shed=shed)) for shed in (0.1, 0.3)),
        Line("4 replicas", World(phi=0.9, replicas=4, pairs=3000)),
        Line("4 replicas, 30% shed, a day's waves", World(phi=0.9, replicas=4, shed=0.3, diurnal=True, pairs=3000)),
    ),
    goals=LEVELS,
)
_TRACES = ("mooncake", "azure-code", "azure-conv")
WEIGHTED = FalsePasses(
    "verdict-tokens",
    (
        *(Line(f"p95, {n}, {_phi(0.0)}", World(weighted=True, lengths=n)) for n in _TRACES),
        *(
            Line(f"p50, mooncake, {_phi(p)}", World(weighted=True, lengths="mooncake", quantile=0.5, phi=p))
            for p in PHIS
        ),
        *(
            Line(
                f"within SLO, 3 points, mooncake, {_phi(p)}",
                World(weighted=True, lengths="mooncake", quantile=None, margin=0.03, phi=p),
            )
            for p in (0.0, 0.9)
        ),
        Line(
            "p95, mooncake, φ = 0.9, 4 replicas, 30% shed",
            World(weighted=True, lengths="mooncake", phi=0.9, replicas=4, shed=0.3),
        ),
    ),
    goals=LEVELS,
)
OTHERS = FalsePasses(
    "verdict-others",
    (
        *(Line(f"z test on every pair, {_phi(phi)}", World(phi=phi), by_each_request) for phi in PHIS),
        *(Line(f"Mann-Whitney on minutes, {_phi(phi)}", World(phi=phi), by_minutes) for phi in PHIS),
        Line("two bands, φ = 0", World(), by_two_bands),
        Line("two bands, φ = 0.98", World(phi=0.98), by_two_bands),
    ),
    goals=None,
)
_QUANTILES = (("p50", 0.5), ("p95", 0.95))
_NODES = (
    ("nodes are equal", 0.0),
    ("its {}node faster by the margin", 1.0),
    ("its {}node faster by three margins", 3.0),
    ("its {}node slower by the margin", -1.0),
    ("its {}node slower by three margins", -3.0),
)
UNEQUAL = FalsePasses(
    "verdict-unequal-nodes",
    tuple(
        Line(f"{name}, {said.format('')}", World(phi=0.9, quantile=q, nodes=nodes))
        for name, q in _QUANTILES
        for said, nodes in _NODES
    ),
    goals=None,
)
CROSSOVER = FalsePasses(
    "verdict-crossover",
    tuple(
        Line(
            f"{name}, {said.format('first ')}",
            World(phi=0.9, quantile=q, nodes=nodes, crossover=True, pairs=8000),
            by_halves,
        )
        for name, q in _QUANTILES
        for said, nodes in _NODES
    ),
    goals=LEVELS,
)
POWER = Power(
    "verdict-power",
    (
        *(Line(f"p50, {e:+g} margins", World(quantile=0.5, effect=e)) for e in (0.0, 1.0, 3.0, -3.0)),
        *(Line(f"p95, {e:+g} margins", World(effect=e, pairs=16000)) for e in (0.0, 1.0, 3.0, -3.0)),
        *(
            Line(f"within SLO, 1 point, {e:+g} margins", World(quantile=None, margin=0.01, effect=e, pairs=16000))
            for e in (0.0, 1.0, 3.0, -3.0)
        ),
        Line("p50, 0 margins, by tokens", World(quantile=0.5, effect=0.0, weighted=True, lengths="mooncake")),
        Line("p50, -3 margins, by tokens", World(quantile=0.5, effect=-3.0, weighted=True, lengths="mooncake")),
        Line("p50, 0 margins, φ = 0.9", World(quantile=0.5, effect=0.0, phi=0.9, pairs=24000)),
        Line("p95, 0 margins, two bands", World(effect=0.0, pairs=24000), by_two_bands),
        Line("p50, 0 margins, two bands", World(quantile=0.5, effect=0.0, pairs=24000), by_two_bands),
    ),
    goal=3.0,
)
_CONTROLS = (
    ("p50", World(quantile=0.5, control=True, effect=0.0)),
    ("p95", World(control=True, effect=0.0)),
    ("within SLO, 1 point", World(quantile=None, margin=0.01, control=True, effect=0.0)),
)
NOISE = Noise(
    "verdict-noise",
    (
        *(Line(f"{said}, equal, {_phi(p)}", replace(w, phi=p)) for said, w in _CONTROLS for p in (0.0, 0.9, 0.98)),
        *(
            Line(f"{said}, {off:g} margins slower", replace(w, control_effect=-off))
            for said, w in _CONTROLS
            for off in (1.0, 2.0, 3.0)
        ),
    ),
    goal=0.05,
)
DROPS = Drops(
    "verdict-drops",
    (
        DropLine("both arms fail 10 %, any", Failing(candidate_any=0.1, baseline_any=0.1)),
        DropLine("both arms fail half of the longest 20 %", Failing(both_longest=0.2)),
        DropLine("both arms fail half of the longest 40 %", Failing(both_longest=0.4)),
        DropLine("both arms fail 1 %, any", Failing(candidate_any=0.01, baseline_any=0.01)),
        DropLine("the candidate fails 1 %, any", Failing(candidate_any=0.01)),
        DropLine("the candidate fails 2 %, any", Failing(candidate_any=0.02)),
        DropLine("the candidate fails 2 %, any, 600 pairs", Failing(candidate_any=0.02, pairs=600)),
        DropLine("the candidate fails 5 %, any", Failing(candidate_any=0.05)),
        DropLine("the candidate fails 10 %, any", Failing(candidate_any=0.1)),
        DropLine("the same, lengths in runs", Failing(candidate_any=0.1, runs_of_length=0.9)),
        DropLine("away for 10 s each minute, lengths in runs", Failing(away=10, every=60, runs_of_length=0.9)),
        DropLine("away for 30 s each 5 min, lengths in runs", Failing(away=30, every=300, runs_of_length=0.9)),
        DropLine("drops the longest 20 %", Failing(candidate_longest=0.2), is_one=True),
        DropLine("drops the longest 10 %", Failing(candidate_longest=0.1), is_one=True),
        DropLine("the same, 8 pairs a second", Failing(candidate_longest=0.1, per_second=8), is_one=True),
        DropLine("the same, of Azure's lengths", Failing(candidate_longest=0.1, lengths="azure-conv"), is_one=True),
        DropLine("drops the longest 10 %, one of 20 classes", Failing(candidate_longest=0.1, scopes=21), is_one=True),
        DropLine("drops the longest 5 %", Failing(candidate_longest=0.05), is_one=True),
    ),
)
COSTS = Costs(
    "verdict-cost",
    (
        CostLine("counting, for each pair and arm", "µs", 15, partial(counting_us, "Requests", 3000)),
        CostLine("the same, all criteria by tokens", "µs", 15, partial(counting_us, "Tokens", 3000)),
        CostLine("a criterion's evidence after 1,000 pairs", "bytes", None, partial(evidence_bytes, "Requests", 1000)),
        CostLine("after 100,000 pairs", "bytes", None, partial(evidence_bytes, "Requests", 100_000)),
        CostLine("by tokens, after 1,000 pairs", "bytes", None, partial(evidence_bytes, "Tokens", 1000)),
        CostLine("by tokens, after 100,000 pairs", "bytes", None, partial(evidence_bytes, "Tokens", 100_000)),
        CostLine(f"judging {CRITERIA} criteria and {CLASSES} classes", "ms", 100, partial(judging_ms, CRITERIA, 9)),
    ),
)
Table = FalsePasses | Power | Noise | Drops | Costs
TABLES: tuple[Table, ...] = (LOAD, TRAFFIC, WEIGHTED, OTHERS, UNEQUAL, CROSSOVER, POWER, NOISE, DROPS, COSTS)
