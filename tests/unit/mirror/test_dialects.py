"""What holds for the readers of every API; and embeddings."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.dialects import dialect_of
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.shapes import Noted, Tokens
from shadowrun_mirror.stream import StreamReader

from tests.unit.mirror.transcripts import (
    ADDED,
    CHAT,
    COMPLETED,
    CREATED,
    EMBEDDINGS,
    M_START,
    M_TEXT,
    MESSAGES,
    PING,
    RESPONSES,
    STOP,
    WORD,
    block_delta,
    buffered,
    delta,
    ended,
    event,
    message_delta,
    read,
)

pytestmark = pytest.mark.mirror


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        ({"object": "list", "data": [{"embedding": [0.1, 0.2]}, {"embedding": [0.3]}]}, None),
        ({"object": "list", "data": [{"embedding": "AAAA"}]}, None),
        ({"object": "list", "data": [{"embedding": [0.1]}, {"embedding": []}]}, FailureReason.EMPTY),
        ({"object": "list", "data": [{"index": 0}]}, FailureReason.EMPTY),
        ({"object": "list", "data": []}, FailureReason.EMPTY),
        ({"object": "list"}, FailureReason.EMPTY),
        ({"object": "error", "message": "m"}, FailureReason.STREAM_ERROR),
        ({"error": {"message": "m"}}, FailureReason.STREAM_ERROR),
        (b'{"data":{}}', FailureReason.MALFORMED),
    ],
)
def test_embeddings_are_whole_when_every_vector_is_there(body: Any, failure: FailureReason | None) -> None:
    assert buffered(EMBEDDINGS, body).failure == failure
    assert buffered(EMBEDDINGS, body, asked=True).failure == failure  # there are no streams of them
    assert not dialect_of(EMBEDDINGS).streams(True)


def test_embeddings_have_a_prompt_and_no_output() -> None:
    answer = buffered(EMBEDDINGS, {"data": [{"embedding": [1]}], "usage": {"prompt_tokens": 8, "total_tokens": 8}})
    assert answer.tokens == Tokens(prompt=8, cached=0, output=None)


# All of them


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 6, "prompt_cache_miss_tokens": 3}, 6),
        ({"prompt_tokens": 9, "completion_tokens": 1, "cache_read_input_tokens": 5}, 5),
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}, 4),
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": None}, 0),
        ({"input_tokens": 9, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 3}}, 3),
    ],
)
def test_what_was_cached_has_many_names(usage: dict[str, Any], cached: int) -> None:
    answer = buffered(CHAT, {"choices": [{"message": {"content": "a"}}], "usage": usage})
    assert answer.tokens == Tokens(prompt=9, cached=cached, output=1)


@pytest.mark.parametrize("per_read", [1, 7])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    ("path", "words"),
    [
        (RESPONSES, [delta(n) for n in range(95, 1200)]),
        (RESPONSES, [delta(n, shape=1) for n in range(1100)]),
        (RESPONSES, [delta(n, shape=2) for n in range(1100)]),
        (MESSAGES, [json.loads(block_delta().split(b"data: ")[1])] * 1100),
        (MESSAGES, [json.loads(block_delta("partial_json", type_last=True).split(b"data: ")[1])] * 1100),
    ],
)
def test_few_events_are_parsed(path: bytes, words: list[dict[str, Any]], end: bytes, per_read: int) -> None:
    parsed: list[bytes] = []
    shape = dialect_of(path).answer
    assert shape.event is not None
    note = shape.event

    def counted(payload: bytes) -> Noted | None:
        parsed.append(payload)
        return note(payload)

    reader = StreamReader(counted, done_mark=False)
    events = [event(word, end=end) for word in words] + [COMPLETED if path == RESPONSES else STOP]
    for number in range(0, len(events), per_read):
        assert reader.feed(b"".join(events[number : number + per_read]), float(number))
    answer = reader.answer(True)
    assert (answer.failure, answer.chunks) == (None, len(words))
    assert len(parsed) <= 4


@given(st.lists(st.sampled_from(["a", "", '"']), max_size=6))
def test_an_event_that_only_begins_like_content_is_looked_at(texts: list[str]) -> None:
    for path, pieces in (
        (RESPONSES, [event(delta(n, text)) for n, text in enumerate(["a", *texts])] + [ended()]),
        (MESSAGES, [block_delta(value=text) for text in ["a", *texts]] + [STOP]),
    ):
        assert read(path, pieces).chunks == 1 + sum(bool(text) for text in texts)


pools = {
    CHAT: [
        b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}\n\n',
        b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n',
        b'data: {"error":{}}\n\n',
        b'data: {"choices":[{"delta":{"content":"a"}}],"error":"e"}\n\n',
        b"data: [DONE]\n\n",
    ],
    RESPONSES: [CREATED, ADDED, WORD, event(delta(2, "")), event(delta(7, shape=2)), COMPLETED, ended("failed")],
    MESSAGES: [
        M_START,
        M_TEXT,
        block_delta(),
        block_delta("thinking"),
        block_delta(value=""),
        message_delta(output_tokens=3),
        STOP,
        PING,
        event({"type": "error"}),
    ],
}
NOISE = [b": ping\n\n", b": ping\n", b"id: 7\n", b"\n", b"data\n\n", b"data: {\n\n", b"event: error\n\n", b"da"]


@pytest.mark.parametrize("path", pools)
@given(st.data())
def test_any_split_of_the_bytes_gives_the_same_answer(path: bytes, data: st.DataObject) -> None:
    """Whatever the events, their order, their line ends and where the body was cut; only times may differ."""
    events = data.draw(st.lists(st.sampled_from(pools[path] * 3 + NOISE), max_size=12))
    end = data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    raw = b"".join(events).replace(b"\n", end)
    raw = raw[: len(raw) - data.draw(st.sampled_from([0, 0, 1, 2, 9]))]
    whole = data.draw(st.booleans())
    cuts = data.draw(st.sets(st.integers(0, len(raw)), max_size=12) | st.just(set(range(len(raw)))))
    split = read(path, [raw[a:b] for a, b in itertools.pairwise([0, *sorted(cuts), len(raw)]) if a < b], whole)
    once = read(path, [raw], whole)
    assert (split.failure, split.chunks, split.tokens) == (once.failure, once.chunks, once.tokens)
    assert (split.first_at is None) == (once.first_at is None)


ODD = {
    CHAT: [
        b'data: {"choices":[{"delta":{"content":""}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n',
        b'data: {"choices":[{"delta":{"tool_calls":[]}}]}\n\n',
        b'data: {"choices":[{"index":1,"delta":{"reasoning":"a"}}]}\n\n',
    ],
    RESPONSES: [event(delta(n, text, shape=n % 3)) for n, text in enumerate(["a", '"', "", "b", "", {"x": 1}])],
    MESSAGES: [block_delta("partial_json", "{"), block_delta("signature", "s"), block_delta(type_last=True)],
}


@pytest.mark.parametrize("path", pools)
@given(st.data())
def test_events_that_are_not_parsed_would_have_said_the_same(path: bytes, data: st.DataObject) -> None:
    """Against a reader that parses every event. What follows a text is left out: only a row's last is looked at."""
    events = data.draw(st.lists(st.sampled_from([e for e in pools[path] if b'"error":"e"' not in e] + ODD[path])))
    note = dialect_of(path).answer.event
    assert note is not None
    chunks, counted = 0, None
    for one in events:
        payload = one.split(b"data: ")[1].strip()
        noted = Noted(done=True) if payload == b"[DONE]" else note(payload)
        assert noted is not None
        if noted.failed:
            break
        chunks += noted.content is not None or (noted.repeated and not chunks)
        if noted.counted is not None:
            counted = noted.counted if counted is None else counted.updated(noted.counted)
        if noted.done:
            break
    answer = read(path, events)
    assert (answer.chunks, answer.tokens) == (chunks, None if counted is None else counted.tokens())


KEYS = "type delta message content_block usage response item output content text error status data embedding"
keys = st.sampled_from(KEYS.split())
leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
types = st.sampled_from(["response.completed", "response.output_item.added", "message_start", "message_delta", "error"])
anything = st.recursive(
    leaves | types,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=12,
)


@given(st.lists(anything, max_size=4), st.binary(max_size=30))
def test_nothing_that_is_sent_makes_a_reader_raise(values: list[Any], junk: bytes) -> None:
    payloads = [json.dumps(value).encode() for value in values]
    for path in (CHAT, RESPONSES, MESSAGES, EMBEDDINGS):
        read(path, [b"data: " + payload + b"\n\n" for payload in payloads])
        for payload in [*payloads, junk]:
            buffered(path, payload)
