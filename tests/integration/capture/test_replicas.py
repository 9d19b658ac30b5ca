"""Several mirrors: a conversation stays with one of them, and one that dies takes along only what it was at."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.integration.capture.fast import FastServer, lines_of, send_in_batches
from tests.integration.capture.harness import PATH, directive, running_capture, until

pytestmark = pytest.mark.path

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
CONVERSATIONS = 300
HELD = 40  # fewer than Envoy holds at a time


def turn(conversation: str, number: int) -> bytes:
    key = f"x-conversation-id: {conversation}\r\n" if conversation else ""
    return f"POST {PATH} HTTP/1.1\r\nhost: a\r\n{key}x-n: {number}\r\ncontent-length: 2\r\n\r\n{{}}".encode()


def turns(first: int) -> list[bytes]:
    return [turn(f"c{number}", first + number) for number in range(CONVERSATIONS)]


def conversations(mirror: FastServer) -> list[bytes]:
    return [dict(lines_of(head))[b"x-conversation-id"] for head in mirror.heads]


def copies(mirrors: list[FastServer]) -> set[int]:
    return {int(dict(lines_of(head))[b"x-n"]) for mirror in mirrors for head in mirror.heads}


@pytest.mark.parametrize("count", [2, 3])
async def test_a_conversation_stays_with_its_mirror_and_a_dead_one_loses_only_what_it_was_at(
    count: int, tmp_path: Path
) -> None:
    hosts = HOSTS[:count]
    async with AsyncExitStack() as stack:
        capture = await stack.enter_async_context(running_capture(tmp_path, mirror_hosts=hosts))
        await stack.enter_async_context(FastServer(capture.primary_port))
        mirrors = [
            await stack.enter_async_context(FastServer(capture.mirror_port, host=host, keeps=True)) for host in hosts
        ]
        await capture.follow(directive())
        for first in (0, 1000, 2000):
            assert await send_in_batches(capture.customers, turns(first)) == CONVERSATIONS

        async def all_arrived() -> bool:
            return sum(mirror.count for mirror in mirrors) == 3 * CONVERSATIONS

        await until(all_arrived, 5.0)
        for mirror in mirrors:
            assert mirror.count > CONVERSATIONS / 2  # of 3 * 300 in all
            assert all(conversations(mirror).count(one) == 3 for one in set(conversations(mirror)))
        homes = [set(conversations(mirror)) for mirror in mirrors]

        # One dies with copies in its hands that it has not answered.
        mirrors[-1].delay_s = 60.0
        held_before = mirrors[-1].count
        assert await send_in_batches(capture.customers, turns(3000)[:HELD]) == HELD

        async def all_held() -> bool:
            """Whether each has arrived, or waits in Envoy for a connection to the one that does not answer."""
            arrived = sum(mirror.count for mirror in mirrors)
            stats = await capture.admin("/stats?filter=cluster.mirror.upstream_rq_pending_active$")
            if arrived != sum(mirror.count for mirror in mirrors):
                return False
            return arrived + int(stats.split()[-1]) == 3 * CONVERSATIONS + HELD

        await until(all_held, 5.0)
        lost = mirrors[-1].count - held_before
        assert lost > 0  # a third, as a rule: where a conversation goes depends on the ports
        mirrors[-1].kill()
        for first in (4000, 5000):
            assert await send_in_batches(capture.customers, turns(first)) == CONVERSATIONS
        left = mirrors[:-1]

        async def all_but_the_lost() -> bool:
            return sum(mirror.count for mirror in left) == 5 * CONVERSATIONS + HELD - held_before - lost

        await until(all_but_the_lost, 5.0)
        assert {*range(4000, 4000 + CONVERSATIONS), *range(5000, 5000 + CONVERSATIONS)} <= copies(left)
        for mirror, home in zip(left, homes, strict=False):
            assert home <= set(conversations(mirror))  # nobody else had to move
            assert all(conversations(mirror).count(one) >= 5 for one in home)
        evidence = await capture.evidence()
        assert evidence.overflow == 0  # each copy that could not be delivered to the dead was delivered to another
        assert evidence.windows[1].sampled.requests == 5 * CONVERSATIONS + HELD


async def test_copies_without_a_key_are_spread_by_request_and_all_dead_mirrors_are_counted(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        capture = await stack.enter_async_context(running_capture(tmp_path, mirror_hosts=HOSTS[:2]))
        await stack.enter_async_context(FastServer(capture.primary_port))
        mirrors = [
            await stack.enter_async_context(FastServer(capture.mirror_port, host=host, keeps=True))
            for host in HOSTS[:2]
        ]
        await capture.follow(directive())
        assert await send_in_batches(capture.customers, [turn("", number) for number in range(300)]) == 300

        async def all_arrived() -> bool:
            return sum(mirror.count for mirror in mirrors) >= 300

        await until(all_arrived, 5.0)
        await asyncio.sleep(0.3)
        assert sum(mirror.count for mirror in mirrors) == 300
        assert all(mirror.count > 90 for mirror in mirrors)
        for mirror in mirrors:
            mirror.kill()
        assert await send_in_batches(capture.customers, turns(0)) == CONVERSATIONS

        async def all_counted() -> bool:
            return (await capture.evidence()).overflow == CONVERSATIONS

        await until(all_counted, 5.0)
