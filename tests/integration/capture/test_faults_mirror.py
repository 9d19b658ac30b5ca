"""Whatever stands in the mirror's place, and whatever happens to the mirror itself: customers ask on all the time.

None of them fails, waits, or gets another answer than the primary's; afterwards copying goes on, and all adds up.
"""

import asyncio
import signal
from pathlib import Path

import pytest
from shadowrun_mirror.reasons import FailureReason

from tests.integration.capture.faults import MIRRORS
from tests.integration.capture.harness import ONE, SEVERAL, until
from tests.integration.capture.live_scene import Scene, live_scene, total

pytestmark = pytest.mark.path


async def works_again(scene: Scene, before: int = 0, accepted: frozenset[str] = frozenset()) -> None:
    """With the real mirror in place, new copies arrive and become pairs; then all must add up."""
    already = total(await scene.mirror.evidence()).admitted.requests

    async def pairs_again() -> bool:
        return total(await scene.mirror.evidence()).admitted.requests > already + 10

    await until(pairs_again, 15.0)  # what was stuck in Envoy is let go after ten seconds
    counted = await scene.accounts(before)
    assert all(arm.failed.keys() <= accepted for arm in counted.arms.values())


@pytest.mark.parametrize(
    ("name", "hosts"), [*((name, ONE) for name in MIRRORS), ("never-reads", SEVERAL), ("blackholed", SEVERAL)]
)
async def test_customers_notice_nothing_of_what_stands_in_the_mirrors_place(
    name: str, hosts: tuple[str, ...], tmp_path: Path
) -> None:
    async with live_scene(tmp_path, mirror_hosts=hosts) as scene:
        async with MIRRORS[name](scene.mirror.data_port):
            await scene.customers_ask(150)
        await scene.mirror.start(scene.config)
        await works_again(scene)


async def test_customers_notice_nothing_of_a_mirror_that_is_stopped_for_a_while(tmp_path: Path) -> None:
    async with live_scene(tmp_path) as scene:
        await scene.mirror.start(scene.config)
        await scene.customers_ask(30)
        scene.mirror.send_signal(signal.SIGSTOP)
        await scene.customers_ask(150)
        scene.mirror.send_signal(signal.SIGCONT)
        # It slept longer than a pair may take: those in flight timed out, for both arms.
        await works_again(scene, accepted=frozenset({FailureReason.TIMEOUT}))


async def test_customers_notice_nothing_of_a_mirror_that_is_killed_and_started_again(tmp_path: Path) -> None:
    async with live_scene(tmp_path) as scene:
        for _ in range(3):
            await scene.mirror.start(scene.config)
            await scene.customers_ask(30)
            await scene.mirror.kill()
            await scene.customers_ask(20)
        await scene.mirror.start(scene.config)
        await works_again(scene)


async def test_a_mirror_told_to_go_under_load_accounts_for_all_it_received(tmp_path: Path) -> None:
    async with live_scene(tmp_path) as scene:
        await scene.mirror.start(scene.config)
        await scene.customers_ask(60)
        scene.mirror.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        last = await scene.mirror.settled()
        assert not last.copying
        await scene.mirror.kill()
        await scene.customers_ask(20)
        await scene.mirror.start(scene.config)
        gone = total(last)
        assert gone.received.requests > 30
        await works_again(scene, before=gone.received.requests)
