"""Anthropic messages: what is content, what ends an answer, whose tokens are what."""

from typing import Any

import pytest
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.shapes import Tokens
from shadowrun_mirror.stream import Answer

from tests.unit.mirror.transcripts import (
    BLOCK_STOP,
    M_START,
    M_TEXT,
    MESSAGES,
    PING,
    STOP,
    block,
    block_delta,
    buffered,
    event,
    message_delta,
    read,
    start,
)

pytestmark = pytest.mark.mirror


@pytest.mark.parametrize("type_last", [False, True])
def test_a_messages_stream_is_read_from_its_first_delta_to_its_last(type_last: bool) -> None:
    deltas = [block_delta(type_last=type_last)] * 3
    pieces = [M_START, M_TEXT, PING, *deltas, BLOCK_STOP, message_delta(output_tokens=7), STOP]
    answer = read(MESSAGES, pieces, whole=False)
    assert answer == Answer(
        failure=None, first_at=3.0, last_at=5.0, gap=1.0, chunks=3, tokens=Tokens(prompt=45, cached=30, output=7)
    )


@pytest.mark.parametrize(
    ("started", "updated", "tokens"),
    [
        ({"input_tokens": 10, "output_tokens": 1}, {"output_tokens": 7}, Tokens(prompt=10, cached=0, output=7)),
        # an engine that only knows at the end, and says nothing of a cache
        (
            {"input_tokens": 0, "output_tokens": 0},
            {"input_tokens": 12, "output_tokens": 7},
            Tokens(prompt=12, cached=0, output=7),
        ),
        ({}, {"output_tokens": 7}, None),
        ({"input_tokens": 10, "output_tokens": -1}, {"output_tokens": "7"}, None),
        ({"input_tokens": 2**31, "cache_read_input_tokens": 2**31}, {"output_tokens": 7}, None),
        ({"input_tokens": 3, "cache_read_input_tokens": None}, {}, Tokens(prompt=3, cached=0, output=None)),
    ],
)
def test_tokens_told_in_parts_are_put_together(started: Any, updated: Any, tokens: Tokens | None) -> None:
    assert read(MESSAGES, [start(**started), block_delta(), message_delta(**updated), STOP]).tokens == tokens


@pytest.mark.parametrize("kind", ["text", "thinking", "partial_json"])
def test_text_thinking_and_the_input_of_tools_are_content(kind: str) -> None:
    answer = read(MESSAGES, [M_START, *[block_delta(kind, text) for text in ("a", "", '"', "{")], STOP])
    assert (answer.failure, answer.first_at, answer.last_at, answer.chunks) == (None, 1.0, 4.0, 3)


@pytest.mark.parametrize(
    ("piece", "is_content"),
    [
        (block(type="tool_use", id="1", name="f", input={}), True),
        (block(type="redacted_thinking", data="x"), True),
        (block(type="text", text="hello"), True),
        (block(type="text", text=""), False),
        (block(type="thinking", thinking="", signature=""), False),
        (block_delta("signature", "abc"), False),
        (BLOCK_STOP, False),
        (PING, False),
    ],
)
def test_what_says_nothing_new_is_not_content(piece: bytes, is_content: bool) -> None:
    answer = read(MESSAGES, [M_START, piece, message_delta(), STOP])
    assert answer.failure is (None if is_content else FailureReason.EMPTY)


@pytest.mark.parametrize(
    ("pieces", "whole", "failure"),
    [
        ([STOP], False, None),
        ([message_delta()], True, None),  # said why it ended, and ended properly
        ([message_delta()], False, FailureReason.STREAM_CUT),
        ([message_delta(None)], True, FailureReason.STREAM_CUT),
        ([], True, FailureReason.STREAM_CUT),
        ([b"data: [DONE]\n\n"], True, FailureReason.STREAM_CUT),
        ([STOP[:-1]], False, None),
        ([STOP[:-2]], False, None),
        ([STOP[:-3]], False, FailureReason.STREAM_CUT),
        ([event({"type": "error", "error": {"type": "overloaded_error"}})], True, FailureReason.STREAM_ERROR),
        ([event({"type": "error"}, named=False), STOP], True, FailureReason.STREAM_ERROR),
        ([b'data: {"error":{"message":"m"}}\n\n'], True, FailureReason.STREAM_ERROR),
        ([b"data: {}\n\n", STOP], True, FailureReason.MALFORMED),
        ([event({"type": "of_a_later_day", "x": 1}), STOP], True, None),
    ],
)
def test_how_a_messages_stream_may_end(pieces: list[bytes], whole: bool, failure: FailureReason | None) -> None:
    assert read(MESSAGES, [M_START, block_delta(), *pieces], whole).failure == failure


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        ({"type": "message", "content": [{"type": "text", "text": "a"}], "usage": {"input_tokens": 1}}, None),
        ({"type": "message", "content": [{"type": "tool_use", "name": "f", "input": {}}]}, None),
        ({"type": "message", "content": [{"type": "thinking", "thinking": "a"}]}, None),
        ({"type": "message", "content": []}, FailureReason.EMPTY),
        ({"type": "message", "content": [{"type": "text", "text": ""}]}, FailureReason.EMPTY),
        ({"type": "error", "error": {"type": "overloaded_error"}}, FailureReason.STREAM_ERROR),
        (b'{"content":"a"}', FailureReason.MALFORMED),
        (b"", FailureReason.MALFORMED),
    ],
)
def test_how_a_buffered_message_may_end(body: Any, failure: FailureReason | None) -> None:
    assert buffered(MESSAGES, body).failure == failure


def test_a_buffered_message_has_its_tokens() -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 30, "output_tokens": 7}
    answer = buffered(MESSAGES, {"type": "message", "content": [{"text": "a"}], "usage": usage})
    assert answer.tokens == Tokens(prompt=40, cached=30, output=7)
