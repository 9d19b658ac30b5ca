"""What is simulated, table by table. Data only; every world is explained by its own line in the document."""

from dataclasses import dataclass

from tests.bench.verdict.play import Method, by_each_request, by_minutes, by_the_judge, by_two_bands
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
    """Candidates worse by exactly the margin: how often they pass. `goal`: the share that may."""

    name: str
    lines: tuple[Line, ...]
    goal: float | None


@dataclass(frozen=True)
class Power:
    """Candidates that are not at the margin: pairs until the right outcome. `goal`: times the fixed sample's."""

    name: str
    lines: tuple[Line, ...]
    goal: float | None


def _phi(phi: float) -> str:
    return f"φ = {phi:g}"


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
    goal=0.05,
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
    goal=0.05,
)
OTHERS = FalsePasses(
    "verdict-others",
    (
        *(Line(f"z test on every pair, {_phi(phi)}", World(phi=phi), by_each_request) for phi in PHIS),
        *(Line(f"Mann-Whitney on minutes, {_phi(phi)}", World(phi=phi), by_minutes) for phi in PHIS),
        Line("two bands, φ = 0", World(), by_two_bands),
        Line("two bands, φ = 0.98", World(phi=0.98), by_two_bands),
    ),
    goal=None,
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
        Line("p50, 0 margins, φ = 0.9", World(quantile=0.5, effect=0.0, phi=0.9, pairs=24000)),
        Line("p95, 0 margins, two bands", World(effect=0.0, pairs=24000), by_two_bands),
        Line("p50, 0 margins, two bands", World(quantile=0.5, effect=0.0, pairs=24000), by_two_bands),
    ),
    goal=3.0,
)
TABLES: tuple[FalsePasses | Power, ...] = (LOAD, TRAFFIC, OTHERS, POWER)
