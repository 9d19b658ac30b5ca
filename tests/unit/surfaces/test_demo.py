"""What the demo prints for a status: the phase, the funnel, the criteria, and nothing invented."""

import pytest

from examples.demo import screen

pytestmark = pytest.mark.surfaces

STATUS = {
    "phase": "Running",
    "withinSLO": "99.0% / 98.0%",
    "funnel": {
        "requests": {
            "seen": 120, "selected": 100, "dropped": 4, "inTransit": 1, "admitted": 95,
            "arms": [
                {"name": "baseline", "completed": 90, "failed": 2, "withinSLO": 88},
                {"name": "candidate", "completed": 85, "failed": 7, "withinSLO": 80},
            ],
        },
        "tokens": {"seen": 12000, "selected": 10000, "dropped": 400, "admitted": 9500,
                   "arms": [{"name": "candidate", "completed": 8000, "failed": 1500}]},
        "tokenBasis": "Estimated",
    },
    "dropped": [{"reason": "Shed", "requests": 4, "tokens": 400}],
    "failures": [{"reason": "Timeout", "baseline": 2, "candidate": 7, "control": 0}],
    "criteria": [
        {"name": "long", "class": "long", "outcome": "Fail", "observed": "2 s", "baseline": "1 s", "limit": "1.1 s",
         "interval": "[-30, -10]", "pairs": 92},
        {"name": "tail", "outcome": "Pass", "pairs": 92, "informational": True},
    ],
}  # fmt: skip


def test_a_running_experiment_is_one_line_with_its_funnel() -> None:
    line = screen.one_line(STATUS)
    assert "\n" not in line
    for part in ("Running", "seen 120", "admitted 95", "dropped 4", "baseline 90+2", "candidate 85+7", "99.0% / 98.0%"):
        assert part in line


def test_before_anything_flows_the_line_says_what_is_waited_for() -> None:
    waiting = {"phase": "Preparing", "conditions": [
        {"type": "Accepted", "status": "True", "reason": "Accepted"},
        {"type": "ArmsReady", "status": "False", "reason": "Waiting", "message": "1 of 2 arms is ready"},
    ]}  # fmt: skip
    assert screen.one_line(waiting) == "Preparing  ArmsReady: 1 of 2 arms is ready"
    assert screen.one_line({}).startswith("Pending")


def test_the_funnel_is_shown_in_requests_and_tokens() -> None:
    lines = screen.funnel_table(STATUS)
    assert lines[0].split() == ["funnel", "requests", "tokens", "(estimated)"]
    assert ["selected", "100", "10000"] in [line.split() for line in lines]
    assert any(line.split() == ["candidate", "failed", "7", "1500"] for line in lines)


def test_every_criterion_is_shown_with_its_interval_and_whether_it_gates() -> None:
    lines = screen.criteria_table(STATUS)
    assert len(lines) == 3
    assert "[-30, -10]" in lines[1]
    assert "Pass (informational)" in lines[2]


def test_every_loss_is_shown_with_its_reason() -> None:
    assert screen.losses(STATUS) == [
        "dropped: 4 requests, 400 tokens: Shed",
        "failed: baseline 2, candidate 7 requests: Timeout",
    ]


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.9, "0:59"), (187, "3:07"), (3600, "60:00")])
def test_times_read_as_minutes_and_seconds(seconds: float, text: str) -> None:
    assert screen.elapsed(seconds) == text
