"""`shadowrun gate`: what it waits for, and when it gives up."""

import pytest
from shadowrun_operator.api.conditions import ConditionType, Reason
from shadowrun_operator.api.status import Status
from shadowrun_operator.cli.exits import CommandError, UnreachableError
from shadowrun_operator.cli.gate import POLL_SECONDS, Waiting, ended
from shadowrun_operator.cli.seen import SeenRun

from tests.unit.cli.fakes import Answer, FakeReader, complete, run, status

pytestmark = pytest.mark.surfaces


class Clock:
    """Time that passes only in sleep."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def wait(*answers: Answer, timeout: float = 60.0) -> tuple[SeenRun, Clock, list[str]]:
    """Wait for these answers to end."""
    reader, clock, news = FakeReader(answers), Clock(), list[str]()
    waiting = Waiting(
        read=lambda: SeenRun.parse(reader.run("x")), clock=lambda: clock.now, sleep=clock.sleep, told=news.append
    )
    return ended(waiting, timeout), clock, news


def test_it_waits_until_the_run_is_complete() -> None:
    found, clock, _ = wait(run(), run(Status(phase="Running")), run(complete(verdict="Pass")))
    assert found.status.verdict == "Pass"
    assert clock.now == 2 * POLL_SECONDS


def test_a_verdict_about_an_earlier_spec_is_not_taken() -> None:
    old = run(complete(generation=1, verdict="Pass"), generation=2)
    new = run(complete(generation=2, verdict="Fail"), generation=2)
    found, _, _ = wait(old, new)
    assert found.status.verdict == "Fail"


def test_a_complete_condition_that_is_false_is_not_taken() -> None:
    running = status(ConditionType.COMPLETE, "False", verdict="Pass")
    found, _, _ = wait(run(running), run(complete(verdict="Fail")))
    assert found.status.verdict == "Fail"


def test_it_tells_each_phase_once() -> None:
    warming, running = Status(phase="WarmingUp", message="2 of 200 pairs"), Status(phase="Running")
    _, _, news = wait(run(warming), run(warming), run(running), run(complete(verdict="Pass")))
    assert news == ["WarmingUp: 2 of 200 pairs", "Running"]


def test_it_gives_up_at_the_timeout_and_says_how_far_the_run_was() -> None:
    with pytest.raises(CommandError, match=r"not complete within 10 s \(phase Running\)"):
        wait(run(Status(phase="Running")), timeout=10)


def test_it_never_waits_longer_than_told() -> None:
    reader, clock = FakeReader([run()]), Clock()
    waiting = Waiting(
        read=lambda: SeenRun.parse(reader.run("x")), clock=lambda: clock.now, sleep=clock.sleep, told=lambda _: None
    )
    with pytest.raises(CommandError):
        ended(waiting, 9.0)
    assert 9.0 - POLL_SECONDS < clock.now <= 9.0
    assert reader.asked == 5


def test_an_api_server_that_is_away_is_asked_again() -> None:
    found, _, _ = wait(UnreachableError("503"), run(complete(verdict="Pass")))
    assert found.status.verdict == "Pass"


def test_an_api_server_that_stays_away_is_named_at_the_timeout() -> None:
    with pytest.raises(CommandError, match=r"phase unknown\).*503 Service Unavailable"):
        wait(UnreachableError("503 Service Unavailable"), timeout=5)


def test_a_run_that_does_not_exist_ends_the_wait_at_once() -> None:
    with pytest.raises(CommandError, match="was not found"):
        wait(CommandError("ShadowRun x was not found"))


def test_a_run_of_the_same_name_is_not_the_same_run() -> None:
    with pytest.raises(CommandError, match="replaced by another"):
        wait(run(uid="first"), run(complete(verdict="Pass"), uid="second"))


def test_a_refusal_that_only_another_spec_can_change_ends_the_wait() -> None:
    refused = status(ConditionType.ACCEPTED, "False", why=Reason.NOT_IMPLEMENTED)
    with pytest.raises(CommandError, match=r"not accepted \(NotImplemented\): because"):
        wait(run(refused))


@pytest.mark.parametrize(
    "waiting",
    [
        status(ConditionType.ACCEPTED, "False", why=Reason.CAPTURE_IN_USE),
        status(ConditionType.ACCEPTED, "Unknown", why=Reason.NOT_IMPLEMENTED),
        status(ConditionType.ACCEPTED, "False", why=Reason.NOT_IMPLEMENTED, generation=0),
    ],
)
def test_a_refusal_that_may_pass_is_waited_out(waiting: Status) -> None:
    found, _, _ = wait(run(waiting), run(complete(verdict="Pass")))
    assert found.status.verdict == "Pass"


def test_an_object_that_is_no_shadowrun_is_named() -> None:
    with pytest.raises(CommandError, match=r"cannot be read.*metadata"):
        wait({"kind": "Status"})
