"""An arm that is down is left alone for a while; the pairs go on, and it pays for what it was not sent."""

import asyncio
import time

import msgspec
import pytest
from shadowrun_mirror.breaker import FAILURES
from shadowrun_mirror.config import Arm

from tests.integration.mirror.engine import Engine, answers
from tests.integration.mirror.rig import Rig, closed_port, rig

pytestmark = pytest.mark.mirror


async def candidate_at(mirror: Rig, port: int) -> None:
    candidate: Arm = msgspec.structs.replace(mirror.config.arms[1], port=port)
    arms = (mirror.config.arms[0], candidate)
    changed = msgspec.structs.replace(mirror.config, version=mirror.config.version + 1, arms=arms)
    assert (await mirror.put(changed)).status_code == 204


async def test_pairs_skipped_by_a_breaker_are_failures_of_that_arm_and_the_other_goes_on() -> None:
    async with rig(answers(), answers()) as mirror:
        await candidate_at(mirror, closed_port())
        assert 'shadowrun_mirror_breaker_open{arm="candidate"} 0.0' in await mirror.metrics()
        for _ in range(FAILURES + 5):
            await mirror.copy()
            await mirror.settled()
        counted = await mirror.counted()
        text = await mirror.metrics()
        assert len(mirror.engines[0].got) == FAILURES + 5
    candidate = counted.arms["candidate"]
    assert {name: amount.requests for name, amount in candidate.failed.items()} == {
        "Connect": FAILURES,
        "BreakerOpen": 5,
    }
    assert candidate.e2e.failed == candidate.ttft.failed == FAILURES + 5
    assert counted.arms["baseline"].completed.requests == FAILURES + 5
    assert counted.dropped == {}
    assert 'shadowrun_mirror_breaker_open{arm="candidate"} 1.0' in text
    assert 'shadowrun_mirror_breaker_open{arm="baseline"} 0.0' in text
    assert f'answers_total{{arm="candidate",model="",outcome="BreakerOpen"}} {5.0}' in text


async def test_an_arm_that_comes_back_is_found_by_one_probe() -> None:
    async with Engine(answers()) as returned, rig(answers(), answers()) as mirror:
        port = returned.port
        await returned.__aexit__()
        await candidate_at(mirror, port)
        for _ in range(FAILURES):
            await mirror.copy()
            await mirror.settled()
        server = await asyncio.start_server(returned._connected, "127.0.0.1", port)
        started = time.monotonic()
        while not returned.got:
            await mirror.copy()
            await mirror.settled()
            await asyncio.sleep(0.02)
        assert 0.5 < time.monotonic() - started < 5
        for _ in range(3):
            await mirror.copy()
        counted = await mirror.counted()
        text = await mirror.metrics()
        server.close()
    assert len(returned.got) == 4
    assert counted.arms["candidate"].completed.requests == 4
    assert 'shadowrun_mirror_breaker_open{arm="candidate"} 0.0' in text


async def test_an_arm_that_moves_starts_with_a_closed_breaker() -> None:
    async with rig(answers(), answers()) as mirror:
        port = mirror.config.arms[1].port
        await candidate_at(mirror, closed_port())
        for _ in range(FAILURES + 1):
            await mirror.copy()
            await mirror.settled()
        await candidate_at(mirror, port)
        await mirror.copy()
        counted = await mirror.counted()
    assert counted.arms["candidate"].completed.requests == 1
