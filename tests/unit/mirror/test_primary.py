"""The log of capture as raw bytes: cut anywhere, foreign, broken, endless."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.capture.outcome_log import LOG_TAG
from shadowrun_mirror.join import Outcome, request_mark
from shadowrun_mirror.primary import GarbageError, Messages, OutcomeLog

pytestmark = pytest.mark.mirror

pack = msgspec.msgpack.encode
extended = st.tuples(st.integers(0, 5), st.binary()).map(lambda each: msgspec.msgpack.Ext(*each))
scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=300),
    st.binary(max_size=300),
    extended,
)
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=20) | st.dictionaries(st.text(max_size=40), v, max_size=20), max_leaves=30
)


@given(st.lists(values, max_size=5), st.data())
def test_messages_come_out_whole_however_they_were_cut(sent: list[Any], data: st.DataObject) -> None:
    messages, stream = Messages(), b"".join(map(pack, sent))
    got: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += messages.feed(stream[:size])
        stream = stream[size:]
    assert got == [pack(value) for value in sent]


@pytest.mark.parametrize("size", [15, 16, 31, 32, 255, 256, 65535, 65536])
def test_every_width_of_a_length_is_walked(size: int) -> None:
    for value in (
        "x" * size,
        b"x" * size,
        [1] * size,
        dict.fromkeys(range(size), 1),
        msgspec.msgpack.Ext(1, b"x" * size),
    ):
        assert list(Messages(2**20).feed(pack(value) + pack(7))) == [pack(value), pack(7)]


@given(st.binary(max_size=200))
def test_any_bytes_are_taken_or_are_garbage(data: bytes) -> None:
    messages = Messages(100)
    try:
        for byte in data:
            for message in messages.feed(bytes([byte])):
                assert message in data
    except GarbageError:
        return
    assert len(messages._held) <= 100


@pytest.mark.parametrize(
    "data", [b"\xc1", pack("x" * 200), pack(list(range(200))), b"\xdb\xff\xff\xff\xff", b"\xc6\x7f\xff\xff\xff"]
)
def test_what_is_no_messagepack_or_too_long_is_garbage_at_once(data: bytes) -> None:
    with pytest.raises(GarbageError):
        list(Messages(100).feed(data))


def record(**changes: Any) -> dict[str, Any]:
    usual = {"id": "id-1", "status": 200, "flags": "-", "first_byte_us": 1500, "run": "run-uid", "route": "sampled-1"}
    return usual | changes


def taken(*records: Any, tag: Any = LOG_TAG) -> tuple[list[tuple[int, Outcome]], list[str]]:
    ended: list[tuple[int, Outcome]] = []
    refused: list[str] = []
    log = OutcomeLog("run-uid", lambda mark, outcome: ended.append((mark, outcome)), refused.append)
    log.take(pack([tag, [[1_700_000_000, each] for each in records]]))
    return ended, refused


def test_a_record_is_an_outcome_under_the_hash_of_its_id() -> None:
    ended, refused = taken(record(), record(id=" id-2 ", status=503, flags="UC", first_byte_us=None))
    assert ended == [
        (request_mark(b"id-1"), Outcome(kind="answered", first_byte_s=0.0015)),
        (request_mark(b"id-2"), Outcome(kind="failed", first_byte_s=None)),
    ]
    assert refused == []


def test_records_of_another_run_and_without_an_id_are_no_outcomes() -> None:
    ended, refused = taken(record(run="another"), record(id=None), record(id=""))
    assert (ended, refused) == ([], ["other_run"])


@pytest.mark.parametrize(
    "wrong",
    [
        record(status="200 and a sentence"),
        record(flags=None),
        record(id=7),
        {},
        [],
        None,
        "text",
        record(first_byte_us="x"),
    ],
)
def test_one_record_that_makes_no_sense_costs_that_record_only(wrong: Any) -> None:
    ended, refused = taken(record(), wrong, record(id="id-2"))
    assert [mark for mark, _ in ended] == [request_mark(b"id-1"), request_mark(b"id-2")]
    assert refused == ["log_record"]


@pytest.mark.parametrize(
    "message", [[], ["other", []], [LOG_TAG], [LOG_TAG, 3], {}, 1, None, [LOG_TAG, [[1]]], [3, []]]
)
def test_a_message_that_is_no_such_log_is_garbage(message: Any) -> None:
    log = OutcomeLog("run-uid", lambda _, __: None, lambda _: None)
    with pytest.raises(GarbageError):
        log.take(pack(message))


def test_a_time_of_the_extended_kind_and_options_behind_the_entries_are_fine() -> None:
    ended: list[int] = []
    log = OutcomeLog("run-uid", lambda mark, _: ended.append(mark), lambda _: None)
    log.take(pack([LOG_TAG, [[msgspec.msgpack.Ext(0, b"\0" * 8), record()]], {"fluent_signal": 2}]))
    assert ended == [request_mark(b"id-1")]


def test_a_first_byte_before_the_request_began_counts_as_none_waited() -> None:
    ended, _ = taken(record(first_byte_us=-5))
    assert ended[0][1].first_byte_s == 0.0
