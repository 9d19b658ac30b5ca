"""A run that compares answers: a real mirror process between two engines of examples/, and the operator's own plans.

What is made up is the cluster (`tests.unit.reconcile.world`), whose clock leaps while nothing is copied.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from shadowrun_mirror.config import MirrorConfig, encode
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.judging import stored_report
from shadowrun_operator.reconcile.reconcile import reconcile

from tests.integration.mirror.process import TOKEN, MirrorProcess
from tests.ports import free_ports
from tests.unit.reconcile.world import World
from tests.unit.surfaces.test_simulator import body, serving

pytestmark = pytest.mark.answers

CANARY = "canary-77b2"
PATH = "/v1/chat/completions"
MIRROR = "uid-mirror-0"
RATE = 40
QUICK = {
    "sampling": {"unit": "Request", "rate": "100%"},
    "admission": {"maxInFlight": 32, "timeout": "2s"},
    "arms": {"warmup": {"duration": "1s", "requests": 20}},
    "comparison": {"output": "Parity"},
}


class Live:
    """The cluster in memory, whose one mirror is a process and whose arms are engines at these ports."""

    def __init__(self, world: World, process: MirrorProcess, ports: tuple[int, int], http: httpx.AsyncClient) -> None:
        self.world = world
        self._process = process
        self._ports = ports
        self._http = http
        self._told: MirrorConfig | None = None
        self._numbers = count()
        self._ahead = 0.0  # seconds that the cluster's clock has leapt

    @property
    def log(self) -> str:
        """All that the mirror wrote."""
        return self._process.log

    async def until_complete(self, limit_s: float) -> None:
        """Let the operator look until the run is complete; customers ask as long as it copies."""
        async with asyncio.timeout(limit_s):
            while self.world.phase != "Complete":
                seen = self.world.observe()
                self.world.carry_out(seen, reconcile(seen))
                self.world._start_pods()
                await self._tell()
                await self._time_passes()

    async def _time_passes(self) -> None:
        config = self._told
        if config is not None and config.copying:
            await asyncio.gather(*(self._ask(config) for _ in range(RATE // 4)), asyncio.sleep(0.25))
        else:  # what is waited for is in no process
            await asyncio.sleep(0.01)
            self._ahead += 3.0
        self.world.now = time.time() + self._ahead
        if config is not None:
            read = await self._process.evidence()
            source = msgspec.structs.replace(read.source, pod_uid=MIRROR)
            self.world.evidence = {MIRROR: msgspec.structs.replace(read, source=source)}

    async def _tell(self) -> None:
        """Give the process the configuration that the operator has for it, with the engines as arms."""
        config = self.world.mirror
        if config is None:
            return
        arms = tuple(
            msgspec.structs.replace(arm, host="127.0.0.1", port=port)
            for arm, port in zip(config.arms, self._ports, strict=True)
        )
        config = msgspec.structs.replace(config, arms=arms)
        if self._told is None:
            await self._process.start(config)
        elif config != self._told:
            url = f"http://127.0.0.1:{self._process.control_port}/config"
            answer = await self._http.put(url, content=encode(config), headers={"authorization": f"Bearer {TOKEN}"})
            assert answer.status_code == 204, answer.text
        self._told = config

    async def _ask(self, config: MirrorConfig) -> None:
        number = next(self._numbers)
        marks = {
            "x-shadowrun-run": config.run_uid,
            "x-shadowrun-window": str(config.window),
            "x-request-id": f"request-{number}",
        }
        asked = body(words=20, stream=number % 2 == 0, first=f"question-{number}")
        await self._http.post(f"http://127.0.0.1:{self._process.data_port}{PATH}", json=asked, headers=marks)


@asynccontextmanager
async def live(folder: Path, *candidate: str, **spec: Any) -> AsyncIterator[Live]:
    """A run of this spec, whose candidate is an engine with these options."""
    world = World.with_spec(**QUICK, **spec)
    world.now = time.time()
    world.body["metadata"]["creationTimestamp"] = times.written(world.now)
    process = MirrorProcess(folder, *free_ports(2))
    async with (
        serving("--speed=10") as baseline,
        serving("--speed=10", *candidate) as other,
        httpx.AsyncClient(trust_env=False, timeout=10) as http,
    ):
        ports = int(baseline.rpartition(":")[2]), int(other.rpartition(":")[2])
        try:
            yield Live(world, process, ports, http)
        finally:
            await process.kill()


async def test_a_run_whose_answers_match_ends_when_that_is_proven(tmp_path: Path) -> None:
    ends = {"matchRate": "95%", "minDuration": "5s"}
    async with live(tmp_path, duration="3m", endConditions=ends) as run:
        await run.until_complete(150)
        status = run.world.body["status"]
        assert status["endReason"] == "MatchRateReached", status
        comparison = status["comparison"]
        assert comparison["compared"] >= 200
        assert comparison["matched"] == comparison["compared"]
        assert float(comparison["matchRate"].rstrip("%")) >= 95
        assert comparison["differed"] == []
        report = stored_report(run.world.observe())
        assert report is not None
        assert report.matches[0].matched == comparison["matched"]


async def test_answers_that_differ_are_told_and_the_run_goes_on(tmp_path: Path) -> None:
    ends = {"matchRate": "1%", "minDuration": "2s"}
    async with live(tmp_path, f"--answer-begins={CANARY}", duration="8s", endConditions=ends) as run:
        await run.until_complete(120)
        status = run.world.body["status"]
        report = stored_report(run.world.observe())
        assert CANARY not in f"{run.log} {report} {status}"
    assert status["endReason"] == "DurationReached", status
    assert status["comparison"]["matched"] == 0
    assert {entry["kind"] for entry in status["comparison"]["differed"]} <= {"Length", "Value"}
    assert sum(entry["pairs"] for entry in status["comparison"]["differed"]) == status["comparison"]["compared"] > 100
