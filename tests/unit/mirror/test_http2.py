"""When a request counts as written, where the arm makes room for its body bit by bit."""

import asyncio
from typing import Any, cast

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from shadowrun_mirror.client import Exchange, Request
from shadowrun_mirror.completions import COMPLETIONS
from shadowrun_mirror.http2 import Http2Connection
from shadowrun_mirror.stream import StreamReader

pytestmark = pytest.mark.mirror

BODY = b"x" * 200_000
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'


class Exchanged:
    """One exchange with a peer of the test's, byte by byte; every look at the clock is a second later."""

    def __init__(self) -> None:
        self.now = 0.0
        assert COMPLETIONS.event is not None
        self.reader = StreamReader(COMPLETIONS.event, done_mark=True)
        request = Request(
            host="arm", port=1, target=b"/", headers=(), body=BODY, timeout_s=5.0, max_answer_bytes=1000_000
        )
        self.ended: list[Exchange | Exception] = []
        self.ours = Http2Connection(request, self.reader, lambda _, __: None, self.ended.append, self._later)
        self.peer = H2Connection(H2Configuration(client_side=False))
        self.peer.initiate_connection()
        self.stream = 0
        self.ours.connection_made(cast("asyncio.BaseTransport", self))

    def _later(self) -> float:
        self.now += 1.0
        return self.now

    def write(self, data: bytes) -> None:
        for event in self.peer.receive_data(data):
            if isinstance(event, RequestReceived):
                self.stream = cast("Any", event).stream_id

    def abort(self) -> None:
        return

    def answers(self) -> None:
        self.peer.send_headers(self.stream, [(":status", "200"), ("content-type", "text/event-stream")])
        self.peer.send_data(self.stream, EVENT)

    def makes_room(self) -> None:
        for stream in (None, self.stream):
            self.peer.increment_flow_control_window(50_000, stream)

    def arrives(self) -> None:
        """What the peer has said since comes in one read."""
        self.ours.data_received(self.peer.data_to_send())


def test_each_part_of_the_body_moves_the_moment_of_writing_until_the_answer_begins() -> None:
    exchange = Exchanged()
    stamps = [exchange.ours.written_at]
    for _ in range(2):
        exchange.makes_room()
        exchange.arrives()
        stamps.append(exchange.ours.written_at)
    assert stamps == sorted({stamp for stamp in stamps if stamp is not None})
    assert len(stamps) == 3


@pytest.mark.parametrize("room_first", [True, False])
def test_an_answer_that_begins_before_the_request_has_ended_is_never_earlier_than_it(room_first: bool) -> None:
    exchange = Exchanged()
    exchange.arrives()
    before = exchange.ours.written_at
    for say in (exchange.makes_room, exchange.answers) if room_first else (exchange.answers, exchange.makes_room):
        say()
    exchange.arrives()
    assert exchange.ours.written_at == before
    exchange.makes_room()
    exchange.arrives()
    assert exchange.ours.written_at == before
    first = exchange.reader.answer(whole=False).first_at
    assert before is not None
    assert first is not None
    assert first > before
