"""How often the judge is wrong on independent pairs, by simulation; binomial bounds at the 1 % level."""

import random

import msgspec
import pytest
from scipy.stats import binomtest
from shadowrun_operator.judge.criteria import judged
from shadowrun_operator.judge.merge import Merged
from shadowrun_operator.judge.rules import Criterion, Rules

from tests.unit.evidence.evidences import series
from tests.unit.judge.synthetic import Recorder, facts, recorded

pytestmark = pytest.mark.verdict

PAIRS = 700
RUNS = 400


def outcomes(criterion: Criterion, won: float, lost: float, runs: int, seed: int) -> list[str]:
    """Outcomes of `runs` runs whose pairs are won and lost independently with these probabilities."""
    rules, draw = Rules(criteria=(criterion,)), random.Random(seed)
    recorder: Recorder = recorded(rules, pairs=20)
    base, known = recorder.merged(), facts(recorder)
    found: list[str] = []
    for _ in range(runs):
        drawn = (draw.random() for _ in range(PAIRS))
        pairs = [(i // 2, 1 if u < won else -1 if u < won + lost else 0) for i, u in enumerate(drawn)]
        counted = msgspec.structs.replace(base.counted, pairs={"candidate": {criterion.name: series(pairs)}})
        evidence: Merged = msgspec.structs.replace(base, counted=counted)
        found.append(judged(rules, evidence, known)[0].outcome)
    return found


BETTER = Criterion(name="c", metric="WithinSLO", require="Better")
NOT_WORSE = Criterion(name="c", metric="WithinSLO", require="NotWorse", margin=0.05)


@pytest.mark.parametrize(
    ("criterion", "won", "lost"),
    [
        (BETTER, 0.10, 0.10),  # equal arms
        (BETTER, 0.004, 0.004),  # equal arms that hardly ever differ
        (NOT_WORSE, 0.05, 0.10),  # exactly at the margin
        (NOT_WORSE, 0.0, 0.05),
    ],
)
def test_false_passes_are_at_most_as_frequent_as_stated(criterion: Criterion, won: float, lost: float) -> None:
    passed = outcomes(criterion, won, lost, RUNS, seed=41).count("Pass")
    assert binomtest(passed, RUNS, Rules(criteria=()).pass_alpha, alternative="greater").pvalue > 0.01


def test_false_fails_are_at_most_as_frequent_as_stated() -> None:
    failed = outcomes(BETTER, 0.10, 0.10, RUNS, seed=43).count("Fail")
    assert binomtest(failed, RUNS, Rules(criteria=()).fail_alpha, alternative="greater").pvalue > 0.01


@pytest.mark.parametrize(
    ("criterion", "won", "lost", "expected"),
    [
        (BETTER, 0.20, 0.05, "Pass"),
        (BETTER, 0.05, 0.20, "Fail"),
        (NOT_WORSE, 0.02, 0.02, "Pass"),
        (NOT_WORSE, 0.02, 0.17, "Fail"),
    ],
)
def test_known_effects_are_found(criterion: Criterion, won: float, lost: float, expected: str) -> None:
    assert outcomes(criterion, won, lost, 100, seed=47).count(expected) >= 90
