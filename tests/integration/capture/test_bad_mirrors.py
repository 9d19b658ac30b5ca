"""Whatever the mirror does, no customer fails or waits, memory stays bounded, and what was not copied is counted."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from shadowrun_mirror.evidence import Amount
from shadowrun_operator.manifests.bootstrap import max_copies

from tests.integration.capture.faults import (
    answers_sixty_megabytes,
    hangs_up,
    never_answers,
    never_reads,
    reads_slowly,
    refuses_before_reading,
)
from tests.integration.capture.harness import Behaviour, Capture, Client, Peer, directive, running_scene, until

pytestmark = pytest.mark.path

LARGEST = 6 << 20
SMALL, LARGE = 40, 6


async def customers(capture: Capture) -> tuple[list[int], float]:
    """Statuses and the longest time, in seconds, of a burst of small and large requests."""

    async def one(size: int) -> tuple[int, float]:
        client = Client(capture.customers)
        started = time.monotonic()
        got = await asyncio.wait_for(client.request([], b"x" * size), 20)
        client.close()
        return got.status, time.monotonic() - started

    sizes = [200_000] * SMALL + [5_000_000] * LARGE
    done = await asyncio.gather(*(one(size) for size in sizes))
    return [status for status, _ in done], max(took for _, took in done)


async def heap_bytes(capture: Capture) -> int:
    return int(json.loads(await capture.admin("/memory"))["allocated"])


async def down(peer: Peer) -> None:
    await peer.stop()


def behaves(behaviour: Behaviour) -> Callable[[Peer], Awaitable[None]]:
    async def arrange(peer: Peer) -> None:
        peer.behaviour = behaviour

    return arrange


MIRRORS = {
    "down": down,
    "never-reads": behaves(never_reads),
    "reads-slowly": behaves(reads_slowly),
    "never-answers": behaves(never_answers),
    "answers-60-MB": behaves(answers_sixty_megabytes),
    "hangs-up": behaves(hangs_up),
    "refuses-before-reading": behaves(refuses_before_reading),
}


@pytest.mark.parametrize("name", MIRRORS)
async def test_no_customer_fails_or_waits_for_a_mirror_that_misbehaves(name: str, tmp_path: Path) -> None:
    async with running_scene(tmp_path, max_body_bytes=LARGEST) as (capture, to_primary, to_mirror):
        alone, longest_alone = await customers(capture)
        assert alone == [200] * (SMALL + LARGE)
        await MIRRORS[name](to_mirror)
        await capture.follow(directive(max_body_bytes=LARGEST))
        started = time.monotonic()
        statuses, longest = await customers(capture)
        assert statuses == [200] * (SMALL + LARGE)
        # A stall lasts for ever, or as long as a timeout; sharing two cores with this test's own servers does not.
        assert longest < longest_alone + 3.0, f"alone {longest_alone:.2f} s, with the mirror {longest:.2f} s"
        evidence = await capture.evidence()
        assert evidence.windows[1].sampled == Amount(requests=SMALL + LARGE, bytes=SMALL * 200_000 + LARGE * 5_000_000)
        assert await heap_bytes(capture) < 200 << 20
        if name == "down":

            async def all_counted() -> bool:
                return (await capture.evidence()).overflow == SMALL + LARGE

            await until(all_counted, 5.0)
        if name in ("never-reads", "never-answers"):
            assert evidence.overflow == SMALL + LARGE - max_copies(LARGEST)

            async def given_up() -> bool:
                stats = await capture.admin("/stats?filter=cluster.copies.upstream_rq_active$")
                return stats.strip().endswith(b" 0")

            await until(given_up, 14.0)  # a copy is let go after ten seconds
        assert time.monotonic() - started < 25.0
        assert len(to_primary.received) == 2 * (SMALL + LARGE)


async def test_a_body_larger_than_its_limit_is_not_copied(tmp_path: Path) -> None:
    async with running_scene(tmp_path, max_body_bytes=1000) as (capture, _, to_mirror):
        await capture.follow(directive(max_body_bytes=1000))
        client = Client(capture.customers)
        for size in (1001, 999_999, 5_000_000):
            assert (await client.request([], b"x" * size)).status == 200
        chunked = b"5\r\nhello\r\n" * 10 + b"0\r\n\r\n"
        assert (await client.request([("Transfer-Encoding", "chunked")], chunked)).status == 200
        await asyncio.sleep(0.3)
        assert to_mirror.received == []
        window = (await capture.evidence()).windows[1]
        assert window.oversized == Amount(requests=4, bytes=1001 + 999_999 + 5_000_000)
        assert window.sampled == Amount()
        client.close()
