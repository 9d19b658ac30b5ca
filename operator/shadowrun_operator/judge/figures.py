"""Numbers as people read them. Nothing else."""

import math


def percent(part: float, whole: float) -> str:
    """A share as 12.3%; "-" of nothing."""
    return f"{100 * part / whole:.1f}%" if whole else "-"


def at_least(share: float) -> str:
    """A lower bound as 99.12%, rounded down, so that it is never said to be more than it is."""
    return f"{math.floor(10_000 * share + 1e-6) / 100:.2f}%"


def seconds(value: float) -> str:
    """A latency with three significant digits, in ms below one second."""
    return f"{value:.3g} s" if value >= 0.9995 else f"{1000 * value:.3g} ms"
