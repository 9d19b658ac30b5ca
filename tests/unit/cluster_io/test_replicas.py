"""Replicas that do not answer are facts; those that do are read with the token, mirrors before capture."""

import httpx
import pytest
from shadowrun_mirror.config import encode
from shadowrun_mirror.evidence import CaptureEvidence, Evidence, Source
from shadowrun_operator.cluster.replicas import Replicas

from tests.unit.reconcile.world import UID, World

pytestmark = pytest.mark.operator

SOURCE = Source(pod="p", pod_uid="u", epoch="e", sequence=1, time=1.0)
MIRROR = encode(Evidence(run_uid=UID, source=SOURCE, config_version=1, copying=True, expired=False))
CAPTURE = encode(CaptureEvidence(run_uid=UID, source=SOURCE, directive_version=1, copying=True, active_requests=0))


class Wire:
    """A transport that remembers and answers by port."""

    def __init__(self, **answers: httpx.Response | Exception) -> None:
        self.answers = answers
        self.seen: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        answer = self.answers[f"port{request.url.port}"]
        if isinstance(answer, Exception):
            raise answer
        return answer


def _replicas(wire: Wire) -> Replicas:
    return Replicas(httpx.AsyncClient(transport=httpx.MockTransport(wire)))


async def test_mirrors_are_read_before_capture_and_all_with_the_token() -> None:
    wire = Wire(port9090=httpx.Response(200, content=MIRROR), port9091=httpx.Response(200, content=CAPTURE))
    replicas = _replicas(wire)
    reading = await replicas.read(["10.0.0.1"], ["10.0.0.2"], "t0ken")
    await replicas.close()
    assert [r.url.port for r in wire.seen] == [9090, 9091]
    assert {r.headers["authorization"] for r in wire.seen} == {"Bearer t0ken"}
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
    wire = Wire(port9090=httpx.Response(200, content=MIRROR))
    replicas = Replicas(httpx.AsyncClient(transport=httpx.MockTransport(wire)), iter(ours).__next__)
    reading = await replicas.read(["10.0.0.1"], [], "t")
    await replicas.close()
    assert reading.clocks == pytest.approx(ahead)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (httpx.ConnectError("no"), "ConnectError"),
        (httpx.ReadTimeout("slow"), "ReadTimeout"),
        (httpx.Response(401), "401"),
        (httpx.Response(200, content=b"{"), "truncated"),
        (httpx.Response(200, content=b'{"run_uid": 3}'), "run_uid"),
    ],
)
async def test_a_mirror_that_gives_nothing_is_a_fact(answer: httpx.Response | Exception, says: str) -> None:
    replicas = _replicas(Wire(port9090=answer, port9091=httpx.Response(200, content=CAPTURE)))
    reading = await replicas.read(["10.0.0.1"], ["10.0.0.2"], "t")
    await replicas.close()
    assert reading.mirrors == ()
    assert len(reading.captures) == 1
    assert says in reading.failures[0]


async def test_a_companion_on_another_port_is_read_there() -> None:
    wire = Wire(port19091=httpx.Response(200, content=CAPTURE))
    replicas = _replicas(wire)
    reading = await replicas.read([], ["::1"], "t", companion_port=19091)
    await replicas.close()
    assert len(reading.captures) == 1


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (httpx.Response(204), ""),
        (httpx.Response(409, text="older"), "409"),
        (httpx.Response(422, text="admission: no"), "admission"),
        (httpx.ConnectTimeout("no"), "ConnectTimeout"),
    ],
)
async def test_pushing_a_configuration_says_what_went_wrong(answer: httpx.Response | Exception, says: str) -> None:
    world = World.with_spec()
    world.until("Running")
    assert world.mirror is not None
    wire = Wire(port9090=answer)
    replicas = _replicas(wire)
    problem = await replicas.push("10.0.0.1", world.mirror, "t")
    await replicas.close()
    assert says in problem
    assert bool(problem) is bool(says)
    assert wire.seen[0].method == "PUT"
    assert wire.seen[0].content == encode(world.mirror)
