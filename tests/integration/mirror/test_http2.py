"""Arms that speak HTTP/2: behind a real Envoy, and scripted frame by frame where Envoy would never misbehave."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded
from h2.settings import SettingCodes
from shadowrun_mirror.config import Admission, CaptureRules, MirrorConfig, Sampling
from shadowrun_mirror.evidence import ClassEvidence

from tests.integration.mirror.engine import (
    DONE,
    FINISH,
    ROLE,
    Engine,
    Script,
    answers,
    chunk_json,
    event,
    hangs,
    raw,
    refuses,
    streams,
)
from tests.integration.mirror.rig import Rig, closed_port, rig

pytestmark = pytest.mark.mirror

_wheel = find_spec("envoy")
assert _wheel is not None
assert _wheel.submodule_search_locations is not None
ENVOY = Path(_wheel.submodule_search_locations[0]) / "_bin" / "envoy"
TYPE = "type.googleapis.com/envoy.extensions."
LARGE = CaptureRules(
    paths=("/v1/chat/completions",),
    max_body_bytes=1024 * 1024,
    sampling=Sampling(unit="Request", threshold=0, seed=7),
)


def h2c_in_front_of(engine_port: int, port: int) -> dict[str, Any]:
    """A listener that speaks HTTP/2 only, and passes everything on to an engine over HTTP/1.1."""

    def at(number: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    manager = {
        "@type": TYPE + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "arm",
        "codec_type": "HTTP2",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "arm",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "engine", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [{"name": "router", "typed_config": {"@type": TYPE + "filters.http.router.v3.Router"}}],
    }
    engine = {
        "name": "engine",
        "connect_timeout": "1s",
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": "engine",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": at(engine_port)}}]}],
        },
    }
    arm = {
        "name": "arm",
        "address": at(port),
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    return {"static_resources": {"listeners": [arm], "clusters": [engine]}}


@asynccontextmanager
async def envoy(folder: Path, engine_port: int) -> AsyncIterator[int]:
    port = closed_port()
    (folder / "envoy.json").write_text(json.dumps(h2c_in_front_of(engine_port, port)))
    options = ["--disable-hot-restart", "--concurrency", "1", "-l", "error"]
    process = await asyncio.create_subprocess_exec(ENVOY, "-c", folder / "envoy.json", *options)
    try:
        async with asyncio.timeout(20):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                except OSError:
                    await asyncio.sleep(0.05)
        writer.close()
        yield port
    finally:
        process.kill()
        await process.wait()


def speaking_http2(config: MirrorConfig, port: int) -> MirrorConfig:
    """The candidate is at `port` and speaks HTTP/2."""
    candidate = msgspec.structs.replace(config.arms[1], port=port, http2=True)
    return msgspec.structs.replace(config, version=config.version + 1, arms=(config.arms[0], candidate))


@asynccontextmanager
async def candidate_behind_envoy(folder: Path, script: Script, **changes: Any) -> AsyncIterator[tuple[Rig, Engine]]:
    async with (
        Engine(script) as engine,
        envoy(folder, engine.port) as port,
        rig(answers(), answers(), **changes) as mirror,
    ):
        assert (await mirror.put(speaking_http2(mirror.config, port))).status_code == 204
        yield mirror, engine


async def test_a_stream_over_http2_is_measured_like_one_over_http1(tmp_path: Path) -> None:
    async with candidate_behind_envoy(tmp_path, streams(tokens=5, gap_s=0.02, delay_s=0.1)) as (mirror, engine):
        await mirror.copy(headers={"x-feature": "on", "authorization": "Bearer customer", "te": "trailers"})
        counted = await mirror.counted()
        got = engine.got[0]
    candidate = counted.arms["candidate"]
    assert candidate.completed.requests == 1
    assert candidate.usage.output_tokens == 5
    assert 0.095 <= candidate.ttft.total <= 0.9
    assert 0.015 <= candidate.tpot.total <= 0.3
    assert got.values("x-feature") == ["on"]
    assert got.values("authorization") == []
    assert got.values("baggage") == ["shadow=true,shadow.run=prefix-cache"]
    assert got.values("content-type") == ["application/json"]
    assert got.json["stream_options"] == {"include_usage": True}


async def test_large_bodies_and_answers_pass_whole(tmp_path: Path) -> None:
    """Larger than any frame and than the first window, both ways."""
    async with candidate_behind_envoy(tmp_path, answers("word " * 500_000), capture=LARGE) as (mirror, engine):
        body = {"model": "m", "stream": False, "messages": [{"role": "user", "content": "x" * 300_000}]}
        await mirror.copy(body)
        counted = await mirror.counted(name="long")
        assert len(engine.got[0].json["messages"][0]["content"]) == 300_000
    assert counted.arms["candidate"].completed.requests == 1


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (refuses("404 Not Found"), "HTTP4xx"),
        (refuses("500 Internal Server Error"), "HTTP5xx"),
        (raw("text/event-stream", ROLE, event(chunk_json("word")), whole=False), "StreamCut"),
        (raw("text/event-stream", ROLE, FINISH, DONE), "Empty"),
        (hangs, "Timeout"),
    ],
)
async def test_failures_have_the_same_words(tmp_path: Path, script: Script, reason: str) -> None:
    limits = Admission(max_in_flight=8, timeout_s=0.7)
    async with candidate_behind_envoy(tmp_path, script, admission=limits) as (mirror, _):
        await mirror.copy()
        counted = await mirror.counted()
    assert {name: amount.requests for name, amount in counted.arms["candidate"].failed.items()} == {reason: 1}
    assert counted.arms["baseline"].completed.requests == 1


Answer = Callable[["Peer"], None]


class Peer(asyncio.Protocol):
    """The server's end of one connection, scripted: `answer` is called when a request is whole."""

    def __init__(self, answer: Answer, window: int) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self._window = window
        self.body = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.transport: Any = None
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.h2.initiate_connection()
        self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: self._window})
        self.flush()

    def data_received(self, data: bytes) -> None:
        for happened in self.h2.receive_data(data):
            if isinstance(happened, RequestReceived):
                self.headers = [(bytes(name), bytes(value)) for name, value in happened.headers]
            elif isinstance(happened, DataReceived):
                self.body += happened.data
                if happened.flow_controlled_length:
                    self.h2.increment_flow_control_window(happened.flow_controlled_length)
                    self.h2.increment_flow_control_window(happened.flow_controlled_length, 1)
            elif isinstance(happened, StreamEnded):
                self.flush()
                self._answer(self)
                return
        self.flush()

    def flush(self, more: bytes = b"") -> None:
        self.transport.write(self.h2.data_to_send() + more)

    def head(self, *more: tuple[str, str], status: str = "200", end: bool = False) -> None:
        self.h2.send_headers(1, [(":status", status), ("content-type", "text/event-stream"), *more], end_stream=end)

    def send(self, data: bytes, end: bool = False) -> None:
        self.h2.send_data(1, data, end_stream=end)
        self.flush()


WORDS = ROLE + event(chunk_json("word")) + event(chunk_json("more"))


async def candidate_does(answer: Answer, window: int = 65_535, body: Any = None) -> tuple[ClassEvidence, list[Peer]]:
    """One copy, the candidate being a scripted peer; what was counted, and the connections it got."""
    peers: list[Peer] = []

    def peer() -> Peer:
        peers.append(Peer(answer, window))
        return peers[-1]

    server = await asyncio.get_running_loop().create_server(peer, "127.0.0.1", 0)
    limits = Admission(max_in_flight=8, timeout_s=1.0, max_answer_bytes=100_000)
    async with rig(answers(), answers(), admission=limits, capture=LARGE) as mirror:
        await mirror.put(speaking_http2(mirror.config, server.sockets[0].getsockname()[1]))
        await mirror.copy(body)
        evidence = await mirror.settled()
    server.close()
    (counted,) = evidence.windows[1].classes.values()
    return counted, peers


def _answers_well(peer: Peer) -> None:
    peer.head()
    peer.send(WORDS + FINISH + DONE, end=True)


def _shuts_down_meanwhile(peer: Peer) -> None:
    """As servers do that are told to stop: no more streams, but this one to its end."""
    peer.head()
    peer.send(WORDS)
    goaway = b"\0\0\x08\x07\0\0\0\0\0" + b"\0\0\0\x01" + b"\0\0\0\0"
    peer.flush(goaway)
    peer.send(FINISH + DONE, end=True)


def _gives_interim_answers_and_trailers(peer: Peer) -> None:
    peer.h2.send_headers(1, [(":status", "103"), ("link", "</x>")])
    peer.head()
    peer.send(WORDS + FINISH + DONE)
    peer.h2.send_headers(1, [("x-trailer", "1")], end_stream=True)
    peer.flush()


def _pads_and_pings(peer: Peer) -> None:
    peer.head()
    peer.h2.ping(b"12345678")
    for byte in WORDS + FINISH + DONE:
        peer.h2.send_data(1, bytes([byte]), pad_length=100)
    peer.h2.end_stream(1)
    peer.flush()


@pytest.mark.parametrize(
    "answer", [_answers_well, _shuts_down_meanwhile, _gives_interim_answers_and_trailers, _pads_and_pings]
)
async def test_whatever_else_the_protocol_allows_is_a_complete_answer(answer: Answer) -> None:
    counted, _ = await candidate_does(answer)
    assert counted.arms["candidate"].failed == {}
    assert counted.arms["candidate"].completed.requests == 1


def _resets(peer: Peer) -> None:
    peer.head()
    peer.send(WORDS)
    peer.h2.reset_stream(1, 2)
    peer.flush()


def _refuses_the_stream(peer: Peer) -> None:
    peer.h2.reset_stream(1, 7)
    peer.flush()


def _goes_away(peer: Peer) -> None:
    peer.head()
    peer.send(WORDS)
    peer.h2.close_connection(1, last_stream_id=1)
    peer.flush()


def _goes_away_without_the_stream(peer: Peer) -> None:
    peer.h2.close_connection(0, last_stream_id=0)
    peer.flush()


def _hangs_up(peer: Peer) -> None:
    peer.head()
    peer.send(WORDS)
    peer.transport.close()


def _ends_early(peer: Peer) -> None:
    peer.head()
    peer.send(WORDS, end=True)


def _speaks_http1(peer: Peer) -> None:
    peer.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


def _sends_a_frame_too_large(peer: Peer) -> None:
    peer.head()
    peer.flush(b"\x7f\xff\xff\0\0\0\0\0\x01")


def _sends_headers_that_are_none(peer: Peer) -> None:
    peer.flush(b"\0\0\x04\x01\x04\0\0\0\x01" + b"\xff\xff\xff\xff")


def _never_ends(peer: Peer) -> None:
    peer.head()
    for _ in range(20):
        peer.send(ROLE * 80)


def _has_no_status(peer: Peer) -> None:
    peer.h2.config.validate_outbound_headers = False
    peer.h2.send_headers(1, [("content-type", "text/event-stream")])
    peer.flush()


def _says_nothing(_: Peer) -> None:
    return


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (_resets, "StreamCut"),
        (_refuses_the_stream, "StreamCut"),
        (_goes_away, "StreamCut"),
        (_goes_away_without_the_stream, "StreamCut"),
        (_hangs_up, "StreamCut"),
        (_ends_early, "StreamCut"),
        (_speaks_http1, "Malformed"),
        (_sends_a_frame_too_large, "Malformed"),
        (_sends_headers_that_are_none, "Malformed"),
        (_has_no_status, "Malformed"),
        (_never_ends, "TooLong"),
        (_says_nothing, "Timeout"),
    ],
)
async def test_what_goes_wrong_in_the_frames_has_the_words_http1_has(answer: Answer, reason: str) -> None:
    counted, _ = await candidate_does(answer)
    assert {name: amount.requests for name, amount in counted.arms["candidate"].failed.items()} == {reason: 1}


async def test_a_port_nobody_listens_on_is_a_failure_to_connect() -> None:
    async with rig(answers(), answers()) as mirror:
        await mirror.put(speaking_http2(mirror.config, closed_port()))
        await mirror.copy()
        counted = await mirror.counted()
    assert set(counted.arms["candidate"].failed) == {"Connect"}


@pytest.mark.parametrize("window", [1000, 16_384, 65_535, 1_000_000])
async def test_the_body_goes_out_as_the_arm_makes_room(window: int) -> None:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x" * 300_000}]}
    counted, peers = await candidate_does(_answers_well, window, body)
    assert counted.arms["candidate"].failed == {}
    assert json.loads(peers[0].body)["messages"] == body["messages"]
    assert dict(peers[0].headers)[b"content-length"] == str(len(peers[0].body)).encode()


async def test_every_request_has_a_connection_of_its_own() -> None:
    """As over HTTP/1.1: each is balanced anew over an arm's replicas."""
    peers: list[Peer] = []

    def peer() -> Peer:
        peers.append(Peer(_answers_well, 65_535))
        return peers[-1]

    server = await asyncio.get_running_loop().create_server(peer, "127.0.0.1", 0)
    async with rig(answers(), answers()) as mirror:
        await mirror.put(speaking_http2(mirror.config, server.sockets[0].getsockname()[1]))
        for _ in range(3):
            await mirror.copy()
        counted = await mirror.counted()
    server.close()
    assert counted.arms["candidate"].completed.requests == 3
    assert len(peers) == 3
    assert {dict(each.headers)[b":path"] for each in peers} == {b"/v1/chat/completions"}
