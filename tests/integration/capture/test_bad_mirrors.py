"""Whatever the mirror does, no customer fails or waits, memory stays bounded, and what was not copied is counted."""

import asyncio
import json
import socket
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
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
    says_continue_without_end,
)
from tests.integration.capture.harness import (
    ONE,
    SEVERAL,
    Behaviour,
    Capture,
    Client,
    Message,
    Peer,
    capture_on_free_ports,
    directive,
    primary,
    request_bytes,
    running_scene,
    until,
)

pytestmark = pytest.mark.path

CONTINUES = "says-continue-without-end"
LARGEST = 6 << 20
SMALL, LARGE = 40, 6
LET_GO_S = 10.5
"""A little longer than a mirror may take with a copy."""


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
    CONTINUES: behaves(says_continue_without_end),
}


@pytest.mark.parametrize(
    ("name", "hosts"),
    [*((name, ONE) for name in MIRRORS), *((name, SEVERAL) for name in ("down", "answers-60-MB", CONTINUES))],
)
async def test_no_customer_fails_or_waits_for_a_mirror_that_misbehaves(
    name: str, hosts: tuple[str, ...], tmp_path: Path
) -> None:
    async with running_scene(tmp_path, max_body_bytes=LARGEST, mirror_hosts=hosts) as (capture, to_primary, to_mirror):
        alone, longest_alone = await customers(capture)
        assert alone == [200] * (SMALL + LARGE)
        await MIRRORS[name](to_mirror)
        await capture.follow(directive(max_body_bytes=LARGEST))
        started = time.monotonic()
        statuses, longest = await customers(capture)
        assert statuses == [200] * (SMALL + LARGE)
        # A stall lasts for ever, or the ten seconds of a timeout; sharing two cores with this test's servers does not.
        bound = min(10.0, 3 * longest_alone + 6.0)
        assert longest < bound, f"alone {longest_alone:.2f} s, with the mirror {longest:.2f} s"
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


@pytest.mark.parametrize("hosts", [ONE, SEVERAL])
async def test_customers_have_their_turn_between_answers_that_say_continue_for_ever(
    hosts: tuple[str, ...], tmp_path: Path
) -> None:
    async with running_scene(tmp_path, max_body_bytes=1 << 18, mirror_hosts=hosts) as (capture, _, to_mirror):
        client = Client(capture.customers)
        to_mirror.behaviour = says_continue_without_end
        await capture.follow(directive(max_body_bytes=1 << 18))
        for _ in range(20):
            assert (await client.request()).status == 200
        await capture.follow(directive(version=2, copying=False))
        name = "copies" if hosts == ONE else "mirror"

        async def all_say_it() -> bool:
            # Of several, as many as may have a connection; the others wait for one.
            stats = await capture.admin(f"/stats?filter=cluster.{name}.upstream_rq_(active|pending_active)$")
            return sum(int(line.rpartition(b" ")[2]) for line in stats.splitlines()) == 20

        await until(all_say_it, 5.0)
        took = []
        for _ in range(9):
            started = time.monotonic()
            assert (await client.request()).status == 200
            took.append(time.monotonic() - started)
        client.close()
        assert statistics.median(took) < 0.25, took


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


@pytest.mark.parametrize("hosts", [ONE, SEVERAL])
async def test_a_copy_may_wait_for_its_customer_longer_than_for_the_mirror_and_goes_out_whole_or_not_at_all(
    hosts: tuple[str, ...], tmp_path: Path
) -> None:
    async with running_scene(tmp_path, mirror_hosts=hosts) as (capture, _, to_mirror):
        await capture.follow(directive())
        met: list[str] = []
        keeps = to_mirror.behaviour

        async def noticed(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
            met.append(head.start)
            return await keeps(head, reader, writer)

        to_mirror.behaviour = noticed
        slow, leaving = Client(capture.customers), Client(capture.customers)
        whole = request_bytes([], b"x" * 5000)
        for client in (slow, leaving):
            await client.send(whole[:-1000])
        await asyncio.sleep(0.5)
        leaving.close()
        await asyncio.sleep(LET_GO_S)
        assert met == []
        await slow.send(whole[-1000:])
        assert (await slow.receive()).status == 200
        slow.close()

        async def copied() -> bool:
            return [copy.body for copy in to_mirror.received] == [b"x" * 5000]

        await until(copied, 3.0)
        assert len(met) == 1


async def test_a_copy_that_no_buffer_on_its_way_has_room_for_holds_up_nobody(tmp_path: Path) -> None:
    capture = capture_on_free_ports(tmp_path)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(capture.stop)
        await capture.launch(LARGEST)
        await capture.stop()
        bootstrap = tmp_path / "bootstrap.yaml"
        place = "      socket_options: ["
        assert bootstrap.read_text().count(place) == 1
        narrow = f"level: {socket.SOL_SOCKET}, name: {socket.SO_SNDBUF}, int_value: 4096, state: STATE_PREBIND"
        bootstrap.write_text(bootstrap.read_text().replace(place, f"{place}{{{narrow}}}, "))
        await capture.exec()
        await until(capture.is_ready, 20.0)
        deaf = stack.enter_context(socket.socket())
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.bind(("127.0.0.1", capture.mirror_port))
        deaf.listen(100)
        to_primary = await primary(capture.primary_port).start()
        stack.push_async_callback(to_primary.stop)
        await capture.follow(directive(max_body_bytes=LARGEST))
        client = Client(capture.customers)
        for size in (250_000, 3_000_000) * 3:
            got = await asyncio.wait_for(client.request([("x-long", "v" * 50_000)], b"x" * size), LET_GO_S / 2)
            assert got.status == 200
        assert client.connections == 1  # and its next request was read while the copies before it were stuck
        client.close()
        stuck = await capture.admin("/stats?filter=cluster.copies.upstream_(rq_active|cx_tx_bytes_buffered)$")
        values = dict(line.split(b": ") for line in stuck.splitlines())
        assert int(values[b"cluster.copies.upstream_rq_active"]) == 6
        assert int(values[b"cluster.copies.upstream_cx_tx_bytes_buffered"]) > 3 * 3_000_000
