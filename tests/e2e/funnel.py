"""The funnel's equations, checked on the status of any run at any time."""

from typing import Any


def assert_status_adds_up(status: dict[str, Any]) -> None:
    """Requests and tokens: seen = notSelected + selected, selected = dropped + inTransit + admitted, and each arm."""
    funnel = status.get("funnel")
    if not funnel:
        return
    for unit in ("requests", "tokens"):
        counts = funnel[unit]
        assert counts["seen"] == counts["notSelected"] + counts["selected"], (unit, counts)
        assert counts["selected"] == counts["dropped"] + counts["inTransit"] + counts["admitted"], (unit, counts)
        assert sum(loss[unit] for loss in status.get("dropped", [])) == counts["dropped"], (unit, status["dropped"])
        for arm in counts.get("arms", []):
            ended = arm["completed"] + arm["failed"] + arm["inFlight"]
            assert ended == counts["admitted"], (unit, arm, counts["admitted"])
            assert arm["withinSLO"] <= arm["completed"], (unit, arm)
    if status.get("phase") == "Complete":
        for arm in funnel["requests"].get("arms", []):
            assert arm["inFlight"] == 0, "nothing is in flight after the end"
        assert funnel["requests"]["inTransit"] == 0, "nothing is in transit after the end"
