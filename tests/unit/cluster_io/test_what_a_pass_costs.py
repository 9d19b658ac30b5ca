"""How many requests a run costs the API server, by what it is doing: many runs share one server."""

import pytest

from tests.unit.cluster_io.lives import Life, begun

pytestmark = pytest.mark.operator

EVIDENCE = "GET /api/v1/namespaces/inference/configmaps/x-evidence"
OTHERS = "GET /apis/shadowrun.dev/v1alpha1/namespaces/inference/shadowruns"


class Requests:
    """Counts them, and spoils none."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, method: str, path: str) -> None:
        self.made.append(f"{method} {path}")

    @property
    def writes(self) -> list[str]:
        return [request for request in self.made if not request.startswith("GET")]


async def _in_phase(life: Life, phase: str) -> None:
    for _ in range(100):
        if life.phases[-1:] == [phase]:
            return
        await life.turn()
    raise AssertionError(f"{life.phases} without {phase}")


async def test_a_run_that_waits_for_its_time_writes_nothing() -> None:
    requests = Requests()
    with begun("daily window", requests) as life:
        await _in_phase(life, "Pending")
        requests.made.clear()
        for _ in range(10):
            await life.turn()
        assert requests.writes == []
        assert requests.made, "although it was looked at"


async def test_a_suspended_run_writes_twice_a_minute_at_most() -> None:
    requests = Requests()
    with begun("proxy", requests) as life:
        await _in_phase(life, "Running")
        life.edit(suspend=True)
        for _ in range(5):
            await life.turn()
        requests.made.clear()
        for _ in range(20):
            await life.turn(3.0)
        assert life.phases[-1] == "Running"
        assert len(requests.writes) <= 2, requests.writes


async def test_evidence_is_read_once_in_each_version_and_no_other_run_is_looked_at_while_copying() -> None:
    requests = Requests()
    with begun("proxy", requests) as life:
        await _in_phase(life, "Running")
        requests.made.clear()
        for _ in range(10):
            await life.turn(3.0)
        written = sum(1 for request in requests.writes if request.endswith("/configmaps/x-evidence"))
        assert requests.made.count(EVIDENCE) <= written + 1
        assert written <= 2
        assert OTHERS not in requests.made
        assert len(requests.made) / 10 <= 20, "a pass"


async def test_what_was_read_back_is_not_kept_twice() -> None:
    with begun("proxy") as life:
        await _in_phase(life, "Running")
        life.kill()
        await life.turn()
        await life.turn()
        remembered = life.runs._line(("inference", "x")).memory
        assert remembered.books is not None
        assert not remembered.config_maps["x-evidence"].get("binaryData")
