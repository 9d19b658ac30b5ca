"""What must come out is known: equal arms are told apart rarely, a prefix cache always, and in the right direction.

As `make bench-aa` does it on a cluster with a real engine, here in simulated time. Every seed is fixed, so what passes
once passes always; other code may play the same seeds another way.
"""

import pytest

from tests.bench.aa.experiments import Experiment, Outcome, allowed_wrong, experiments
from tests.integration.verdict.engines import CALM, RESTLESS, Unrest
from tests.integration.verdict.simulation import simulated

pytestmark = pytest.mark.verdict

RUNS = experiments(equal=20, effect=5)
EQUAL_S, EFFECT_S = 120, 480


def _run(experiment: Experiment, unrest: Unrest) -> Outcome:
    return simulated(experiment, unrest, equal_s=EQUAL_S, effect_s=EFFECT_S)


def test_equal_arms_are_told_apart_in_two_of_twenty_runs_at_the_most() -> None:
    outcomes = [_run(experiment, RESTLESS) for experiment in RUNS if experiment.truth == "equal"]
    judgements = [outcome.judgement for outcome in outcomes]
    assert allowed_wrong(len(outcomes)) == 2
    assert judgements.count("wrong") <= 2, [o.message for o in outcomes if o.judgement == "wrong"]
    assert judgements.count("wrong") + judgements.count("right") == 20, "a run that is not judged shows nothing"
    assert min(outcome.pairs for outcome in outcomes) > 90


@pytest.mark.parametrize("experiment", [e for e in RUNS if e.truth != "equal"], ids=lambda e: e.name)
def test_a_prefix_cache_is_seen_in_the_right_direction(experiment: Experiment) -> None:
    outcome = _run(experiment, CALM)
    assert outcome.judgement == "right", outcome.message
    assert outcome.decided_s < 600
    assert outcome.pairs >= 60


def test_a_run_can_be_repeated_to_the_last_digit() -> None:
    first, second = (simulated(RUNS[-1], RESTLESS, equal_s=40, effect_s=40) for _ in range(2))
    assert first == second
    assert first.pairs > 30
