"""Replicas that do not answer are facts; those that do are read with the token, mirrors before capture."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web
from shadowrun_mirror.config import encode
from shadowrun_mirror.evidence import CaptureEvidence, Evidence, Source
from shadowrun_operator.cluster import replicas as module
from shadowrun_operator.cluster.replicas import Answer, Replicas

from tests.unit.cluster_io.wire import Request, answering
from tests.unit.reconcile.world import UID, World

pytestmark = pytest.mark.operator

SOURCE = Source(pod="p", pod_uid="u", epoch="e", sequence=1, time=1.0)
MIRROR = encode(Evidence(run_uid=UID, source=SOURCE, config_version=1, copying=True, expired=False))
CAPTURE = encode(CaptureEvidence(run_uid=UID, source=SOURCE, directive_version=1, copying=True, active_requests=0))


class Wire:
    """It remembers, and answers by port."""

    def __init__(self, **answers: Answer | Exception) -> None:
        self.answers = answers
        self.seen: list[Request] = []

    def __call__(self, request: Request) -> Answer:
        self.seen.append(request)
        answer = self.answers[f"port{request.port}"]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_mirrors_are_read_before_capture_and_all_with_the_token() -> None:
    wire = Wire(port9090=(200, MIRROR), port9091=(200, CAPTURE))
    replicas = answering(wire)
    reading = await replicas.read(["10.0.0.1"], ["10.0.0.2"], "t0ken")
    await replicas.close()
    assert [r.port for r in wire.seen] == [9090, 9091]
    assert {r.headers["Authorization"] for r in wire.seen} == {"Bearer t0ken"}
    assert (len(reading.mirrors), len(reading.captures), reading.failures) == (1, 1, ())


@pytest.mark.parametrize(
    ("ours", "ahead"),
    [
        ((1.0, 1.0), {}),
        ((0.5, 3.0), {}),  # a slow answer is no proof of anything
        ((101.0, 102.0), {"u": -100.0}),
        ((0.2, 0.4), {"u": 0.6}),
    ],
)
async def test_a_clock_counts_as_off_by_no_more_than_is_certain(
    ours: tuple[float, float], ahead: dict[str, float]
) -> None:
    replicas = answering(Wire(port9090=(200, MIRROR)), iter(ours).__next__)
    reading = await replicas.read(["10.0.0.1"], [], "t")
    await replicas.close()
    assert reading.clocks == pytest.approx(ahead)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (aiohttp.ClientConnectionError("no"), "ClientConnectionError"),
        (TimeoutError("slow"), "TimeoutError"),
        ((401, b""), "401"),
        ((200, b"{"), "truncated"),
        ((200, b'{"run_uid": 3}'), "run_uid"),
    ],
)
async def test_a_mirror_that_gives_nothing_is_a_fact(answer: Answer | Exception, says: str) -> None:
    replicas = answering(Wire(port9090=answer, port9091=(200, CAPTURE)))
    reading = await replicas.read(["10.0.0.1"], ["10.0.0.2"], "t")
    await replicas.close()
    assert reading.mirrors == ()
    assert len(reading.captures) == 1
    assert says in reading.failures[0]


async def test_a_companion_on_another_port_is_read_there() -> None:
    wire = Wire(port19091=(200, CAPTURE))
    replicas = answering(wire)
    reading = await replicas.read([], ["::1"], "t", companion_port=19091)
    await replicas.close()
    assert len(reading.captures) == 1


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((204, b""), ""),
        ((409, b"older"), "409"),
        ((422, b"admission: no"), "admission"),
        (aiohttp.ConnectionTimeoutError("no"), "ConnectionTimeoutError"),
    ],
)
async def test_pushing_a_configuration_says_what_went_wrong(answer: Answer | Exception, says: str) -> None:
    world = World.with_spec()
    world.until("Running")
    assert world.mirror is not None
    wire = Wire(port9090=answer)
    replicas = answering(wire)
    problem = await replicas.push("10.0.0.1", world.mirror, "t")
    await replicas.close()
    assert says in problem
    assert bool(problem) is bool(says)
    assert wire.seen[0].method == "PUT"
    assert wire.seen[0].body == encode(world.mirror)


@dataclass
class Pod:
    """A real server in place of one."""

    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    delay: float = 0.0
    between: float = 0.0  # the parts that it answers in

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.read())
        await asyncio.sleep(self.delay)
        if request.path == "/elsewhere":
            return web.Response(body=MIRROR)
        if request.headers["Authorization"] != "Bearer t":
            return web.Response(status=302, headers={"Location": "/elsewhere"})
        if self.between:
            return await self._slowly(request)
        return web.Response(body=MIRROR if request.method == "GET" else b"")

    async def _slowly(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        part = len(MIRROR) // 5 + 1
        for at in range(0, len(MIRROR), part):
            await answer.write(MIRROR[at : at + part])
            await asyncio.sleep(self.between)
        return answer


@pytest.fixture
async def pod(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pod]:
    found = Pod()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", found.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setattr(module, "CONTROL_PORT", runner.addresses[0][1])
    yield found
    await runner.cleanup()


async def test_over_a_real_connection_evidence_comes_and_a_configuration_goes(pod: Pod) -> None:
    world = World.with_spec()
    world.until("Running")
    assert world.mirror is not None
    replicas = Replicas()
    assert len((await replicas.read(["127.0.0.1"], [], "t")).mirrors) == 1
    assert await replicas.push("127.0.0.1", world.mirror, "t") == ""
    await replicas.close()
    assert pod.bodies == [b"", encode(world.mirror)]


async def test_a_large_body_may_take_longer_than_silence_may(pod: Pod) -> None:
    silence = module.TIMEOUT.sock_read
    assert silence is not None
    pod.between = silence / 4
    replicas = Replicas()
    assert len((await replicas.read(["127.0.0.1"], [], "t")).mirrors) == 1
    await replicas.close()


async def test_nobody_is_followed_elsewhere_and_nobody_is_waited_for_long(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT", aiohttp.ClientTimeout(total=0.2))
    replicas = Replicas()
    assert "302" in (await replicas.read(["127.0.0.1"], [], "another")).failures[0]
    pod.delay = 5.0
    assert "Timeout" in (await replicas.read(["127.0.0.1"], [], "t")).failures[0]
    await replicas.close()
    absent = Replicas()
    monkeypatch.setattr(module, "CONTROL_PORT", 9)
    assert "Error" in (await absent.read(["127.0.0.1"], [], "t")).failures[0]
    await absent.close()
