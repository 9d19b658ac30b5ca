"""What copies hold while they wait: a connection to the mirror from their head on, and memory that is accounted for."""

import asyncio
import socket
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from shadowrun_mirror import receive
from shadowrun_mirror.copied import Copy
from shadowrun_mirror.receive import Door, Rules
from shadowrun_operator.manifests.bootstrap import envoy_memory_bytes, max_copies

from tests.integration.capture.harness import (
    ONE,
    SEVERAL,
    Client,
    capture_on_free_ports,
    directive,
    primary,
    request_bytes,
    running_scene,
    until,
)
from tests.integration.capture.test_bad_mirrors import heap_bytes

pytestmark = pytest.mark.path

LARGEST = 6 << 20
RULES = Rules(run_uid="run-1", max_body_bytes=1 << 20, max_window=9)


async def visits(port: int, requests: int = 0) -> Client:
    """Somebody else at the mirror's door, who has sent so many copies."""
    client = Client(port)
    await client.streams()
    marks = [("x-shadowrun-run", "run-1"), ("x-shadowrun-window", "1")]
    for _ in range(requests):
        assert (await client.request(marks, b"{}")).status == 202
    return client


@pytest.mark.parametrize("trouble", ["a crowd", "a drain"])
async def test_a_copy_whose_customer_is_slow_has_a_connection_all_the_while_and_does_not_lose_it(
    trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Copy] = []
    refused: list[str] = []
    async with running_scene(tmp_path, mirror_hosts=ONE) as (capture, _, to_mirror), AsyncExitStack() as stack:
        await to_mirror.stop()
        door = Door(lambda: RULES, copies.append, refused.append, time.monotonic)
        await door.open("127.0.0.1", capture.mirror_port)
        stack.callback(door.abort)
        await capture.follow(directive())
        slow = Client(capture.customers)
        stack.callback(slow.close)
        whole = request_bytes([], b"x" * 5000)
        await slow.send(whole[:-1000])

        async def connected() -> bool:
            return len(door.connections) == 1

        await until(connected, 5.0)
        (of_the_copy,) = door.connections
        await asyncio.sleep(0.3)
        assert door.connections.is_fresh(of_the_copy)
        if trouble == "a drain":
            door.close()
        else:
            monkeypatch.setattr(receive, "MAX_CONNECTIONS", 2)
            for requests in (1, 1, 0):
                stack.callback((await visits(capture.mirror_port, requests)).close)
        await asyncio.sleep(0.3)
        assert of_the_copy in list(door.connections)
        await slow.send(whole[-1000:])
        assert (await slow.receive()).status == 200

        async def copied() -> bool:
            return 5000 in [copy.size for copy in copies]

        await until(copied, 5.0)
        assert refused == []


async def test_of_several_mirrors_none_has_a_connection_that_waits_for_a_customer(tmp_path: Path) -> None:
    async with running_scene(tmp_path, mirror_hosts=SEVERAL) as (capture, _, to_mirror):
        await capture.follow(directive())
        slow = Client(capture.customers)
        whole = request_bytes([], b"x" * 5000)
        await slow.send(whole[:-1000])
        await asyncio.sleep(1.0)
        connections = await capture.admin("/stats?filter=cluster.mirror.upstream_cx_total$")
        assert connections.strip().endswith(b" 0")
        await slow.send(whole[-1000:])
        assert (await slow.receive()).status == 200
        slow.close()

        async def copied() -> bool:
            return len(to_mirror.received) == 1

        await until(copied, 5.0)


async def test_as_many_copies_as_are_under_way_may_wait_for_a_connection_and_memory_is_enough_for_both(
    tmp_path: Path,
) -> None:
    """The mirror's machine takes as many connections as there may be copies, reads nothing, and then takes no more."""
    most = max_copies(LARGEST)
    capture = capture_on_free_ports(tmp_path)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(capture.stop)
        await capture.launch(LARGEST)
        await capture.stop()
        bootstrap = tmp_path / "bootstrap.yaml"
        place = (
            "  - name: copies\n    type: STRICT_DNS\n    dns_lookup_family: V4_PREFERRED\n    connect_timeout: 0.25s\n"
        )
        assert bootstrap.read_text().count(place) == 1
        bootstrap.write_text(bootstrap.read_text().replace(place, place.replace("0.25s", "8s")))
        await capture.exec()
        await until(capture.is_ready, 20.0)
        deaf = stack.enter_context(socket.socket())
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.bind(("127.0.0.1", capture.mirror_port))
        deaf.listen(most - 1)
        to_primary = await primary(capture.primary_port).start()
        stack.push_async_callback(to_primary.stop)
        await capture.follow(directive(max_body_bytes=LARGEST))
        alone = await heap_bytes(capture)
        client = Client(capture.customers)
        stack.callback(client.close)
        for _ in range(2 * most + 3):
            assert (await asyncio.wait_for(client.request([], b"x" * LARGEST), 5.0)).status == 200
        stats = await capture.admin("/stats?filter=cluster.copies.upstream_rq_(active|pending_active)$")
        values = {line.split(b": ")[0].rpartition(b".")[2]: int(line.split(b": ")[1]) for line in stats.splitlines()}
        assert values[b"upstream_rq_pending_active"] == most
        assert values[b"upstream_rq_active"] == most
        held = await heap_bytes(capture) - alone
        assert 2 * most * LARGEST * 0.8 < held < envoy_memory_bytes(LARGEST) - (1 << 30)
