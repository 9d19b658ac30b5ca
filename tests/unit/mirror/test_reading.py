import gzip
import itertools
import zlib
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.dialects import dialect_of
from shadowrun_mirror.reading import Reading, head_objection
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.stream import Answer

pytestmark = pytest.mark.mirror

LIMIT = 4 * 1024 * 1024
DIALECT = dialect_of(b"/v1/chat/completions")
WORD = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"
JSON = b'{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":5,"completion_tokens":6}}'


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(1, wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
    "gzip": (b"gzip", gzip.compress),
    "x-gzip": (b"X-GZip", gzip.compress),
    "gzip in two parts": (b"gzip", lambda data: gzip.compress(data[:30]) + gzip.compress(data[30:])),
    "gzip with padding": (b"gzip", lambda data: gzip.compress(data) + b"\0" * 8),
    "zlib": (b"deflate", zlib.compress),
    "bare deflate": (b"deflate", raw_deflate),
    "identity": (b"identity", bytes),
}


def read(coding: bytes, pieces: Sequence[bytes], stream: bool = True, whole: bool = True, limit: int = LIMIT) -> Answer:
    """Piece n is read at time n."""
    reading = Reading(DIALECT.reader(stream), stream, limit)
    kind = b"text/event-stream" if stream else b"application/json"
    assert reading.objection(200, ((b"content-type", kind), (b"content-encoding", coding))) is None
    for at, piece in enumerate(pieces):
        if not reading.feed(piece, float(at)):
            break
    return reading.answer(whole)


@pytest.mark.parametrize("packer", PACKERS)
@given(st.integers(0, 40), st.sets(st.integers(0, 400), max_size=8))
def test_a_compressed_answer_reads_as_the_same_answer_uncompressed_in_any_split(
    packer: str, words: int, cuts: set[int]
) -> None:
    coding, pack = PACKERS[packer]
    for plain, stream in ((WORD * words + USAGE + DONE, True), (JSON, False)):
        packed = pack(plain)
        edges = [0, *sorted(cut for cut in cuts if cut < len(packed)), len(packed)]
        answer = read(coding, [packed[a:b] for a, b in itertools.pairwise(edges)], stream)
        expected = read(b"identity", [plain], stream)
        assert (answer.failure, answer.chunks, answer.tokens) == (expected.failure, expected.chunks, expected.tokens)


def test_events_are_seen_when_they_come_not_when_the_body_ends() -> None:
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    pieces = [packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH) for event in (WORD, WORD, WORD, DONE)]
    answer = read(b"gzip", pieces)
    assert (answer.failure, answer.first_at, answer.last_at, answer.chunks) == (None, 0.0, 2.0, 3)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("coding", ["gzip", "zlib", "bare deflate"])
def test_a_bomb_is_too_long_and_is_given_up_early(coding: str, stream: bool) -> None:
    name, pack = PACKERS[coding]
    bomb = pack(b": ping\n\n" * 5_000_000 if stream else b'{"a":"' + b"x" * 40_000_000)
    assert len(bomb) < LIMIT
    reading = Reading(DIALECT.reader(stream), stream, LIMIT)
    kind = b"text/event-stream" if stream else b""
    assert reading.objection(200, ((b"content-type", kind), (b"content-encoding", name))) is None
    fed = 0
    while reading.feed(bomb[fed : fed + 4096], 0.0):
        fed += 4096
    assert fed <= len(bomb) * 2 * LIMIT // 40_000_000 + 4096
    assert reading.answer(False).failure is FailureReason.TOO_LONG


def test_an_answer_of_exactly_the_limit_is_not_too_long() -> None:
    plain = WORD * 2000 + DONE
    assert read(b"gzip", [gzip.compress(plain)], limit=len(plain)).failure is None
    short = read(b"gzip", [gzip.compress(plain)], limit=len(plain) - len(DONE))
    assert short.failure is FailureReason.TOO_LONG


@pytest.mark.parametrize(
    ("coding", "data", "failure"),
    [
        (b"gzip", b"not gzip at all", FailureReason.MALFORMED),
        (b"gzip", gzip.compress(WORD, mtime=0)[:-8] + b"\0" * 8, FailureReason.MALFORMED),
        (b"deflate", b"\xff\xff\xff\xff", FailureReason.MALFORMED),
        (b"gzip", gzip.compress(WORD * 9, mtime=0)[:-12], FailureReason.STREAM_CUT),
        (b"gzip", b"", FailureReason.STREAM_CUT),
        (b"deflate", b"\x78", FailureReason.STREAM_CUT),
    ],
)
def test_what_does_not_decode_is_not_an_answer(coding: bytes, data: bytes, failure: FailureReason) -> None:
    assert read(coding, [data]).failure is failure
    assert read(coding, [data[n : n + 1] for n in range(len(data))]).failure is failure


def test_an_end_that_the_compression_does_not_confirm_is_a_cut() -> None:
    finish = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    cut = packer.compress(WORD + finish) + packer.flush(zlib.Z_SYNC_FLUSH)
    assert read(b"gzip", [cut]).failure is FailureReason.STREAM_CUT
    assert read(b"gzip", [cut + packer.flush()]).failure is None


@pytest.mark.parametrize("packer", PACKERS)
def test_nothing_stays_behind_in_the_decoder(packer: str) -> None:
    """Whatever the size: decoded bytes come in pieces, and the last one may end anywhere."""
    coding, pack = PACKERS[packer]
    for size in (*range(65_530, 65_550), 65_800, 131_072, 131_073):
        plain = b'{"choices":[{"text":"' + b"x" * (size - 25) + b'"}]}'
        assert read(coding, [pack(plain)], stream=False).failure is None


def test_a_stream_that_said_it_was_done_is_complete_even_if_its_compression_then_breaks() -> None:
    whole = gzip.compress(WORD + DONE)
    assert read(b"gzip", [whole[:-8], b"\0" * 8]).failure is None
    assert read(b"gzip", [whole[:-6]], whole=False).failure is None


def test_without_compression_no_step_is_added() -> None:
    reader = DIALECT.reader(True)
    reading = Reading(reader, True, LIMIT)
    assert reading.objection(200, ((b"content-type", b"text/event-stream"),)) is None
    assert reading.feed == reader.feed


@pytest.mark.parametrize(
    ("status", "kind", "streamed", "failure"),
    [
        (200, b"text/event-stream", True, None),
        (200, b"Text/Event-Stream; charset=utf-8", True, None),
        (200, b"application/json", False, None),
        (200, b"", False, None),
        (200, b"", True, FailureReason.MALFORMED),
        (200, b"application/json", True, FailureReason.MALFORMED),
        (200, b"text/event-stream", False, FailureReason.MALFORMED),
        (301, b"", False, FailureReason.MALFORMED),
        (404, b"text/event-stream", True, FailureReason.HTTP_4XX),
        (500, b"text/event-stream", True, FailureReason.HTTP_5XX),
        (599, b"", True, FailureReason.HTTP_5XX),
    ],
)
def test_a_head_says_whether_it_is_worth_reading_on(
    status: int, kind: bytes, streamed: bool, failure: FailureReason | None
) -> None:
    assert head_objection(status, ((b"content-type", kind),), streamed) == failure


@pytest.mark.parametrize(
    ("coding", "readable"),
    [
        ((), True),
        ((b"",), True),
        ((b"identity",), True),
        ((b"gzip",), True),
        ((b" GZIP ",), True),
        ((b"x-gzip",), True),
        ((b"deflate",), True),
        ((b"identity", b"gzip"), True),
        ((b"br",), False),
        ((b"zstd",), False),
        ((b"gzip, gzip",), False),
        ((b"gzip", b"br"), False),
        ((b"compress",), False),
    ],
)
def test_only_codings_that_can_be_undone_are_read(coding: tuple[bytes, ...], readable: bool) -> None:
    headers = ((b"content-type", b"application/json"), *((b"content-encoding", value) for value in coding))
    assert head_objection(200, headers, False) is (None if readable else FailureReason.MALFORMED)
    assert head_objection(503, headers, False) is FailureReason.HTTP_5XX
