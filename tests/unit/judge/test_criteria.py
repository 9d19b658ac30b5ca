"""Each criterion by itself: limits, outcomes, Holm's correction, what is still needed."""

import random

import msgspec
import pytest
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_operator.judge.criteria import CriterionResult, judged
from shadowrun_operator.judge.rules import Criterion, Require, Rules

from tests.unit.judge.synthetic import BETTER, DEFAULT_RULES, NO_ERRORS, facts, recorded, slower

pytestmark = pytest.mark.verdict


def outcome(require: Require, margin: float, mean: float, *, pairs: int = 2000, spread: float = 0.3) -> CriterionResult:
    """A criterion on a share whose z has this mean, over two pairs a second."""
    draw = random.Random(2)
    criterion = Criterion(name="c", metric="WithinSLO", require=require, margin=margin)
    recorder = recorded(Rules(criteria=(criterion,)), pairs=10)
    won, lost = round(pairs * (spread + mean) / 2), round(pairs * (spread - mean) / 2)
    outcomes = [1] * won + [-1] * lost + [0] * (pairs - won - lost)
    draw.shuffle(outcomes)
    series = BlockSeries()
    for i, z in enumerate(outcomes):
        series.add(i // 2, z)
    recorder.windows[1].pairs = {"candidate": {"c": series}}
    (result,) = judged(Rules(criteria=(criterion,)), recorder.merged(), facts(recorder))
    return result


@pytest.mark.parametrize(
    ("require", "margin", "mean", "expected"),
    [
        ("Better", 0.0, 0.10, "Pass"),
        ("Better", 0.0, 0.0, "Inconclusive"),
        ("Better", 0.0, -0.10, "Fail"),
        ("Better", 0.05, 0.10, "Pass"),
        ("Better", 0.10, 0.10, "Inconclusive"),
        ("Better", 0.20, 0.10, "Fail"),
        ("NotWorse", 0.05, 0.0, "Pass"),
        ("NotWorse", 0.05, -0.05, "Inconclusive"),
        ("NotWorse", 0.05, -0.10, "Fail"),
    ],
)
def test_the_outcome_follows_from_difference_and_margin(
    require: Require, margin: float, mean: float, expected: str
) -> None:
    result = outcome(require, margin, mean)
    assert result.outcome == expected
    assert result.limit == (margin if require == "Better" else -margin)
    assert result.lower is not None
    assert result.upper is not None
    assert (result.lower > result.limit) == (expected == "Pass")
    assert (result.upper < result.limit) == (expected == "Fail")
    assert result.gap == ("Undecided" if expected == "Inconclusive" else "")


def test_what_is_needed_is_about_what_then_suffices() -> None:
    open_result = outcome("Better", 0.0, 0.03, pairs=600)
    assert open_result.outcome == "Inconclusive"
    assert open_result.difference is not None
    assert open_result.needed > 0
    enough = open_result.pairs + 2 * open_result.needed
    assert outcome("Better", 0.0, open_result.difference, pairs=enough).outcome == "Pass"


def test_enough_for_a_bound_but_below_min_pairs_is_open() -> None:
    rules = Rules(criteria=(msgspec.structs.replace(BETTER, min_pairs=601),))
    recorder = recorded(rules)
    (result,) = judged(rules, recorder.merged(), facts(recorder))
    assert (result.outcome, result.gap, result.needed) == ("Inconclusive", "TooFewPairs", 1)


def test_figures_are_those_of_the_arms() -> None:
    recorder = recorded()
    rules = Rules(criteria=(BETTER, NO_ERRORS))
    faster, errors = judged(rules, recorder.merged(), facts(recorder))
    part = recorder.windows[1].classes["default"]
    assert (faster.candidate, faster.baseline) == tuple(
        part.arms[a].ttft.quantile(0.5) for a in ("candidate", "baseline")
    )
    assert (errors.candidate, errors.baseline) == (0.0, 0.0)


def test_a_quantile_reached_by_failures_has_no_figure() -> None:
    recorder = recorded(candidate=lambda draw, baseline_s: float("inf") if draw.random() < 0.7 else baseline_s)
    (result,) = judged(Rules(criteria=(BETTER,)), recorder.merged(), facts(recorder))
    assert (result.candidate, result.outcome) == (None, "Fail")


def test_fail_levels_are_shared_by_holms_method() -> None:
    recorder = recorded(candidate=slower, pairs=4000)
    names = ("faster", "not-slower", "slo", "errors")
    results = {r.name: r for r in judged(DEFAULT_RULES, recorder.merged(), facts(recorder))}
    assert [results[n].outcome for n in names] == ["Fail", "Fail", "Pass", "Pass"]
    assert [results[n].fail_alpha for n in names] == pytest.approx([0.01 / 4, 0.01 / 4, 0.01 / 2, 0.01 / 2])


def test_informational_criteria_neither_gate_nor_cost_the_others_anything() -> None:
    extra = tuple(msgspec.structs.replace(BETTER, name=f"info-{i}", informational=True) for i in range(5))
    rules = Rules(criteria=(BETTER, *extra))
    recorder = recorded(rules, slower)
    results = judged(rules, recorder.merged(), facts(recorder))
    assert {r.outcome for r in results} == {"Fail"}
    assert {r.fail_alpha for r in results} == {0.01}
