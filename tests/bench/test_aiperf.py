"""What is compared with AIPerf, without AIPerf: what it says is read right, and so is what the mirror says."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.__main__ import BENCHES, DOCUMENT, OPTIONAL
from tests.bench.aiperf_program import Reported, finished
from tests.bench.benches.aiperf import ANSWER_WORDS, NAME, PROMPT_WORDS, bodies, measured
from tests.bench.scene import BenchError
from tests.cluster.commands import wait_until

pytestmark = pytest.mark.mirror


def answer(arm: str, ttft: float, e2e: float, outcome: str = "completed") -> str:
    line = {"message": "pair ended", "arm": arm, "outcome": outcome, "ttft_s": ttft, "e2e_s": e2e}
    return json.dumps(line) + "\n"


def of_both(value: Callable[[int], tuple[float, float]], count: int) -> str:
    return "".join(answer(arm, *value(number)) for number in range(count) for arm in ("baseline", "candidate"))


def test_what_aiperf_exports_is_read_in_seconds() -> None:
    exported = {
        "schema_version": "1.0",
        "time_to_first_token": {"unit": "ms", "avg": 88.2, "p50": 84.5, "p95": 135.0},
        "request_latency": {"unit": "ms", "avg": 463.7, "p50": 466.0, "p95": 704.0},
        "request_count": {"unit": "requests", "avg": 20.0},
        "benchmark_duration": {"unit": "sec", "avg": 3.5},
        "goodput": {"unit": "requests/sec", "avg": 1.5},
    }
    read = Reported.read(json.dumps(exported).encode())
    assert read == Reported(20, 3.5, 0.0845, 0.135, 0.466, 0.704, 1.5)


def test_what_the_mirror_measured_is_of_both_arms_together() -> None:
    log = json.dumps({"message": "ready"}) + "\n" + of_both(lambda n: (0.1 * n, 1.0 * n), 21)
    ours = measured(log, good=16, seconds=4.0)
    assert (ours.answered, ours.seconds, ours.goodput) == (21, 4.0, 2.0)
    assert [ours.ttft_p50, ours.ttft_p95] == pytest.approx([1.0, 1.9])
    assert [ours.latency_p50, ours.latency_p95] == pytest.approx([10.0, 19.0])


async def test_one_that_does_not_end_is_ended_with_all_its_processes_and_what_it_said_is_told(tmp_path: Path) -> None:
    stubborn = "trap '' TERM; sleep 600 & echo $! > child; echo hello; wait"
    with pytest.raises(BenchError, match=r"did not end within 0.5 s:\nhello"):
        await finished(["sh", "-c", f"cd {tmp_path}; {stubborn}"], 0.5)
    child = (tmp_path / "child").read_text().strip()
    wait_until(lambda: _is_gone(child), "its child is gone", 20.0, poll=0.01)


def _is_gone(pid: str) -> bool:
    """Or has ended, and nobody has asked how."""
    stat = Path("/proc", pid, "stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


async def test_one_that_fails_is_told_and_one_that_ends_well_is_not() -> None:
    with pytest.raises(BenchError, match=r"ended with 3:\nno"):
        await finished(["sh", "-c", "echo no; exit 3"], 60.0)
    await finished(["true"], 60.0)


@pytest.mark.parametrize("log", ["", answer("baseline", 0.1, 0.2) + answer("candidate", 0.1, 0.2, "Timeout")])
def test_a_run_with_a_failure_or_without_an_answer_compares_nothing(log: str) -> None:
    with pytest.raises(BenchError, match=r"\d of \d answers failed"):
        measured(log, good=0, seconds=1.0)


def test_requests_differ_in_length_and_are_the_same_for_the_same_seed() -> None:
    made = [json.loads(body) for body in bodies(200, seed=1)]
    prompts = sorted(len(body["messages"][0]["content"].split()) for body in made)
    answers = sorted(body["max_tokens"] for body in made)
    for (median, _, most), lengths in ((PROMPT_WORDS, prompts), (ANSWER_WORDS, answers)):
        assert 0.7 * median < lengths[100] < 1.4 * median
        assert 2 <= lengths[0] < lengths[100] < lengths[-1] <= most
    assert all(body["stream"] is True for body in made)
    assert bodies(5, seed=1) == bodies(5, seed=1) != bodies(5, seed=2)


def test_it_runs_only_when_named_and_has_its_place() -> None:
    assert NAME in OPTIONAL.keys() - BENCHES.keys()
    assert f"<!-- bench {NAME} -->" in DOCUMENT.read_text(encoding="utf-8")
