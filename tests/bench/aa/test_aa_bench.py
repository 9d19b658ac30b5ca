"""The series of known truths: what is asked, what counts as wrong, what is kept, and the tables; no cluster here."""

from dataclasses import replace
from pathlib import Path

import pytest
from shadowrun_operator.api.run import ShadowRun

from examples.demo.stage import Stage
from tests.bench.aa import __main__ as bench
from tests.bench.aa.experiments import Experiment, Outcome, experiments, outcome_of, shadow_run, site, template
from tests.bench.aa.kept import Kept, fingerprint
from tests.bench.aa.report import decisions, each_run, interval, is_met

pytestmark = pytest.mark.verdict

EQUAL = Outcome(
    name="equal-1", truth="equal", baseline_cache="off", candidate_cache="off", seed=1001, verdict="Inconclusive",
    reason="Undecided", end_reason="DurationReached", message="", pairs=150, decided_s=200.0, complete_s=220.0,
    criteria={"starts-faster": "Inconclusive", "not-slower": "Pass"},
)  # fmt: skip
FASTER = replace(
    EQUAL, name="faster-1", truth="faster", candidate_cache="on", verdict="Pass", reason="AllCriteriaPassed"
)
SLOWER = replace(EQUAL, name="slower-1", truth="slower", baseline_cache="on", verdict="Fail", reason="CriterionFailed")


def test_a_series_has_every_truth_and_no_seed_twice() -> None:
    runs = experiments(equal=8, effect=3)
    assert [sum(run.truth == truth for run in runs) for truth in ("equal", "faster", "slower")] == [8, 3, 3]
    assert len({run.seed for run in runs}) == len({run.name for run in runs}) == len(runs)


@pytest.mark.parametrize("experiment", experiments(2, 1), ids=lambda e: e.name)
def test_only_the_patch_tells_what_the_truth_is(experiment: Experiment) -> None:
    run = shadow_run(experiment, equal_s=120, effect_s=480)
    spec = ShadowRun.parse({**run, "metadata": {**run["metadata"], "namespace": "x", "uid": "u"}}).spec
    other = shadow_run(Experiment("equal", 9, "off"), equal_s=120, effect_s=480)["spec"]
    assert run["spec"]["criteria"] == other["criteria"]
    assert spec.end_conditions.decided
    assert bool(spec.arms.candidate.patch) is (experiment.truth != "equal")
    arms = template(experiment.baseline_cache)
    assert spec.arms.template.deployment_ref is not None
    assert spec.arms.template.deployment_ref.name == arms["metadata"]["name"]
    (engine,) = arms["spec"]["template"]["spec"]["containers"]
    assert {"name": "PREFIX_CACHE", "value": experiment.baseline_cache} in engine["env"]
    assert site(experiment.seed)[:-1] == site(other_seed := experiment.seed + 1)[:-1]
    assert site(experiment.seed) != site(other_seed)
    assert experiment.patch == {} or f"'{experiment.baseline_cache}'" not in str(experiment.patch)


@pytest.mark.parametrize(
    ("outcome", "judgement"),
    [
        (EQUAL, "right"),
        (replace(EQUAL, criteria={**EQUAL.criteria, "starts-faster": "Pass"}), "wrong"),
        (replace(EQUAL, criteria={**EQUAL.criteria, "not-slower": "Fail"}), "wrong"),
        (replace(EQUAL, verdict="Fail", reason="DroppedHardRequests"), "wrong"),
        (replace(EQUAL, verdict="Pass", reason="AllCriteriaPassed"), "wrong"),
        (replace(EQUAL, reason="EvidenceMissing"), "void"),
        (FASTER, "right"),
        (replace(FASTER, verdict="Fail"), "wrong"),
        (replace(FASTER, verdict="Inconclusive", reason="Undecided"), "undecided"),
        (replace(FASTER, verdict="Inconclusive", reason="HardwareMismatch"), "void"),
        (SLOWER, "right"),
        (replace(SLOWER, verdict="Pass"), "wrong"),
    ],
)
def test_a_decision_is_right_when_it_says_what_is_true(outcome: Outcome, judgement: str) -> None:
    assert outcome.judgement == judgement


def test_an_outcome_is_read_from_the_status() -> None:
    criteria = [{"name": name, "outcome": outcome} for name, outcome in EQUAL.criteria.items()]
    ended = {"verdict": "Inconclusive", "reason": "Undecided", "endReason": "DurationReached"}
    status = {**ended, "pairs": 150, "criteria": criteria}
    assert outcome_of(Experiment("equal", 1, "off"), status, decided_s=200.0, complete_s=220.0) == EQUAL


def test_what_is_kept_is_found_again_as_long_as_the_same_is_asked(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "new" / "aa.jsonl")
    asked = fingerprint({"duration": "120s"})
    assert kept.outcomes({"equal-1": asked}) == {}
    kept.add(asked, EQUAL)
    kept.add(asked, FASTER)
    assert kept.outcomes({"equal-1": asked}) == {"equal-1": EQUAL}
    assert kept.outcomes({"equal-1": fingerprint({"duration": "90s"})}) == {}
    kept.put_aside()
    assert kept.outcomes({"equal-1": asked}) == {}


class Recorded(bench.Series):
    """A series that only notes what it is told to carry out."""

    def __init__(self, runs: tuple[Experiment, ...], duration: int) -> None:
        super().__init__(Stage(None, "x"), runs, duration)  # type: ignore[arg-type]
        self.told: list[str] = []

    def prepare(self) -> None:
        self.told.append("prepare")

    def carry_out(self, experiment: Experiment) -> Outcome:
        self.told.append(experiment.name)
        if len(self.told) == 3:
            raise KeyboardInterrupt
        return replace(EQUAL, name=experiment.name)


def test_a_series_that_was_stopped_goes_on_where_it_was_and_a_complete_one_begins_anew(tmp_path: Path) -> None:
    kept, runs = Kept(tmp_path / "aa.jsonl"), experiments(2, 0)
    stopped = Recorded(runs, 120)
    with pytest.raises(KeyboardInterrupt):
        bench.carried_out(stopped, runs, kept)
    later = Recorded(runs, 120)
    assert [outcome.name for outcome in bench.carried_out(later, runs, kept)] == ["equal-1", "equal-2"]
    assert later.told == ["prepare", "equal-2"]
    assert Recorded(runs, 60).asked(runs[0]) != later.asked(runs[0])
    again = Recorded(runs, 120)
    with pytest.raises(KeyboardInterrupt):
        bench.carried_out(again, runs, kept)
    assert again.told == ["prepare", "equal-1", "equal-2"]


class Answered(bench.Series):
    """A series without a cluster, in which every run decides rightly but those that `wrong` names."""

    wrong: tuple[str, ...] = ()

    def prepare(self) -> None:
        pass

    def carry_out(self, experiment: Experiment) -> Outcome:
        right = {"equal": EQUAL, "faster": FASTER, "slower": SLOWER}[experiment.truth]
        given = replace(right, name=experiment.name, seed=experiment.seed)
        return replace(given, verdict="Inconclusive") if experiment.name in self.wrong else given


@pytest.fixture
def cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command without a cluster, on a document and a file of its own; the namespaces it has cleared."""
    namespaces: list[str] = []
    document = tmp_path / "benchmarks-aa.md"
    document.write_text(bench.DOCUMENT.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(bench, "DOCUMENT", document)
    monkeypatch.setattr(bench, "KEPT", Kept(tmp_path / "aa.jsonl"))
    monkeypatch.setattr(bench, "cluster", lambda: None)
    monkeypatch.setattr(bench, "Series", Answered)
    monkeypatch.setattr(Stage, "clear", lambda stage: namespaces.append(stage.namespace))
    return namespaces


def test_a_series_ends_in_the_document_and_leaves_nothing(cleared: list[str]) -> None:
    assert bench.main(["--runs=8", "--effect-runs=1"]) == 0
    text = bench.DOCUMENT.read_text(encoding="utf-8")
    assert "| equal arms | 8 | 8 | 0 | 0% – 37% |" in text
    assert "| slower-1 | on / off | 3001 | Fail |" in text
    assert cleared == ["bench-aa"]


def test_a_missed_goal_is_the_exit_status_and_a_quick_series_writes_nothing(
    cleared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bench.DOCUMENT.read_text(encoding="utf-8")
    monkeypatch.setattr(Answered, "wrong", ("slower-1",))
    assert bench.main(["--quick"]) == 1
    assert bench.DOCUMENT.read_text(encoding="utf-8") == before
    assert not bench.KEPT.path.exists()


def test_a_series_that_is_told_to_stop_clears_up(cleared: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Answered, "prepare", interrupted)
    assert bench.main([]) == 130
    assert cleared == ["bench-aa"]


def test_the_tables_say_how_many_were_wrong_and_have_their_place() -> None:
    wrong = replace(EQUAL, name="equal-2", verdict="Fail", reason="CriterionFailed", decided_s=100.0)
    text = decisions([EQUAL, wrong, FASTER, SLOWER])
    assert "| equal arms | 2 | 1 | 1 | 1% – 99% | 0 | 0 | 2:30 | 3:20 | wrong ≤ 1 | yes |" in text
    assert len(text.splitlines()) == 5
    lines = each_run([EQUAL, SLOWER]).splitlines()
    assert lines[2].startswith("| equal-1 | off / off | 1001 | Inconclusive | Undecided | Inconclusive | Pass | 150 |")
    assert len({line.count("|") for line in lines}) == 1
    document = bench.DOCUMENT.read_text(encoding="utf-8")
    assert all(f"<!-- bench {name} -->" in document for name in ("aa-decisions", "aa-runs"))


@pytest.mark.parametrize(
    ("outcomes", "met"),
    [
        ([EQUAL] * 8, True),
        ([replace(EQUAL, verdict="Pass")] * 2 + [EQUAL] * 6, False),
        ([replace(EQUAL, reason="LowCoverage")] + [EQUAL] * 7, False),
        ([FASTER] * 3, True),
        ([replace(FASTER, decided_s=601.0)], False),
        ([replace(SLOWER, verdict="Inconclusive")], False),
    ],
)
def test_the_goal_is_missed_by_wrong_late_and_missing_decisions(outcomes: list[Outcome], met: bool) -> None:
    assert is_met(outcomes[0].truth, outcomes) is met


def test_the_interval_is_exact() -> None:
    assert interval(0, 8) == "0% – 37%"  # 1 - 0.025 ** (1 / 8)
    assert interval(0, 0) == "–"
