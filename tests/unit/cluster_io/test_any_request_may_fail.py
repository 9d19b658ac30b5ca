"""The operator dies at any write, the API server says anything to any request: the run ends all the same, and cleanly.

The real loop and the real client, from a run's creation until nothing of it is left but what the spec keeps.
"""

import random
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings
from shadowrun_operator.cluster.client import ApiRefusal, ApiUnreachable
from shadowrun_operator.judge.merge import COUNTED, SECOND_HALF
from shadowrun_operator.reconcile import times

from tests.unit.cluster_io.api_server import REFUSALS, Fault, Killed
from tests.unit.cluster_io.lives import MODES, STEP_S, Life, begun, candidate_is_wrong, counted
from tests.unit.reconcile.world import START

pytestmark = pytest.mark.operator

EVIDENCE = {("ConfigMap", "x-evidence"), ("ConfigMap", "x-report")}
LEDGER = ("ConfigMap", "shadowrun-attempts")
ROUTED = ("another proxy", "route", "kept arms on a route")


def kept(mode: str) -> set[tuple[str, str]]:
    """What a run in this mode leaves: how often it was tried, the Service that may be called, evidence and report."""
    service = ("Service", "chat-copies" if mode in ROUTED else "chat-shadowed")
    return {LEDGER, service} | (set() if mode == "gone after a while" else EVIDENCE)


def ended_well(life: Life, mode: str) -> None:
    """It was judged by what the mirrors counted, once, and is gone but for what it leaves."""
    assert life.left == kept(mode)
    assert "Complete" in life.phases[-1:]
    assert life.status["endReason"] == "DurationReached"
    assert life.status["funnel"]["requests"]["selected"] == counted(life) > 0
    assert life.status["provenance"]["window"] == (SECOND_HALF if mode == "crossover" else COUNTED)
    _kept_its_word(life)


def _kept_its_word(life: Life) -> None:
    assert life.phases.count("Complete") <= 1, f"never back from Complete: {life.phases}"
    expiry = life.world.run.status.expiry_time
    assert all(START <= at < times.seconds(expiry or "") for at in life.copied)


async def test_nothing_happens_to_a_run_to_which_nothing_happens() -> None:
    for mode in MODES:
        with begun(mode) as life:
            await life.until_over()
            ended_well(life, mode)
            assert life.deaths == 0


class AtEachWrite:
    """Kills the process at every write that was never tried before: just before it, or as soon as it is carried out."""

    def __init__(self, *, carried_out: bool) -> None:
        self.tried: set[tuple[str, str]] = set()
        self.carried_out = carried_out
        self.phase: Callable[[], str] = str

    def __call__(self, method: str, path: str) -> Fault | None:
        write = (f"{method} {path}", self.phase())
        if method == "GET" or write in self.tried:
            return None
        self.tried.add(write)
        return Fault(Killed(), carried_out=self.carried_out)


@pytest.mark.parametrize("carried_out", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("mode", MODES)
async def test_the_process_dies_at_every_write_and_the_run_ends_all_the_same(mode: str, carried_out: bool) -> None:
    deaths = AtEachWrite(carried_out=carried_out)
    with begun(mode, deaths) as life:
        deaths.phase = lambda: life.phases[-1] if life.phases else ""
        await life.until_over()
        assert life.deaths == len(deaths.tried) > 20
        ended_well(life, mode)


class AtOne:
    """Kills the process at the write of this number, and every so many writes after that, thirty times at most.

    One that for ever dies before it can write a second thing gets nowhere, and nobody asks that of it.
    """

    def __init__(self, first: int, every: int, *, carried_out: bool) -> None:
        self.left, self.every, self.carried_out = first, every, carried_out
        self.deaths = 0

    def __call__(self, method: str, path: str) -> Fault | None:
        if method == "GET" or self.deaths == 30:
            return None
        self.left -= 1
        if self.left >= 0:
            return None
        self.left = self.every
        self.deaths += 1
        return Fault(Killed(), carried_out=self.carried_out)


@given(
    mode=st.sampled_from(sorted(MODES)),
    first=st.integers(0, 70),
    every=st.sampled_from([1, 2, 3, 5, 1000]),
    carried_out=st.booleans(),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
async def test_the_process_dies_at_any_write_and_again_after_any_number_of_them(
    mode: str, first: int, every: int, carried_out: bool
) -> None:
    deaths = AtOne(first, every, carried_out=carried_out)
    with begun(mode, deaths) as life:
        await life.until_over()
        if life.status["endReason"] == "StartDeadlineExceeded":  # so many deaths may use up the time there is to start
            assert deaths.deaths > 10
            assert (life.left, life.phases[-1:]) == (kept(mode), ["Complete"])
        else:
            ended_well(life, mode)


class AtRandom:
    """Spoils requests for a while: refuses them, leaves them without an answer, or carries them out without one."""

    def __init__(self, seed: int, share: float, most: int) -> None:
        self.dice, self.share, self.left = random.Random(seed), share, most

    def __call__(self, method: str, path: str) -> Fault | None:
        if not self.left or self.dice.random() >= self.share:
            return None
        # A patch of the candidate that is refused as wrong ends the run, and rightly: that is another test's matter.
        wrong = (409, 422) if path.endswith("/deployments/x-candidate") and method == "PATCH" else ()
        error = self.dice.choice(REFUSALS)
        if isinstance(error, ApiRefusal) and error.status in wrong:
            return None
        self.left -= 1
        return Fault(error, carried_out=isinstance(error, ApiUnreachable) and self.dice.random() < 0.5)


@given(mode=st.sampled_from(sorted(MODES)), seed=st.integers(0, 10_000), share=st.sampled_from([0.02, 0.1, 0.4]))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
async def test_whatever_the_api_server_says_to_requests_for_a_while_the_run_ends_and_leaves_nothing(
    mode: str, seed: int, share: float
) -> None:
    with begun(mode, AtRandom(seed, share, most=40)) as life:
        await life.until_over()
        assert life.left <= kept(mode)
        assert life.phases[-1:] == ["Complete"]
        _kept_its_word(life)
        if life.status["endReason"] == "DurationReached":
            assert life.status["funnel"]["requests"]["selected"] == counted(life)


UNLUCKY = [(verb, error) for verb in ("POST", "PATCH") for error in REFUSALS]
UNLUCKY += [(verb, error) for verb in ("GET", "DELETE") for error in REFUSALS[-2:]]


@pytest.mark.parametrize(("verb", "error"), UNLUCKY, ids=lambda given: str(getattr(given, "status", given)))
async def test_a_minute_in_which_no_request_of_a_kind_succeeds_costs_no_run(verb: str, error: Exception) -> None:
    wrong = verb == "PATCH" and getattr(error, "status", 0) in (409, 422)

    def spoiled(method: str, path: str) -> Fault | None:
        spares = wrong and path.endswith("/deployments/x-candidate")
        begun_at = life.world.now // 150 % 2 == 1 and not spares
        return Fault(error) if method == verb and begun_at and life.world.now % 150 < 60 else None

    with begun("proxy", lambda method, path: spoiled(method, path)) as life:
        await life.until_over()
        ended_well(life, "proxy")


@example(mode="arms behind URLs", turns=0, seed=0)  # deleted before the operator saw it
@given(mode=st.sampled_from(sorted(MODES)), turns=st.integers(0, 40), seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
async def test_a_run_that_is_deleted_at_any_moment_leaves_its_service_alone_whoever_dies_meanwhile(
    mode: str, turns: int, seed: int
) -> None:
    dice = random.Random(seed)

    def spoiled(method: str, path: str) -> Fault | None:
        deleted = life.body is not None and "deletionTimestamp" in life.body["metadata"]
        if method == "GET" or not deleted or dice.random() < 0.7:
            return None
        return Fault(Killed(), carried_out=dice.random() < 0.5)

    with begun(mode, lambda method, path: spoiled(method, path)) as life:
        for _ in range(turns):
            await life.turn(dice.choice([1.0, STEP_S]))
        life.delete()
        for _ in range(120):
            if life.body is None:
                break
            await life.turn()
        assert life.body is None, "its finalizer is gone"
        for _ in range(20):
            await life.turn()
        assert life.left <= kept(mode) - EVIDENCE
        _kept_its_word(life)


@pytest.mark.parametrize("mode", ["proxy", "route"])
async def test_a_candidate_that_the_api_server_finds_wrong_is_refused_and_takes_everything_away(mode: str) -> None:
    with begun(mode, candidate_is_wrong) as life:
        for _ in range(12):
            await life.turn()
        assert life.phases == ["Preparing", "Pending"]
        assert "spec.template: no" in life.status["message"]
        assert not [name for kind, name in life.left if kind != "Service" or name == "x-mirror"]


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "somebody else's"])
async def test_a_report_that_can_never_be_stored_holds_the_end_up_for_a_while_only(refused: bool) -> None:
    theirs = {"kind": "ConfigMap", "metadata": {"name": "x-report", "namespace": "inference"}, "data": {"a": "b"}}

    def spoiled(method: str, path: str) -> Fault | None:
        ends = method == "POST" and path.endswith("/configmaps") and life.phases[-1:] == ["Finishing"]
        if ends and not refused:
            life.server.put(theirs)
        return Fault(ApiRefusal(403, "Forbidden", "quota")) if ends and refused else None

    with begun("proxy", lambda method, path: spoiled(method, path)) as life:
        await life.until_over()
        assert life.phases[-1] == "Complete"
        assert life.status["endReason"] == "DurationReached"
        assert life.left == kept("proxy") - {("ConfigMap", "x-report")}
        assert "reportRef" not in life.status
        reasons = [item["reason"] for (kind, _, _), item in life.server.objects.items() if kind == "Event"]
        assert sum(1 for reason in reasons if reason.startswith("Verdict")) <= 1


@pytest.mark.parametrize("error", [ApiRefusal(422, "Invalid", "status: no"), ApiUnreachable("no answer")], ids=repr)
@pytest.mark.parametrize("mode", ["proxy", "route"])
async def test_a_run_whose_status_can_never_be_written_again_is_taken_down_and_judged_once(
    mode: str, error: Exception
) -> None:
    reports: list[str] = []

    def spoiled(method: str, path: str) -> Fault | None:
        stopped = life.body is not None and "stop" in life.body["spec"]
        if stopped and method != "GET" and path.endswith(("/configmaps", "/x-report")):
            reports.append(f"{method} {path}")
        is_status = method == "PATCH" and path.endswith("/shadowruns/x/status")
        return Fault(error) if is_status and life.phases[-1:] == ["Running"] else None

    with begun(mode, lambda method, path: spoiled(method, path)) as life:
        while life.phases[-1:] != ["Running"]:
            await life.turn()
        for _ in range(5):
            await life.turn()
        life.edit(stop={"reason": "enough"})
        for _ in range(40):
            await life.turn()
        assert life.phases[-1] == "Running", "as far as anybody can see"
        assert life.left == kept(mode)
        assert len(reports) == 1
        life.kill()
        for _ in range(5):
            await life.turn()
        assert life.left == kept(mode)
        assert len(reports) == 1, "another process does not judge it again"
