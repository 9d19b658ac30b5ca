"""A failure says what failed and how; a wait ends; a plan says where it is."""

import itertools
import subprocess
import sys
from functools import partial

import pytest

from tests.cluster import progress
from tests.cluster.commands import ClusterError, GaveUpError, run, wait_until
from tests.cluster.parallel import at_once
from tests.cluster.paths import REPOSITORY
from tests.cluster.progress import Step, carry_out

pytestmark = pytest.mark.surfaces


def fail(reason: str) -> bool:
    raise ClusterError(reason)


def test_a_failed_command_is_named_with_the_end_of_what_it_said() -> None:
    code = "import sys; print('line\\n' * 100 + 'the reason', file=sys.stderr); sys.exit(3)"
    with pytest.raises(ClusterError, match=r"(?s)python.* ended with 3:\n(line\n){19}the reason$"):
        run([sys.executable, "-c", code])


def test_a_missing_program_is_named() -> None:
    with pytest.raises(ClusterError, match="no-such-program is not installed"):
        run(["no-such-program"])


def test_a_wait_asks_again_after_an_error_and_tells_the_last_one() -> None:
    answers = itertools.count()
    wait_until(lambda: next(answers) == 3 or fail("not yet"), "it is four", timeout=20, poll=0.001)
    with pytest.raises(GaveUpError, match="waiting until it is up: the reason"):
        wait_until(partial(fail, "the reason"), "it is up", timeout=0.05, poll=0.001)


def test_a_wait_stops_at_once_when_asking_again_is_useless() -> None:
    def dead() -> bool:
        raise GaveUpError("it died")

    with pytest.raises(GaveUpError, match="it died"):
        wait_until(dead, "it is up", timeout=3600)


def test_all_pieces_run_although_one_fails() -> None:
    done: list[int] = []
    with pytest.raises(ClusterError, match="one fails"):
        at_once([partial(fail, "one fails"), *(partial(done.append, number) for number in range(5))])
    assert sorted(done) == [0, 1, 2, 3, 4]


def test_a_plan_says_which_step_runs_and_how_long_it_took(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "HEARTBEAT_SECONDS", 0.02)

    def slow(step: Step) -> None:
        step.detail = "half done"
        wait_until(lambda: step.seconds() > 0.1, "a while has passed", timeout=20, poll=0.01)

    with pytest.raises(ClusterError, match="broken"):
        carry_out([("first", slow), ("second", lambda _: fail("broken")), ("third", slow)])
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "[1/3] first ..."
    assert "(half done)" in said[1]
    assert said[-2:] == ["[2/3] second ...", "[2/3] second failed after 0.0 s"]


def test_the_package_runs_before_anything_is_installed() -> None:
    """-I -S: no site-packages, no environment; the standard library must do."""
    code = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); import tests.cluster.__main__"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
