"""Users edit, suspend, stop and delete, processes and pods die, time leaps: what must hold holds after every step."""

import asyncio
import contextlib
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from shadowrun_mirror.config import wants_copies
from shadowrun_operator.reconcile import times

from tests.unit.cluster_io.api_server import REFUSALS, Fault, Killed
from tests.unit.cluster_io.lives import MODES, Life, begun
from tests.unit.cluster_io.test_any_request_may_fail import EVIDENCE, kept

ROUNDS_TO_THE_END = 300


class OneRun(RuleBasedStateMachine):
    """One run in any mode, and everything that may happen to it."""

    life: Life

    def __init__(self) -> None:
        super().__init__()
        self.context = contextlib.ExitStack()
        self.loop = asyncio.Runner()
        self.mode = ""
        self.faults: list[Fault] = []
        self.was_complete = False

    @initialize(mode=st.sampled_from(sorted(MODES)))
    def is_created(self, mode: str) -> None:
        self.mode = mode
        self.life = self.context.enter_context(begun(mode, self._spoiled))

    def _spoiled(self, method: str, path: str) -> Fault | None:
        return self.faults.pop() if self.faults and method != "GET" else None

    @rule(turns=st.integers(1, 6))
    def time_passes(self, turns: int) -> None:
        for _ in range(turns):
            self._turn()

    @rule(seconds=st.sampled_from([60.0, 200.0, 3000.0]))
    def nobody_looks_for_a_while(self, seconds: float) -> None:
        self._turn(seconds)

    @rule()
    def the_operator_dies(self) -> None:
        self.life.kill()

    @rule(carried_out=st.booleans())
    def it_dies_at_its_next_write(self, carried_out: bool) -> None:
        self.faults.append(Fault(Killed(), carried_out=carried_out))

    @rule(error=st.sampled_from(REFUSALS[3:]), number=st.integers(1, 3))
    def the_api_server_is_overloaded(self, error: Exception, number: int) -> None:
        self.faults += [Fault(error)] * number

    @rule(name=st.sampled_from(["mirror-0", "candidate-0", "capture-1"]))
    def a_pod_is_replaced(self, name: str) -> None:
        world = self.life.world
        if name in world.pods:
            world.deaths[name] = world.deaths.get(name, 0) + 1

    @rule(change=st.sampled_from([{"suspend": True}, {"suspend": False}, {"stop": {"reason": "enough"}}]))
    def a_user_suspends_or_stops(self, change: dict[str, Any]) -> None:
        self.life.edit(**change)

    @rule(
        change=st.sampled_from(
            [{"sampling": {"rate": "5%"}}, {"duration": "90s"}, {"slo": {"ttft": "3s"}}, {"keepArms": {"for": "1m"}}]
        )
    )
    def a_user_edits(self, change: dict[str, Any]) -> None:
        self.life.edit(**change)

    @rule()
    def a_user_takes_the_evidence_away(self) -> None:
        self.life.server.objects.pop(("ConfigMap", "inference", "x-evidence"), None)

    @precondition(lambda self: self.life.phases)
    @rule()
    def a_user_deletes_it(self) -> None:
        self.life.delete()

    @invariant()
    def it_never_comes_back_from_complete(self) -> None:
        if not hasattr(self, "life"):
            return
        assert "Complete" not in self.life.phases[:-1], self.life.phases

    @invariant()
    def nothing_is_copied_outside_of_its_window(self) -> None:
        if not hasattr(self, "life") or not self.life.copied:
            return
        expiry, begins = self.life.status.get("expiryTime"), 180.0 if self.mode == "daily window" else 0.0
        assert expiry is not None
        assert self.life.copied[-1] < times.seconds(expiry)
        assert self.life.copied[0] >= times.seconds("2027-01-15T08:00:00Z") + begins

    @invariant()
    def a_complete_run_copies_nothing(self) -> None:
        if hasattr(self, "life") and self.life.status.get("phase") == "Complete":
            world = self.life.world
            assert not [c for c in world.configs.values() if wants_copies(c, world.now)]

    def teardown(self) -> None:
        """Left alone it ends, and leaves what the spec keeps."""
        try:
            if hasattr(self, "life"):
                self._ends()
        finally:
            self.context.close()
            self.loop.close()

    def _ends(self) -> None:
        self.faults.clear()
        self.life.edit(suspend=False)
        for _ in range(ROUNDS_TO_THE_END):
            if self.life.is_over:
                break
            self._turn(20.0)
        assert self.life.is_over, self.life.status
        for _ in range(10):
            self._turn(20.0)
        assert self.life.left <= kept(self.mode) | EVIDENCE
        assert self.life.body is not None or not self.life.left & EVIDENCE
        assert self.life.status.get("phase") == "Complete" or self.life.body is None

    def _turn(self, seconds: float = 8.0) -> None:
        self.loop.run(self.life.turn(seconds))


TestOneRun = OneRun.TestCase
TestOneRun.settings = settings(
    max_examples=12, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
pytestmark = pytest.mark.operator
