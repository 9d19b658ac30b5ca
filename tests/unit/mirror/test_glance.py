"""What is told by a glance is what the parsers would have said, however a stream is cut into chunks and reads."""

import itertools
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror import completions
from shadowrun_mirror.client import Exchange, PlainConnection, Request
from shadowrun_mirror.glance import Glance
from shadowrun_mirror.reading import Reading
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.shapes import Tokens
from shadowrun_mirror.stream import StreamReader

from tests.unit.mirror.test_stream import CONTENT, DONE, FINISH, OTHERS, ROLE, SAME, USAGE, event

pytestmark = pytest.mark.mirror

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
SIZES = {"lower": b"%x", "upper": b"%X", "zeros": b"00%x", "extended": b"%x;name=value"}


class Transport:
    """Takes what is written."""

    def writelines(self, _: Any) -> None:
        return

    def abort(self) -> None:
        return


class Stream:
    """One connection and what it came to; time is the number of the read."""

    def __init__(self, most: int = 1 << 20) -> None:
        self.ended: list[Exchange | Exception] = []
        self.reads = 0
        self.shown: list[bytes] = []
        self.reader = StreamReader(completions.noted, done_mark=True)
        self.reading = Reading(self.reader, True, 1 << 20)
        request = Request(host="arm", port=1, target=b"/", headers=(), body=b"{}", timeout_s=1.0, max_answer_bytes=most)
        self.connection = PlainConnection(
            request, self.reading, self.reading.objection, self.ended.append, lambda: float(self.reads)
        )
        self.connection.connection_made(cast("Any", Transport()))
        parse = self.connection._parse

        def shown(data: bytes) -> None:
            self.shown.append(data)
            parse(data)

        self.connection._parse = shown

    def read(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.reads += 1
            self.connection.data_received(piece)


def chunk(data: bytes, size: str = "lower") -> bytes:
    return SIZES[size] % len(data) + b"\r\n" + data + b"\r\n"


@given(
    st.lists(st.sampled_from([*["a"] * 10, *["quote", "long"] * 3, *SAME, *OTHERS]), max_size=40),
    st.sampled_from([*SIZES]),
    st.data(),
)
def test_any_cut_into_chunks_and_reads_counts_the_same(kinds: list[str], size: str, data: st.DataObject) -> None:
    events = [OTHERS.get(kind) or event(SAME[kind]) for kind in kinds]
    events += [event(FINISH), event(USAGE), event(DONE)]
    chunks = list(events)
    for at in sorted(data.draw(st.sets(st.integers(0, len(events) - 2), max_size=3)), reverse=True):
        joined = chunks[at] + chunks.pop(at + 1)
        cut = data.draw(st.integers(1, len(joined) - 1))
        chunks[at : at + 1] = data.draw(st.sampled_from([[joined], [joined[:cut], joined[cut:]]]))
    framed = [HEAD, *(chunk(each, size) for each in chunks), b"0\r\n\r\n"]
    raw, ends = b"".join(framed), list(itertools.accumulate(map(len, framed)))
    more = data.draw(st.sets(st.integers(0, len(raw)), max_size=4))
    left_out = data.draw(st.sets(st.sampled_from(ends), max_size=4))
    stream = Stream()
    for begin, end in itertools.pairwise(sorted({0, len(raw), *ends, *more} - (left_out - {len(raw)}))):
        stream.read(raw[begin:end])
    answer = stream.reading.answer(True)
    assert answer.chunks == sum(kind in CONTENT for kind in kinds)
    assert answer.failure is (None if answer.chunks else FailureReason.EMPTY)
    assert answer.tokens == Tokens(prompt=7, cached=2, output=3)
    assert stream.ended == [Exchange(failure=None, written_at=0.0, whole=True)]


def test_most_reads_of_a_stream_are_told_by_a_glance_and_stamped_by_their_own_time() -> None:
    stream = Stream()
    words = [event(SAME[kind]) for kind in ("a", "long", "quote") * 20]
    stream.read(HEAD + chunk(event(ROLE)), *map(chunk, words))
    stream.reads += 7  # time passes
    stream.read(chunk(words[0]), chunk(event(FINISH) + event(DONE)), b"0\r\n\r\n")
    assert len(stream.shown) <= 5
    answer = stream.reading.answer(True)
    assert (answer.failure, answer.chunks, answer.first_at, answer.last_at, answer.gap) == (None, 61, 2.0, 69.0, 8.0)


def test_the_end_and_the_usage_on_the_last_event_are_seen() -> None:
    last = event(
        SAME["a"].replace(b'"finish_reason":null', b'"finish_reason":"stop"')[:-1] + b',"usage":{"prompt_tokens":5}}'
    )
    stream = Stream()
    stream.read(HEAD + chunk(event(SAME["a"])), chunk(event(SAME["a"])), chunk(last), b"0\r\n\r\n")
    assert len(stream.shown) == 2
    answer = stream.reading.answer(True)
    assert (answer.failure, answer.chunks) == (None, 3)
    assert answer.tokens == Tokens(prompt=5, cached=0, output=None)


@pytest.mark.parametrize("size", ["lower", "zeros"])
def test_a_chunk_whose_size_is_wrong_is_not_taken(size: str) -> None:
    word = event(SAME["a"])
    for wrong in (chunk(word + b"x", size)[:-3] + b"\r\n", chunk(word[:-1], size)[:-2] + b"\n\r\n"):
        stream = Stream()
        stream.read(HEAD + chunk(event(SAME["a"])), chunk(word), wrong, chunk(word), chunk(word))
        assert stream.reading.answer(False).failure is not None
        assert stream.reading.answer(False).chunks < 5


def test_bytes_told_by_a_glance_count_against_the_longest_answer() -> None:
    word = chunk(event(SAME["long"]))
    stream = Stream(most=len(HEAD) + 6 * len(word))
    stream.read(HEAD + word, *[word] * 5)
    assert stream.ended == []
    stream.read(word)
    assert stream.ended == [Exchange(failure=FailureReason.TOO_LONG, written_at=0.0)]
    stream.read(word)
    assert stream.reading.answer(False).chunks == 7


def test_what_is_known_of_a_stream_is_bounded() -> None:
    glance = Glance(1 << 20)
    glance.begins(b'data: {"t":"')
    glance.open = True
    for size in range(1, 6000):
        glance.saw(chunk(b'data: {"t":"' + b"x" * size + b'"}\n\n'), 0.0)
    assert glance.chunks < 60
    assert len(glance._fronts) < 60


WORD = event(SAME["a"])


def test_nothing_after_the_end_is_counted() -> None:
    stream = Stream()
    stream.read(HEAD + chunk(WORD), chunk(WORD), chunk(event(DONE)), chunk(WORD), chunk(WORD), b"0\r\n\r\n")
    answer = stream.reading.answer(True)
    assert (answer.failure, answer.chunks) == (None, 2)


@pytest.mark.parametrize("packed", [chunk, lambda data: data])
def test_events_that_end_in_other_ways_are_told_apart_in_one_read(packed: Any) -> None:
    old = event(SAME["a"], b"\r\r")
    for reads in ([old + WORD], [WORD + old + WORD], [old + old + WORD, WORD], [WORD, old, WORD]):
        stream = Stream()
        stream.read(HEAD + chunk(WORD))
        for data in reads:
            if packed is chunk:
                stream.read(chunk(data))
            else:
                stream.reader.feed(data, 1.0)
        answer = stream.reading.answer(True)
        assert answer.chunks == 1 + sum(data.count(b"data:") for data in reads)


def test_a_chunk_that_does_not_end_its_event_goes_to_the_parser() -> None:
    stream = Stream()
    stream.read(HEAD + chunk(WORD), chunk(WORD))
    shown = len(stream.shown)
    for cut in range(len(WORD) - 8, len(WORD)):
        stream.read(chunk(WORD[:cut]), chunk(WORD[cut:]))
        shown += 2
        assert len(stream.shown) == shown
    assert stream.reading.answer(True).chunks == 2 + 8


@pytest.mark.parametrize("before", [WORD, WORD + b"\r\n"])
def test_what_looks_like_a_chunk_inside_of_one_is_not_taken_for_one(before: bytes) -> None:
    whole = chunk(before + chunk(WORD) + WORD)
    at = whole.index(before) + len(before)
    stream = Stream()
    stream.read(HEAD + chunk(WORD), whole[:at], whole[at : at + len(chunk(WORD))], whole[at + len(chunk(WORD)) :])
    stream.read(chunk(event(FINISH) + event(DONE)), b"0\r\n\r\n")
    answer = stream.reading.answer(True)
    assert (answer.failure, answer.chunks) == (None, 4)
    assert stream.ended == [Exchange(failure=None, written_at=0.0, whole=True)]
