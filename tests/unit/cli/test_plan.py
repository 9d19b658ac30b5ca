"""`shadowrun plan`: a manifest in, an answer and what to change out; exit 0 it can decide, 2 it cannot, 3 bad input."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from shadowrun_operator.cli.main import main

from tests.unit.reconcile.world import spec

pytestmark = pytest.mark.surfaces

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def manifest(tmp_path: Path) -> Any:
    """Writes a manifest with a changed spec and gives its path."""

    def written(**changes: Any) -> str:
        path = tmp_path / "run.yaml"
        run = {"apiVersion": "shadowrun.dev/v1alpha1", "kind": "ShadowRun", "metadata": {"name": "x"}}
        path.write_text(yaml.safe_dump({**run, "spec": spec(**changes)}))
        return str(path)

    return written


def plan(path: str, *arguments: str, rate: str = "2") -> int:
    return main(["plan", "-f", path, "--pairs-per-second", rate, *arguments])


def test_a_run_with_enough_pairs_can_decide(manifest: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(manifest(duration="24h")) == 0
    out = capsys.readouterr().out
    assert out.startswith("x: can decide within 24 h 0 min at 2 pairs a second\n")
    row = next(line for line in out.splitlines() if line.startswith("ttft "))
    assert row.split()[1:3] == ["all", "172,800"]


def test_a_run_with_too_few_pairs_says_for_each_criterion_what_to_change(
    manifest: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(manifest(duration="4m")) == 2
    out = capsys.readouterr().out
    assert out.startswith("x: cannot decide within 4 min")
    change = next(line for line in out.splitlines() if line.startswith("ttft: "))
    assert "pairs a second; or a duration of" in change
    assert "a margin of" in change
    assert "arms.control is Disabled" in out


def test_what_is_assumed_can_be_said(manifest: Any) -> None:
    path = manifest(duration="10m")
    assert plan(path, "--discordance", "40%") == 2
    assert plan(path, "--discordance", "1%") == 0
    assert plan(path, "--discordance", "10%", "--spread", "0.3") == 0
    assert plan(path, "--discordance", "10%", "--spread", "3") == 2


def test_a_rare_class_is_planned_by_its_share(manifest: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = manifest(
        duration="24h",
        startDeadline="2h",
        classes=[{"name": "long", "when": {"promptTokens": {"min": 8000}}}],
        criteria=[{"name": "long", "metric": "Failures", "class": "long", "require": "NotWorse", "margin": "5%"}],
    )
    assert plan(path) == 0
    assert "taken as equally frequent" in capsys.readouterr().out
    assert plan(path, "--class-share", "long=0.01%") == 2
    out = capsys.readouterr().out
    assert "only after" in out
    assert "taken as equally frequent" not in out


def test_what_ends_a_run_by_its_pairs_is_said_instead_of_a_rate(
    manifest: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(manifest(duration="24h", endConditions={"pairs": 300, "minDuration": "1m"})) == 2
    change = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("ttft: "))
    assert change.startswith("ttft: endConditions.pairs of ")
    assert "pairs a second" not in change
    assert "a duration" not in change


def test_ends_that_are_not_in_the_plan_are_named(manifest: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = manifest(duration="24h", endConditions={"tokens": 10_000_000, "gpuHours": 8, "matchRate": "99%"})
    assert plan(path) == 0
    out = capsys.readouterr().out
    assert "may leave fewer pairs: endConditions.tokens, endConditions.gpuHours, endConditions.matchRate.\n" in out
    assert "decide 80% of such runs" in out
    assert plan(manifest(duration="24h")) == 0
    assert "may leave fewer pairs" not in capsys.readouterr().out


def test_a_class_of_which_nothing_comes_is_said_so(manifest: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = manifest(
        classes=[{"name": "long", "when": {"promptTokens": {"min": 8000}}}],
        criteria=[{"name": "long", "metric": "Failures", "class": "long", "require": "NotWorse", "margin": "5%"}],
    )
    assert plan(path, "--class-share", "long=0%") == 2
    assert "long: no pair of its class comes" in capsys.readouterr().out


def test_every_example_can_be_planned(capsys: pytest.CaptureFixture[str]) -> None:
    for path in (ROOT / "examples" / "manifests").glob("*.yaml"):
        assert plan(str(path), rate="20") == 0, path.name
    assert "can decide" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        ("kind: Service", "0 objects of kind ShadowRun"),
        ("kind: ShadowRun\nmetadata: {name: x}\nspec: {}", "spec.primary"),
    ],
)
def test_a_file_that_is_no_run_is_an_error(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    assert plan(str(path)) == 3
    assert said in capsys.readouterr().err


def test_what_is_not_done_yet_and_classes_that_do_not_exist_are_errors(
    manifest: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(manifest(comparison={"output": "Distribution"})) == 3
    assert "spec.comparison.output Distribution is not implemented yet" in capsys.readouterr().err
    assert plan(manifest(), "--class-share", "short=5%") == 3
    assert "has no class short" in capsys.readouterr().err
    assert plan(str(ROOT / "absent.yaml")) == 3


@pytest.mark.parametrize("wrong", [("--pairs-per-second", "0"), ("--spread", "wide"), ("--class-share", "long")])
def test_wrong_usage_is_an_error(wrong: tuple[str, str], manifest: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "-f", manifest(), "--pairs-per-second", "1", *wrong])
    assert ended.value.code == 3


def test_hours_in_which_nothing_is_copied_are_said_to_be_no_part_of_the_plan(
    manifest: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    plan(manifest(duration="24h", schedule={"dailyWindow": {"from": "09:00", "to": "17:00"}}))
    assert "may leave fewer pairs: schedule.dailyWindow.\n" in capsys.readouterr().out
    plan(manifest(duration="24h", schedule={"startTime": "2027-01-15T08:00:00Z"}))
    assert "may leave fewer pairs" not in capsys.readouterr().out
