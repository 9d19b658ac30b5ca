import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror import completions
from shadowrun_mirror.client import Exchange
from shadowrun_mirror.config import SLO
from shadowrun_mirror.measure import arm_result
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.shapes import Noted, Tokens
from shadowrun_mirror.sse import Frames
from shadowrun_mirror.stream import MAX_EVENT_BYTES, Answer, BufferedReader, StreamReader

pytestmark = pytest.mark.mirror


def chunk(separators: tuple[str, str] = (",", ":"), finish: str | None = None, **delta: Any) -> bytes:
    body = {"id": "c", "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}
    return json.dumps(body, separators=separators).encode()


def event(payload: bytes, end: bytes = b"\n\n") -> bytes:
    return b"data: " + payload + end


ROLE = chunk(role="assistant", content="")
FINISH = chunk(finish="stop")
USAGE = b'{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}}'
DONE = b"[DONE]"


def read(pieces: Sequence[bytes], whole: bool = True) -> Answer:
    """Piece n is read at time n."""
    reader = StreamReader(completions.noted, done_mark=True)
    for at, piece in enumerate(pieces):
        if not reader.feed(piece, float(at)):
            break
    return reader.answer(whole)


def read_payloads(*payloads: bytes, whole: bool = True) -> Answer:
    return read([event(payload) for payload in payloads], whole)


def test_the_role_chunk_is_not_content_and_the_finish_is_not_the_last_content() -> None:
    answer = read_payloads(ROLE, chunk(content="a"), chunk(content="b"), FINISH, USAGE, DONE)
    assert answer == Answer(
        failure=None, first_at=1.0, last_at=2.0, gap=1.0, chunks=2, tokens=Tokens(prompt=7, cached=2, output=3)
    )


@pytest.mark.parametrize("kind", ["content", "reasoning_content", "reasoning", "refusal"])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_every_kind_of_text_is_content(kind: str, separators: tuple[str, str]) -> None:
    texts = ["a", '"', "\\", "é", '"content":"', "", "\n", "}"]
    payloads = [chunk(separators, **{kind: text}) for text in texts]
    answer = read_payloads(ROLE, *payloads, FINISH, DONE)
    assert (answer.failure, answer.first_at, answer.last_at, answer.chunks) == (None, 1.0, 8.0, 7)


def test_an_old_function_call_is_content() -> None:
    call = chunk(function_call={"name": "f", "arguments": "{"})
    assert read_payloads(ROLE, call, call, FINISH, DONE).chunks == 2


def test_tool_calls_are_content_and_an_empty_list_of_them_is_not() -> None:
    call = chunk(tool_calls=[{"index": 0, "function": {"arguments": "{"}}])
    answer = read_payloads(ROLE, chunk(tool_calls=[]), call, call, FINISH, DONE)
    assert (answer.first_at, answer.last_at, answer.chunks) == (2.0, 3.0, 2)


def test_plain_completions_are_read_too() -> None:
    payloads = [json.dumps({"choices": [{"text": text, "finish_reason": None}]}).encode() for text in ("", "a", "b")]
    answer = read_payloads(*payloads, b'{"choices":[{"text":"","finish_reason":"length"}]}', DONE)
    assert (answer.failure, answer.first_at, answer.last_at, answer.chunks) == (None, 1.0, 2.0, 2)


def test_reasoning_then_content_is_one_run_of_content() -> None:
    answer = read_payloads(ROLE, *[chunk(reasoning="a")] * 3, *[chunk(content="b")] * 3, FINISH, DONE)
    assert (answer.first_at, answer.last_at, answer.chunks) == (1.0, 6.0, 6)


def test_events_that_only_begin_like_content_are_looked_at() -> None:
    """Same opening, but empty text: not content. Text elsewhere does not make it so."""
    nested = b'{"id":"c","x":{"content":"t"},"choices":[{"index":0,"delta":{"content":"%s"}}]}'
    answer = read_payloads(nested % b"a", nested % b"", nested % b"b", nested % b"", DONE)
    assert (answer.first_at, answer.last_at, answer.chunks) == (0.0, 2.0, 2)


def test_a_finish_or_usage_on_the_last_content_chunk_is_seen() -> None:
    last = chunk(content="c", finish="stop")[:-1] + b',"usage":{"prompt_tokens":1,"completion_tokens":3}}'
    answer = read_payloads(chunk(content="a"), chunk(content="b"), last)
    assert answer.failure is None
    assert answer.tokens == Tokens(prompt=1, cached=0, output=3)


def usage(output: int) -> bytes:
    return b'"usage":{"prompt_tokens":9,"completion_tokens":%d}' % output


@given(st.lists(st.sampled_from(["content", "empty", "role", "done"]), min_size=1, max_size=12), st.data())
def test_the_latest_usage_counts_wherever_it_was_sent(kinds: list[str], data: st.DataObject) -> None:
    """Usage on every chunk (cumulative), content or not, in any split."""
    first = {"content": chunk(content="a"), "empty": chunk(content=""), "role": ROLE, "done": FINISH}
    payloads = [first[kind][:-1] + b"," + usage(number) + b"}" for number, kind in enumerate(kinds)]
    raw = b"".join(event(payload) for payload in [*payloads, DONE])
    cut = data.draw(st.integers(0, len(raw)))
    answer = read([raw[:cut], raw[cut:]])
    assert answer.tokens == Tokens(prompt=9, cached=0, output=len(kinds) - 1)


def test_usage_on_every_chunk_does_not_outlive_the_final_one() -> None:
    chunks = [chunk(content="a")[:-1] + b"," + usage(n) + b"}" for n in (1, 2, 3)]
    answer = read_payloads(ROLE, *chunks, FINISH, b'{"choices":[],' + usage(7) + b"}", DONE)
    assert answer.tokens == Tokens(prompt=9, cached=0, output=7)


@pytest.mark.parametrize("after", [(), (FINISH, USAGE), (DONE,)])
def test_an_error_on_the_last_content_chunk_is_an_error(after: tuple[bytes, ...]) -> None:
    broken = chunk(content="b")[:-1] + b',"error":{"message":"m"}}'
    answer = read_payloads(chunk(content="a"), broken, *after)
    assert answer.failure is FailureReason.STREAM_ERROR


@pytest.mark.parametrize("per_read", [1, 7])
@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
@pytest.mark.parametrize(
    "kind", [{"content": "t"}, {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}, {"reasoning": "t"}]
)
def test_few_events_are_parsed(kind: dict[str, Any], end: bytes, per_read: int) -> None:
    parsed: list[bytes] = []

    def counted(payload: bytes) -> Noted | None:
        parsed.append(payload)
        return completions.noted(payload)

    reader = StreamReader(counted, done_mark=True)
    events = [event(payload, end) for payload in (ROLE, *[chunk(**kind)] * 500, FINISH, USAGE, DONE)]
    for number in range(0, len(events), per_read):
        assert reader.feed(b"".join(events[number : number + per_read]), float(number))
    answer = reader.answer(True)
    assert (answer.failure, answer.chunks) == (None, 500)
    assert len(parsed) <= 6


def test_the_gap_is_the_longest_time_between_reads_with_content() -> None:
    reader = StreamReader(completions.noted, done_mark=True)
    word = event(chunk(content="a"))
    for at, data in ((1.0, word), (2.0, word * 3), (2.5, event(ROLE)), (5.5, word), (6.0, word), (60.0, event(DONE))):
        reader.feed(data, at)
    assert reader.answer(True).gap == 3.5


@pytest.mark.parametrize("pieces", [[b""], [event(chunk(content="a"))], [event(chunk(content="a")) * 3]])
def test_content_in_one_read_has_no_gap(pieces: list[bytes]) -> None:
    assert read(pieces).gap is None


@pytest.mark.parametrize(
    ("payloads", "whole", "failure"),
    [
        ([chunk(content="a"), FINISH, DONE], False, None),  # it said that it was done
        ([chunk(content="a"), DONE], False, None),
        ([chunk(content="a"), FINISH], True, None),
        ([chunk(content="a"), FINISH], False, FailureReason.STREAM_CUT),
        ([chunk(content="a")], True, FailureReason.STREAM_CUT),
        ([chunk(content="a")], False, FailureReason.STREAM_CUT),
        ([], True, FailureReason.STREAM_CUT),
        ([ROLE, FINISH, DONE], True, FailureReason.EMPTY),
        ([DONE], True, FailureReason.EMPTY),
        ([chunk(content="a"), b'{"error":{"message":"m"}}', DONE], True, FailureReason.STREAM_ERROR),
        ([b'{"object":"error","message":"m"}'], True, FailureReason.STREAM_ERROR),
        ([chunk(content="a"), b'{"error":null,"choices":[]}', DONE], True, None),
        ([chunk(content="a"), b"{", DONE], True, FailureReason.MALFORMED),
        ([chunk(content="a"), b"[1]", DONE], True, FailureReason.MALFORMED),
        ([b'{"choices":{}}', DONE], True, FailureReason.MALFORMED),
        ([b"\xff\xfe", DONE], True, FailureReason.MALFORMED),
        ([b"[" * 100_000], True, FailureReason.MALFORMED),
    ],
)
def test_how_a_stream_may_end(payloads: list[bytes], whole: bool, failure: FailureReason | None) -> None:
    assert read_payloads(*payloads, whole=whole).failure == failure


def test_an_event_named_error_is_an_error() -> None:
    answer = read([event(chunk(content="a")), b"event: error\ndata: {}\n\n", event(DONE)])
    assert answer.failure is FailureReason.STREAM_ERROR


def test_an_event_without_end_is_given_up() -> None:
    reader = StreamReader(completions.noted, done_mark=True)
    sent = 0
    while reader.feed(b"data: " + b"x" * 65_536, 0.0):
        sent += 65_536
        assert sent <= MAX_EVENT_BYTES
    assert reader.answer(whole=False).failure is FailureReason.TOO_LONG


def test_an_event_may_have_a_smaller_bound_and_line_ends_after_it_are_not_counted() -> None:
    line = b"data: " + chunk(content="a" * 400)
    for most, cut in ((len(line), 200), (len(line), len(line) + 1)):
        reader = StreamReader(completions.noted, done_mark=True, max_event_bytes=most)
        for piece in ((line + b"\n\n")[:cut], (line + b"\n\n")[cut:], event(FINISH), event(DONE)):
            assert reader.feed(piece, 0.0)
        assert reader.answer(whole=True).failure is None
        shorter = StreamReader(completions.noted, done_mark=True, max_event_bytes=most - 1)
        shorter.feed((line + b"\n\n")[:cut], 0.0)
        assert not shorter.feed((line + b"\n\n")[cut:], 0.0)
        assert shorter.answer(whole=True).failure is FailureReason.TOO_LONG


def test_an_event_that_has_not_ended_is_not_copied_at_every_read() -> None:
    class Rest(bytearray):
        def rstrip(self, *_: Any) -> bytearray:
            raise AssertionError

    reader = StreamReader(completions.noted, done_mark=True)
    reader._frames.rest = Rest()
    for _ in range(16):
        assert reader.feed(b"x" * 65_536, 0.0)
    with pytest.raises(AssertionError):
        reader.feed(b"x", 0.0)


@pytest.mark.parametrize(
    "usage",
    [
        b"null",
        b"{}",
        b'"many"',
        b'{"prompt_tokens":-1}',
        b'{"prompt_tokens":1.5}',
        b'{"prompt_tokens":1' + b"0" * 400 + b"}",
        b'{"prompt_tokens":1,"completion_tokens":1' + b"0" * 400 + b"}",
        b'{"prompt_tokens":1,"completion_tokens":2147483649}',
        b'{"prompt_tokens":1,"completion_tokens":1e400}',
    ],
)
def test_usage_in_a_shape_not_understood_is_no_usage(usage: bytes) -> None:
    answer = read_payloads(chunk(content="a"), b'{"choices":[],"usage":' + usage + b"}", DONE)
    assert (answer.failure, answer.tokens) == (None, None)


@pytest.mark.parametrize(("size", "failure"), [(0, None), (1, FailureReason.TOO_LONG)])
@pytest.mark.parametrize("step", [1_000_003, 65_536, 2_000_000])
def test_how_long_an_event_may_be_does_not_depend_on_its_reads(step: int, size: int, failure: object) -> None:
    whole = event(chunk(content="x"))[:-2]
    long = whole + b" " * (MAX_EVENT_BYTES + size - len(whole))
    raw = event(chunk(content="a")) + long + b"\n\n" + event(DONE)
    answer = read([raw[at : at + step] for at in range(0, len(raw), step)])
    assert (answer.failure, answer.chunks) == (failure, 1 if failure else 2)


def test_nothing_after_the_end_is_looked_at() -> None:
    ended = event(chunk(content="a")) + event(DONE)
    for tail in (event(chunk(content="b")), event(b"{"), b"event: error\ndata: {}\n\n", b"x" * (MAX_EVENT_BYTES + 9)):
        for pieces in ([ended + tail], [ended, tail], [ended, tail[:3], tail[3:]]):
            answer = read(pieces)
            assert (answer.failure, answer.chunks) == (None, 1)


def test_work_for_an_event_in_many_reads_is_in_proportion_to_its_bytes() -> None:
    """Each read is looked at once: a long event of short lines costs no more than one of one line."""

    class Counting(bytearray):
        looked_at = 0

        def find(self, *args: Any) -> int:
            Counting.looked_at += len(self) - args[1]
            return bytearray.find(self, *args)

    frames = Frames()
    frames.rest = Counting()
    for _ in range(2000):
        assert frames.feed(b"data: x\n") == []
    assert Counting.looked_at <= 2 * 2000 * len(b"data: x\n")


def test_a_done_without_its_blank_line_is_enough() -> None:
    for tail in (b"data: [DONE]", b"data:[DONE]\n", b"data: [DONE]\r\n", b"data: [DONE]\r\r"):
        assert read([event(chunk(content="a")), tail], whole=False).failure is None


texts = st.text(max_size=5)
ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
noise = st.sampled_from([b": ping", b"id: 7", b"retry: 10", b"event: message", b"data"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, int]:
    """A whole stream in any legal dress, and how many of its events have content."""
    end, out, content = draw(ends), [], 0
    for text in draw(st.lists(texts, max_size=6)):
        payload = chunk(content=text)
        content += bool(text)
        for line in draw(st.lists(noise, max_size=2)):
            out.append(line + end)
            if draw(st.booleans()):
                out.append(end)
        out.append(b"data:" + draw(st.sampled_from([b"", b" "])) + payload + end + end)
    out.append(b"data: " + FINISH + end + end + b"data: " + USAGE + end + end + b"data: [DONE]" + end + end)
    return b"".join(out), content


@given(streams(), st.data())
def test_any_split_of_any_stream_reads_the_same(stream: tuple[bytes, int], data: st.DataObject) -> None:
    raw, content = stream
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=12)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True) if a < b]
    answer = read(pieces, whole=True)
    once = read([raw], whole=True)
    assert (answer.failure, answer.chunks, answer.tokens) == (once.failure, once.chunks, once.tokens)
    assert answer.failure is (None if content else FailureReason.EMPTY)
    assert answer.chunks == content
    assert answer.tokens == Tokens(prompt=7, cached=2, output=3)
    if content:
        assert answer.first_at is not None
        assert answer.last_at is not None
        assert 0 <= answer.first_at <= answer.last_at < len(pieces)


SAME = {"a": chunk(content="a"), "quote": chunk(content='"'), "long": chunk(content="x" * 300), "": chunk(content="")}
OTHERS = {
    "ping": b": ping\n\n",
    "named": b"event: message\ndata: " + SAME["a"] + b"\n\n",
    "crlf": event(SAME["a"], b"\r\n\r\n"),
    "cr": event(SAME["a"], b"\r\r"),
    "two lines": b"data: " + SAME["a"] + b"\ndata:\n\n",
    "blank": b"\n\n",
    "role": event(ROLE),
    "reasoning": event(chunk(reasoning="a")),
}
CONTENT = {"a", "quote", "long", "named", "crlf", "cr", "two lines", "reasoning"}


@given(st.lists(st.sampled_from([*["a"] * 12, *SAME, *OTHERS]), max_size=40), st.data())
def test_events_that_are_counted_without_being_parsed_are_those_with_content(
    kinds: list[str], data: st.DataObject
) -> None:
    """Rows of like events, several to a read, with others between them."""
    events = [OTHERS.get(kind) or event(SAME[kind]) for kind in kinds]
    raw = b"".join([*events, event(FINISH), event(USAGE), event(DONE)])
    ends = [0]
    for each in events:
        ends.append(ends[-1] + len(each))
    cuts = data.draw(st.sets(st.sampled_from(ends) | st.integers(0, len(raw)), max_size=8))
    places = [0, *sorted(cuts), len(raw)]
    answer = read([raw[a:b] for a, b in itertools.pairwise(places) if a < b])
    assert answer.chunks == sum(kind in CONTENT for kind in kinds)
    assert answer.tokens == Tokens(prompt=7, cached=2, output=3)


@given(st.lists(st.binary(max_size=40), max_size=10), st.booleans())
def test_no_bytes_make_it_raise(pieces: list[bytes], whole: bool) -> None:
    assert read(pieces, whole).failure is not None
    reader = BufferedReader(completions.noted)
    for piece in pieces:
        reader.feed(piece, 0.0)
    assert reader.answer(whole).failure is not None


keys = st.sampled_from(["choices", "delta", "message", "text", "content", "tool_calls", "finish_reason", "error"])
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
counts = st.integers(-1, 3) | st.integers(2**31 - 1, 2**31 + 1) | st.integers(10**400, 10**401) | leaves
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5), max_leaves=12
)
usages = st.fixed_dictionaries(
    {"prompt_tokens": counts, "completion_tokens": counts},
    optional={
        "prompt_tokens_details": st.fixed_dictionaries({}, optional={"cached_tokens": counts}) | leaves,
    },
)
content = st.just([{"text": "a", "message": {"content": "a"}, "delta": {"content": "a"}}])
bodies = st.fixed_dictionaries({"choices": content, "usage": usages}) | st.fixed_dictionaries(
    {}, optional={"choices": anything, "usage": usages | leaves, "object": leaves}
)


def computed(answer: Answer) -> None:
    """What is read can be computed with."""
    result = arm_result(Exchange(failure=None, written_at=0.0, whole=True), answer, True, SLO(tpot_s=1.0))
    assert (result.failure is None) == math.isfinite(result.e2e)
    if answer.tokens is not None:
        tokens = answer.tokens
        output = 0 if tokens.output is None else tokens.output  # None: not told
        assert all(0 <= count <= 2**31 for count in (tokens.prompt, tokens.cached, output))


@given(st.lists(bodies | anything, max_size=5))
def test_no_json_makes_it_raise_or_gives_a_number_that_cannot_be_computed_with(values: list[Any]) -> None:
    payloads = [json.dumps(value).encode() for value in values]
    computed(read_payloads(chunk(content="a"), chunk(content="b"), *payloads, DONE))
    for payload in payloads:
        computed(buffered(payload))


def buffered(raw: bytes, whole: bool = True) -> Answer:
    reader = BufferedReader(completions.noted)
    reader.feed(raw[:5], 1.0)
    reader.feed(raw[5:], 2.0)
    return reader.answer(whole)


def test_a_buffered_answer_has_its_end_and_its_tokens() -> None:
    raw = b'{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":5,"completion_tokens":6}}'
    assert buffered(raw) == Answer(failure=None, last_at=2.0, tokens=Tokens(prompt=5, cached=0, output=6))
    assert buffered(raw, whole=False).failure is None  # it parses, so it was whole


@pytest.mark.parametrize(
    ("raw", "whole", "failure"),
    [
        (b'{"choices":[{"message":{"content":null}}]}', True, FailureReason.EMPTY),
        (b'{"choices":[{"message":{"content":null,"tool_calls":[{"id":"1"}]}}]}', True, None),
        (b'{"choices":[{"text":"a"}]}', True, None),
        (b'{"choices":[{"message":{"content":null,"refusal":"no"}}]}', True, None),
        (b'{"choices":[{"message":{"content":null,"refusal":null}}]}', True, FailureReason.EMPTY),
        (b'{"choices":null}', True, FailureReason.EMPTY),
        (b'{"error":"no"}', True, FailureReason.STREAM_ERROR),
        (b'{"choices":[', True, FailureReason.MALFORMED),
        (b'{"choices":[', False, FailureReason.STREAM_CUT),
    ],
)
def test_how_a_buffered_answer_may_end(raw: bytes, whole: bool, failure: FailureReason | None) -> None:
    assert buffered(raw, whole).failure == failure
