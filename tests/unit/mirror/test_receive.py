"""The door alone, on a transport that is none: what it answers, hands on and holds, byte by byte."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror import connections, receive
from shadowrun_mirror.copied import Copy, Headers
from shadowrun_mirror.receive import Door, Rules

pytestmark = pytest.mark.mirror

PROXY = Rules(run_uid="run-uid", max_body_bytes=1000, max_window=9)
EXTERNAL = Rules(
    run_uid="run-uid",
    max_body_bytes=1000,
    max_window=9,
    source="External",
    window=4,
    paths=frozenset({b"/v1/messages"}),
)
BODY = b'{"model":"m"}'


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    @property
    def statuses(self) -> list[int]:
        return [int(line[9:12]) for line in self.written.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


class Entrance:
    """A door and what came through it."""

    def __init__(
        self, rules: Rules = PROXY, sheds: Callable[[Headers, int | None], bool] | None = None, held: int = 10_000
    ):
        self.copies: list[Copy] = []
        self.refused: list[str] = []
        self.now = 0.0
        self.door = Door(
            lambda: rules,
            self.copies.append,
            self.refused.append,
            lambda: self.now,
            sheds or (lambda _, __: False),
            held,
        )

    def connect(self) -> tuple[receive._Connection, Transport]:
        connection, transport = receive._Connection(self.door), Transport()
        connection.connection_made(cast("Any", transport))
        return connection, transport

    def send(self, *pieces: bytes) -> Transport:
        connection, transport = self.connect()
        for piece in pieces:
            connection.data_received(piece)
        return transport


def head(*lines: str, target: str = "/v1/messages", marks: bool = True, version: str = "1.1") -> bytes:
    ours = ("x-shadowrun-run: run-uid", "x-shadowrun-window: 1") if marks else ()
    return "\r\n".join([f"POST {target} HTTP/{version}", "host: any", *ours, *lines, "", ""]).encode()


def request(body: bytes = BODY, *lines: str, marks: bool = True, target: str = "/v1/messages") -> bytes:
    return head(f"content-length: {len(body)}", *lines, marks=marks, target=target) + body


def test_a_copy_that_would_be_shed_is_refused_by_its_head_and_counted_with_the_length_it_declared() -> None:
    asked: list[tuple[Headers, int | None]] = []

    def sheds(headers: Headers, length: int | None) -> bool:
        asked.append((headers, length))
        return True

    entrance = Entrance(sheds=sheds)
    connection, transport = entrance.connect()
    connection.data_received(head("content-length: 900"))
    assert transport.statuses == [429]
    assert [(copy.body, copy.size, copy.window, copy.shed) for copy in entrance.copies] == [(None, 900, 1, True)]
    connection.data_received(b"x" * 900)
    assert entrance.door.held_bytes == 0
    assert len(asked) == 1
    assert dict(asked[0][0])[b"content-length"] == b"900"
    connection.data_received(request())
    assert transport.statuses == [429, 429]
    assert entrance.refused == []


def test_a_copy_without_a_declared_length_may_be_shed_too_and_has_the_size_of_all_that_comes() -> None:
    lengths: list[int | None] = []

    def sheds(_: Headers, length: int | None) -> bool:
        lengths.append(length)
        return len(lengths) < 3

    entrance = Entrance(sheds=sheds)
    chunked = head("transfer-encoding: chunked")
    connection, transport = entrance.connect()
    connection.data_received(chunked)
    assert transport.statuses == [429]
    connection.data_received(b"2\r\n{}\r\n0\r\n\r\n")
    connection.data_received(chunked + b"2\r\n{}\r\n")
    connection.data_received(b"1\r\n \r\n0\r\n\r\n" + chunked + b"2\r\n{}\r\n0\r\n\r\n")
    assert transport.statuses == [429, 429, 202]
    found = [(copy.body, copy.size, copy.shed) for copy in entrance.copies]
    assert found == [(None, 2, True), (None, 3, True), (b"{}", 2, False)]
    assert lengths == [None] * 3
    assert (entrance.refused, entrance.door.held_bytes) == ([], 0)


@pytest.mark.parametrize("too_large", [False, True])
@pytest.mark.parametrize("end", ["whole", "cut", "late", "broken"])
def test_a_refused_copy_of_unknown_length_is_answered_at_once_and_counts_once_it_ends(
    too_large: bool, end: str
) -> None:
    entrance = Entrance(sheds=lambda _, __: not too_large)
    connection, transport = entrance.connect()
    first = 1001 if too_large else 1
    connection.data_received(head("transfer-encoding: chunked") + b"%x\r\n" % first + b"x" * first + b"\r\n")
    assert transport.statuses == [413 if too_large else 429]
    connection.data_received(b"1388\r\n" + b"x" * 5000 + b"\r\n")
    assert entrance.copies == []
    assert entrance.door.held_bytes <= receive.MAX_HEAD_BYTES
    if end == "whole":
        connection.data_received(b"0\r\n\r\n")
    elif end == "broken":
        connection.data_received(b"no number\r\n")
    elif end == "late":
        entrance.door.drop_late(1.0)
    connection.connection_lost(None)
    assert [(copy.body, copy.size, copy.shed) for copy in entrance.copies] == [(None, first + 5000, not too_large)]
    assert entrance.refused == (["bad_request"] if end == "broken" else [])
    assert entrance.door.held_bytes == 0


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("content-length: 900",), 429),
        (("transfer-encoding: chunked",), 429),
        (("content-length: 1001",), 413),
        (("content-length: 900", "x-shadowrun-window: 77"), 400),
    ],
)
def test_a_refused_copy_that_asks_first_is_not_told_to_go_on_and_is_the_last_on_its_connection(
    lines: tuple[str, ...], status: int
) -> None:
    entrance = Entrance(sheds=lambda _, __: True)
    connection, transport = entrance.connect()
    connection.data_received(head("expect: 100-continue", *lines))
    assert transport.statuses == [status]
    assert b"\r\nconnection: close\r\n" in transport.written
    if b"chunked" not in lines[0].encode():
        connection.data_received(b"x" * int(lines[0].split()[1]))
        assert transport.closed
    connection.connection_lost(None)
    assert transport.statuses == [status]
    assert len(entrance.copies) == (status != 400)


def test_a_copy_that_asks_first_is_told_to_go_on_and_its_connection_goes_on() -> None:
    entrance = Entrance()
    connection, transport = entrance.connect()
    connection.data_received(head("expect: 100-continue", f"content-length: {len(BODY)}"))
    connection.data_received(BODY)
    assert transport.statuses == [100, 202]
    assert b"close" not in transport.written
    assert not transport.closed


def test_what_is_no_copy_or_too_large_is_not_asked_about() -> None:
    def breaks(_: Headers, __: int | None) -> bool:
        raise AssertionError

    entrance = Entrance(sheds=breaks)
    assert entrance.send(request(BODY, marks=False)).statuses == [403]
    assert entrance.send(head("content-length: 1001")).statuses == [413]
    assert not entrance.copies[0].shed


def test_a_fault_in_finding_out_whether_there_is_room_lets_the_copy_in() -> None:
    def breaks(_: Headers, __: int | None) -> bool:
        raise RuntimeError("the prompt was: hello")

    entrance = Entrance(sheds=breaks)
    assert entrance.send(request()).statuses == [202]
    assert entrance.refused == ["internal"]
    assert entrance.copies[0].body == BODY


@pytest.mark.parametrize(
    "data",
    [
        request(marks=False),
        request(BODY, "baggage: team=blue,Shadow=true,sh%61dow=true,shadows=true", marks=False),
        request(marks=False, target="/v1/messages?beta=true"),
        head("content-length: 13", marks=False, version="1.0") + BODY,
        head("transfer-encoding: chunked", marks=False) + b"d\r\n" + BODY + b"\r\n0\r\n\r\n",
        request(BODY, "x-shadowrun-run: another", "x-shadowrun-window: 99", marks=False),
    ],
)
def test_copies_of_any_proxy_need_no_marks_and_belong_to_the_window_in_force(data: bytes) -> None:
    entrance = Entrance(EXTERNAL)
    assert entrance.send(data).statuses == [202]
    assert [(copy.body, copy.window) for copy in entrance.copies] == [(BODY, 4)]


@pytest.mark.parametrize("host", ["chat.test-shadow", "chat.test:8080", "", "[::1]"])
def test_the_host_is_not_looked_at(host: str) -> None:
    entrance = Entrance(EXTERNAL)
    assert entrance.send(request(marks=False).replace(b"host: any", b"host: " + host.encode())).statuses == [202]


@pytest.mark.parametrize(
    ("lines", "target", "status", "refused"),
    [
        (("baggage: shadow=true",), "/v1/messages", 508, "loop"),
        (("baggage: team=blue , shadow = true;p=1,x=y",), "/v1/messages", 508, "loop"),
        (("baggage: a=b", "Baggage: shadow=true"), "/v1/messages", 508, "loop"),
        (("baggage: a=b,\tshadow.run = x",), "/v1/messages", 508, "loop"),
        ((), "/v1/models", 404, "path"),
        ((), "/v1/messages/", 404, "path"),
        ((), "http://any/v1/messages", 400, "target"),
    ],
)
def test_copies_of_copies_and_of_other_paths_are_refused_from_any_proxy(
    lines: tuple[str, ...], target: str, status: int, refused: str
) -> None:
    entrance = Entrance(EXTERNAL)
    assert entrance.send(request(BODY, *lines, marks=False, target=target)).statuses == [status]
    assert (entrance.copies, entrance.refused) == ([], [refused])


def test_bodies_that_do_not_end_are_bounded_together_and_shed_beyond_it() -> None:
    entrance = Entrance(held=3000)
    slow = [entrance.connect() for _ in range(4)]
    for connection, _ in slow:
        connection.data_received(head("content-length: 1000"))
        connection.data_received(b"x" * 900)
    assert entrance.door.held_bytes <= 3000
    assert [transport.statuses for _, transport in slow] == [[], [], [], [429]]
    assert [(copy.body, copy.size, copy.shed) for copy in entrance.copies] == [(None, 1000, True)]
    for connection, _ in slow:
        connection.data_received(b"x" * 100)
    assert [transport.statuses for _, transport in slow] == [[202], [202], [202], [429]]
    assert entrance.door.held_bytes == 0


def test_heads_that_do_not_end_count_too_and_cost_the_connection() -> None:
    entrance = Entrance(held=3000)
    slow = [entrance.connect() for _ in range(4)]
    for connection, _ in slow:
        connection.data_received(b"POST / HTTP/1.1\r\nx: " + b"y" * 900)
    assert [transport.statuses for _, transport in slow] == [[], [], [], [429]]
    assert slow[3][1].closed
    assert entrance.refused == ["memory"]
    for connection, _ in slow:
        connection.connection_lost(None)
    assert entrance.door.held_bytes == 0


def test_trailers_do_not_become_headers() -> None:
    entrance = Entrance()
    trailers = b"x-shadowrun-window: 7\r\nauthorization: Bearer other\r\n"
    start = head("transfer-encoding: chunked") + b"2\r\n{}\r\n0\r\n"
    assert entrance.send(start + trailers + b"\r\n", start, trailers + b"\r\n").statuses == [202, 202]
    for copy in entrance.copies:
        assert copy.window == 1
        assert [name for name, _ in copy.headers][-1] == b"transfer-encoding"


@pytest.mark.parametrize(
    "rest", [b"0\r\n" + b"x: y\r\n" * 50_000, b"0\r\nx: " + b"y" * 300_000, b"3;x=" + b"y" * 300_000]
)
@pytest.mark.parametrize("refused", [False, True])
def test_what_is_neither_head_nor_body_is_bounded(rest: bytes, refused: bool) -> None:
    entrance = Entrance(held=10**9)
    connection, transport = entrance.connect()
    connection.data_received(head("transfer-encoding: chunked"))
    connection.data_received(b"7d0\r\n" + b"x" * 2000 + b"\r\n" if refused else b"2\r\n{}\r\n")
    sent = 0
    while not transport.closed and sent < len(rest):
        connection.data_received(rest[sent : sent + 1000])
        sent += 1000
        kept = [header for request in connection._requests for header in request.headers]
        assert len(kept) <= 4
    assert transport.statuses[-1] == 431
    assert receive.MAX_HEAD_BYTES < sent <= receive.MAX_HEAD_BYTES + 2000
    assert entrance.door.held_bytes == 0
    assert entrance.refused == ["bad_request"]


def test_parts_of_a_body_and_requests_one_after_another_may_be_as_small_as_they_like() -> None:
    """Their frames, and their heads, come to more than the bound; none alone does."""
    entrance = Entrance()
    connection, transport = entrance.connect()
    connection.data_received(head("transfer-encoding: chunked"))
    for _ in range(900):
        connection.data_received(b"1;x=" + b"y" * 200)
        connection.data_received(b"\r\nz\r\n")
    connection.data_received(b"0\r\n\r\n")
    cut = len(request()) // 3
    stream = request() * 700
    for at in range(0, len(stream), cut * 4):
        connection.data_received(stream[at : at + cut * 4])
    assert transport.statuses == [202] * 701


def test_one_body_of_the_largest_size_always_fits() -> None:
    entrance = Entrance(held=100)
    connection, transport = entrance.connect()
    connection.data_received(head("content-length: 1000"))
    connection.data_received(b"x" * 999)
    connection.data_received(b"x")
    assert transport.statuses == [202]
    assert entrance.copies[0].size == 1000


pieces = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 700)), max_size=60)


@given(pieces, st.lists(st.sampled_from([b"l", b"c", b"big", b"bad"]), min_size=5, max_size=5))
def test_whatever_is_sent_the_held_bytes_are_bounded_and_end_at_zero(
    run: list[tuple[int, int]], kinds: list[bytes]
) -> None:
    """Five connections, each with requests of one kind, cut anywhere, left anywhere."""
    entrance = Entrance(held=2000)
    stream = {
        b"l": request(b"x" * 900) * 40,
        b"c": (head("transfer-encoding: chunked") + b"1f4\r\n" + b"x" * 500 + b"\r\n0\r\n\r\n") * 60,
        b"big": head("content-length: 90000") + b"x" * 90_000,
        b"bad": b"\r\n\r\nPOST /\r\n" * 4000,
    }
    open_ones = [(*entrance.connect(), stream[kind]) for kind in kinds]
    sent = [0] * 5
    for index, size in run:
        connection, transport, data = open_ones[index]
        if not transport.closed:
            connection.data_received(data[sent[index] : sent[index] + size])
            sent[index] += size
        assert 0 <= entrance.door.held_bytes <= 2000
    for connection, _, _ in open_ones:
        connection.connection_lost(None)
    assert entrance.door.held_bytes == 0
    assert not entrance.door.connections


def test_when_all_connections_are_taken_one_that_has_served_makes_room_and_a_busy_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receive, "MAX_CONNECTIONS", 2)
    entrance = Entrance()
    busy, idle = entrance.connect(), entrance.connect()
    busy[0].data_received(head("content-length: 10"))
    idle[0].data_received(request())
    third = entrance.connect()
    assert (busy[1].closed, idle[1].closed, third[1].closed) == (False, True, False)
    third[0].data_received(head("content-length: 10"))
    fourth = entrance.connect()
    assert fourth[1].closed
    assert entrance.refused == ["connections"]
    assert len(entrance.door.connections) == 2


def test_a_connection_that_has_sent_nothing_is_kept_for_its_copy_as_long_as_an_upload_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receive, "MAX_CONNECTIONS", 2)
    entrance = Entrance()
    first, second = entrance.connect(), entrance.connect()
    assert entrance.connect()[1].closed
    second[0].data_received(request())
    assert not entrance.connect()[1].closed
    assert (first[1].closed, second[1].closed) == (False, True)
    entrance.now = connections.FRESH_S
    assert not entrance.connect()[1].closed
    assert first[1].closed


def test_a_draining_door_closes_what_has_served_and_takes_one_more_copy_of_what_has_not() -> None:
    entrance = Entrance()
    served, fresh = entrance.connect(), entrance.connect()
    served[0].data_received(request())
    entrance.door.draining = True
    for connection in entrance.door.connections:
        connection.close_if_idle()
    assert (served[1].closed, fresh[1].closed) == (True, False)
    fresh[0].data_received(request())
    assert fresh[1].closed
    assert len(entrance.copies) == 2


def test_a_connection_that_was_accepted_before_the_door_closed_is_dropped_when_it_comes_after() -> None:
    entrance = Entrance()
    entrance.door.draining = True
    connection, transport = entrance.connect()
    assert transport.closed
    assert len(entrance.door.connections) == 0
    connection.connection_lost(None)
    assert entrance.refused == []


@pytest.mark.parametrize(
    "data",
    [
        head("content-length: 100") + b"x" * 99,  # slow
        head("transfer-encoding: chunked") + b"3e8\r\n" + b"x" * 1000 + b"\r\n3e8\r\n" + b"x" * 900,  # endless
        b"POST",
    ],
)
def test_a_request_that_does_not_end_in_time_loses_its_connection(data: bytes) -> None:
    entrance = Entrance()
    transport = entrance.send(data)
    entrance.door.drop_late(-0.1)
    assert not transport.closed
    entrance.now = receive.WHOLE_REQUEST_S
    entrance.door.drop_late(entrance.now - receive.WHOLE_REQUEST_S + 0.1)
    assert transport.closed
