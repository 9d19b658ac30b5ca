"""Numbers as people read them. Nothing else."""


def percent(part: float, whole: float) -> str:
    """A share as 12.3%; "-" of nothing."""
    return f"{100 * part / whole:.1f}%" if whole else "-"


def seconds(value: float) -> str:
    """A latency with three significant digits, in ms below one second."""
    return f"{value:.3g} s" if value >= 0.9995 else f"{1000 * value:.3g} ms"
