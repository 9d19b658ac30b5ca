"""Clients that send requests before they have the answers to the last ones, on one connection (HTTP/1.1 pipelining).

Envoy hears of at most 32 of its connections at a time, of twice as many from then on each time there were more. If one
on which an answer is to go out is left for the next turn, and holds the next request already, Envoy takes that first,
counts an answer too many that has not gone, and closes the connection. It does so without anything of ours, which one
test shows; the others show that copies are no reason for it.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.capture.fast import FastServer, send_in_batches
from tests.integration.capture.harness import (
    Capture,
    Client,
    Message,
    Peer,
    answer,
    capture_on_free_ports,
    directive,
    request_bytes,
    running_capture,
    until,
)
from tests.integration.capture.test_replicas import HOSTS, turns

pytestmark = pytest.mark.path

FEW, MANY = 20, 300  # clients that leave in the same instant
REQUESTS = 4
WAITING = 60  # fewer than Envoy holds at a time


def bare_bootstrap(capture: Capture) -> str:
    """The least that an Envoy needs to proxy HTTP."""

    def address(port: int) -> object:
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    types = "type.googleapis.com/envoy.extensions.filters"
    router = {"name": "router", "typed_config": {"@type": f"{types}.http.router.v3.Router"}}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "primary"}}
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "customers",
        "http_filters": [router],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    endpoint = {"endpoint": {"address": address(capture.primary_port)}}
    primary = {
        "name": "primary",
        "load_assignment": {"cluster_name": "primary", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    listener = {"address": address(capture.customers), "filter_chains": [{"filters": filters}]}
    bootstrap = {
        "admin": {"address": address(capture.ports.admin)},
        "static_resources": {"listeners": [listener], "clusters": [primary]},
    }
    return json.dumps(bootstrap)  # JSON is YAML too


@asynccontextmanager
async def running(which: str, folder: Path) -> AsyncIterator[Capture]:
    """Envoy as capture runs it before a run copies anything, or with the least configuration there is."""
    if which == "capture":
        async with running_capture(folder) as capture:
            yield capture
        return
    capture = capture_on_free_ports(folder)
    (folder / "bootstrap.yaml").write_text(bare_bootstrap(capture))

    async def listens() -> bool:
        try:
            (await asyncio.open_connection("127.0.0.1", capture.customers))[1].close()
        except OSError:
            return False
        return True

    try:
        await capture.exec()
        await until(listens, 20.0)
        yield capture
    finally:
        await capture.stop()


async def number(capture: Capture, name: str) -> int:
    """The sum of statistics of Envoy's, by a regular expression for their names."""
    found = json.loads(await capture.admin(f"/stats?format=json&filter=^{name}$"))
    return sum(int(stat["value"]) for stat in found["stats"])


async def visitors(capture: Capture, count: int) -> list[Client]:
    """Connections that ask nothing. They come by and by: of a crowd Envoy would learn to hear of more at a time."""
    found: list[Client] = []

    async def all_in() -> bool:
        return await number(capture, "http.customers.downstream_cx_active") >= len(found)

    while len(found) < count:
        for _ in range(FEW // 2):
            found.append(Client(capture.customers))
            await found[-1].streams()
        await until(all_in, 5.0)
    return found


async def floods(capture: Capture) -> int:
    """Connections that Envoy closed for answers that it had not sent yet."""
    return await number(capture, "http1.response_flood")


def is_stopped(process: int) -> bool:
    return "State:\tT" in Path(f"/proc/{process}/status").read_text()


async def hold(capture: Capture) -> None:
    """Stop Envoy where it is, so that all that happens from now on has happened in the same instant to it."""
    assert capture.process is not None
    process = capture.process.pid
    capture.process.send_signal(signal.SIGSTOP)

    async def stopped() -> bool:
        return is_stopped(process)

    await until(stopped, 5.0)


async def answers_until_closed(client: Client) -> int:
    """How many of the requests that are out are answered before the connection is closed, or all."""
    for answered in range(REQUESTS):
        try:
            assert (await client.receive()).status == 200
        except AssertionError:
            return answered
    return REQUESTS


@pytest.mark.parametrize(("leave", "answered"), [(FEW, REQUESTS), (MANY, 2)])
@pytest.mark.parametrize("which", ["bare", "capture"])
async def test_envoy_itself_closes_on_who_pipelines_where_very_many_others_leave_in_the_same_instant(
    which: str, leave: int, answered: int, tmp_path: Path
) -> None:
    """Should an Envoy come that does not, take what docs/capture.md says of it out."""
    may_answer = asyncio.Semaphore(1)

    async def answers(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await may_answer.acquire()
        await answer(writer, "200 OK", [], b"ok")
        return True

    async with AsyncExitStack() as stack:
        capture = await stack.enter_async_context(running(which, tmp_path))
        primary = Peer(capture.primary_port, answers)
        primary.behaviour = primary.keeping(answers)
        await primary.start()
        stack.push_async_callback(primary.stop)
        others = await visitors(capture, leave)
        for other in others:
            stack.callback(other.close)
        client = Client(capture.customers)
        stack.callback(client.close)
        await client.send(request_bytes([], b"{}") * REQUESTS)

        async def second_is_there() -> bool:
            return len(primary.received) == 2

        await until(second_is_there, 5.0)
        await hold(capture)
        for _ in range(REQUESTS):
            may_answer.release()
        await asyncio.sleep(0.05)  # its answer is on the way to Envoy
        for other in others:
            other.close()
        await asyncio.sleep(0.05)  # they have left
        assert capture.process is not None
        capture.process.send_signal(signal.SIGCONT)
        assert await asyncio.wait_for(answers_until_closed(client), 20.0) == answered
        assert await floods(capture) == (answered < REQUESTS)


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_dead_mirrors_close_nobodys_connection(count: int, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        capture = await stack.enter_async_context(running_capture(tmp_path, mirror_hosts=HOSTS[:count]))
        await stack.enter_async_context(FastServer(capture.primary_port))
        await capture.follow(directive())
        for _ in range(5):
            assert await send_in_batches(capture.customers, turns(0)) == len(turns(0))
        assert await floods(capture) == 0

        async def all_counted() -> bool:
            return (await capture.evidence()).overflow == 5 * len(turns(0))

        await until(all_counted, 5.0)


@pytest.mark.parametrize("count", [2, 3])
async def test_copies_wait_for_few_connections_to_several_mirrors(count: int, tmp_path: Path) -> None:
    """So that no more than these can be refused in the same instant."""
    async with AsyncExitStack() as stack:
        capture = await stack.enter_async_context(running_capture(tmp_path, mirror_hosts=HOSTS[:count]))
        await stack.enter_async_context(FastServer(capture.primary_port))
        for host in HOSTS[:count]:
            await stack.enter_async_context(FastServer(capture.mirror_port, host=host, delay_s=60.0))
        await capture.follow(directive())
        assert await send_in_batches(capture.customers, turns(0)[:WAITING]) == WAITING

        async def all_there() -> bool:
            return await number(capture, "cluster.mirror.upstream_rq_(active|pending_active)") == WAITING

        await until(all_there, 5.0)
        assert await number(capture, "cluster.mirror.upstream_cx_active") == 16 // count * count
