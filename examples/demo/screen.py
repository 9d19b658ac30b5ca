"""What the demo prints: a status of a ShadowRun as lines for people. Pure."""

from collections.abc import Iterable
from typing import Any

Status = dict[str, Any]

_STEPS = ("seen", "selected", "dropped", "inTransit", "admitted")


def elapsed(seconds: float) -> str:
    """A time for the left margin: `3:07`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def one_line(status: Status) -> str:
    """Phase and funnel in one line that can be rewritten in place."""
    phase = status.get("phase", "Pending")
    requests = status.get("funnel", {}).get("requests", {})
    if phase in ("Pending", "Preparing", "WarmingUp"):
        return f"{phase:<10} {status.get('message') or waiting_for(status)}"
    steps = "  ".join(f"{name} {requests.get(name, 0)}" for name in ("seen", "selected", "admitted"))
    arms = "  ".join(f"{arm['name']} {arm.get('completed', 0)}+{arm.get('failed', 0)}" for arm in _arms(requests))
    lost = f"  dropped {requests['dropped']}" if requests.get("dropped") else ""
    within = f"  within SLO {status['withinSLO']}" if status.get("withinSLO") else ""
    return f"{phase:<10} {steps}{lost}  {arms}{within}".rstrip()


def waiting_for(status: Status) -> str:
    """Which conditions do not hold yet."""
    waiting = [c for c in status.get("conditions", []) if c["status"] != "True" and c["type"] != "Succeeded"]
    return "; ".join(f"{c['type']}: {c.get('message') or c['reason']}" for c in waiting[:2])


def _arms(requests: dict[str, Any]) -> list[dict[str, Any]]:
    return list(requests.get("arms", []))


def table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Rows in columns as wide as their widest cell."""
    rows = list(rows)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def funnel_table(status: Status) -> list[str]:
    """The funnel in requests and tokens, with what every arm did."""
    funnel = status.get("funnel", {})
    requests, tokens = funnel.get("requests", {}), funnel.get("tokens", {})
    rows = [("funnel", "requests", f"tokens ({funnel.get('tokenBasis', 'Estimated').lower()})")]
    rows += [(step, str(requests.get(step, 0)), str(tokens.get(step, 0))) for step in _STEPS]
    by_name = {arm["name"]: arm for arm in _arms(tokens)}
    for arm in _arms(requests):
        for step in ("completed", "withinSLO", "failed"):
            counted = by_name.get(arm["name"], {}).get(step, 0)
            rows.append((f"  {arm['name']} {step}", str(arm.get(step, 0)), str(counted)))
    return table(rows)


def criteria_table(status: Status) -> list[str]:
    """Every criterion with its figures and interval."""
    rows = [("criterion", "class", "outcome", "baseline", "candidate", "limit", "interval", "pairs")]
    for c in status.get("criteria", []):
        outcome = c["outcome"] + (" (informational)" if c.get("informational") else "")
        cells = (c.get(key, "") for key in ("baseline", "observed", "limit", "interval"))
        rows.append((c["name"], c.get("class") or "all", outcome, *cells, str(c.get("pairs", 0))))
    return table(rows)


def losses(status: Status) -> list[str]:
    """Why requests left the funnel, one line a reason."""
    lines = [
        f"dropped: {d['requests']} requests, {d['tokens']} tokens: {d['reason']}" for d in status.get("dropped", [])
    ]
    arms = [arm["name"] for arm in _arms(status.get("funnel", {}).get("requests", {}))]
    for failure in status.get("failures", []):
        counts = ", ".join(f"{arm} {failure.get(arm, 0)}" for arm in arms)
        lines.append(f"failed: {counts} requests: {failure['reason']}")
    return lines
