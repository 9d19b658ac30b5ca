"""Columns of text, and times in them. Pure."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; an empty cell is a dash."""
    lines = [tuple(head), *(tuple(cell or "-" for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("   ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def duration(seconds: float | None) -> str:
    """A time with three significant digits, in ms below one second; "" where there is none."""
    if seconds is None:
        return ""
    return f"{seconds:.3g} s" if seconds >= 0.9995 else f"{1000 * seconds:.3g} ms"


def percent(share: float | None) -> str:
    """A share with two decimals; "" where there is none."""
    return "" if share is None else f"{100 * share:.2f}%"
