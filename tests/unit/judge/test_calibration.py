"""Limits are taken from the later part of the warm-up: what came before the arms were warm has no part in them."""

import pytest
from hypothesis import given, settings
from shadowrun_mirror.evidence import Window
from shadowrun_operator.judge.merge import calibration_mark, calibration_of, together
from shadowrun_operator.judge.thresholds import indicators

from tests.unit.evidence.evidences import windows
from tests.unit.judge.synthetic import DEFAULT_RULES, Recorder

pytestmark = pytest.mark.verdict


@settings(max_examples=30)
@given(windows(0), windows(0))
def test_what_came_before_the_mark_has_no_part_in_the_calibration(before: Window, after: Window) -> None:
    found = calibration_of(before.merged(after), calibration_mark(before))
    for name in ("long", "default"):
        expected, actual = together(after, name), together(found, name)
        assert actual.admitted - actual.in_flight == expected.admitted - expected.in_flight
        for arm, result in expected.arms.items():
            assert actual.arms[arm].ttft == result.ttft
            assert actual.arms[arm].e2e == result.e2e


def test_a_slow_start_does_not_move_the_limits() -> None:
    recorder = Recorder()
    for i in range(200):
        recorder.pair(0, i, {"baseline": 5.0, "candidate": 5.0})
    mark = calibration_mark(recorder.windows[0])
    for i in range(200):
        recorder.pair(0, 200 + i, {"baseline": 0.2 + i / 1000, "candidate": 0.2})
    limits = [i.baseline_limit_s for i in indicators(DEFAULT_RULES, calibration_of(recorder.windows[0], mark))]
    assert all(limit is None or limit < 1 for limit in limits)
    assert any(limit is not None for limit in limits)
