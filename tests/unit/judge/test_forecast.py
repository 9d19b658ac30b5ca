"""While a run goes on it says when its decision is expected, and about which criterion."""

import msgspec
import pytest
from shadowrun_operator.judge.criteria import CriterionResult
from shadowrun_operator.judge.forecast import forecast, forecast_sentence, span

from tests.unit.judge.synthetic import equal, judged, recorded

pytestmark = pytest.mark.verdict

(BASE, *_) = judged(recorded(candidate=equal)).criteria


def result(
    name: str, needed: int, *, pairs: int = 600, outcome: str = "Inconclusive", **more: object
) -> CriterionResult:
    changes = {"name": name, "needed": needed, "pairs": pairs, "outcome": outcome} | more
    return msgspec.structs.replace(BASE, **changes)


def sentence(*results: CriterionResult, left_s: float = 1e6, against: str = "") -> str:
    return forecast_sentence(forecast(results, 420.0), left_s, against)


def test_the_criterion_that_takes_longest_is_named_with_pairs_and_time_at_this_rate() -> None:
    rare = result("rare", 100, pairs=50)
    assert sentence(result("slo", 600), rare) == (
        'Decision expected after about 100 more pairs for "rare", 14 min at this rate.'
    )
    assert sentence(result("slo", 1200), result("other", 3)) == (
        'Decision expected after about 1,200 more pairs for "slo", 14 min at this rate.'
    )


def test_a_decision_after_the_end_is_said_to_be_so() -> None:
    assert "which is after the run's end" in sentence(result("slo", 600), left_s=60)


def test_what_cannot_be_told_is_not_made_up() -> None:
    for unknown in (result("new", 0), result("none", 200, pairs=0)):
        assert sentence(result("slo", 600), unknown) == f'When "{unknown.name}" will be decided can\'t be told yet.'


def test_decided_and_informational_criteria_are_not_waited_for() -> None:
    done = (result("slo", 0, outcome="Pass"), result("more", 9, informational=True))
    assert sentence(*done) == "Every criterion is decided."


def test_what_holds_up_a_decided_run_is_said() -> None:
    held = sentence(result("slo", 0, outcome="Pass"), against="Stamps are late.")
    assert held == "Every criterion is decided, but there is no verdict: Stamps are late."
    assert "Stamps" not in sentence(result("slo", 600), against="Stamps are late.")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(40, "40 s"), (840, "14 min"), (12_000, "3 h 20 min"), (439_200, "5 d 2 h"), (172_800, "2 d 0 h")],
)
def test_times_are_said_in_two_units_at_most(seconds: float, said: str) -> None:
    assert span(seconds) == said
