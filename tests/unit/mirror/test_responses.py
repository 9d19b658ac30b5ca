"""OpenAI responses: what is content, what ends an answer, whose tokens are what."""

from typing import Any

import pytest
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.shapes import Tokens
from shadowrun_mirror.stream import Answer

from tests.unit.mirror.transcripts import (
    ADDED,
    COMPLETED,
    CREATED,
    ITEM_DONE,
    MESSAGE,
    PART,
    R_USAGE,
    RESPONSES,
    TEXT_DONE,
    WORD,
    buffered,
    delta,
    ended,
    event,
    read,
    response,
)

pytestmark = pytest.mark.mirror


@pytest.mark.parametrize("shape", [0, 1, 2])
@pytest.mark.parametrize("named", [True, False])
def test_a_responses_stream_is_read_from_its_first_delta_to_its_last(shape: int, named: bool) -> None:
    deltas = [event(delta(n, shape=shape), named) for n in range(8, 12)]
    answer = read(RESPONSES, [CREATED, ADDED, PART, *deltas, TEXT_DONE, ITEM_DONE, COMPLETED], whole=False)
    assert answer == Answer(
        failure=None, first_at=3.0, last_at=6.0, gap=1.0, chunks=4, tokens=Tokens(prompt=9, cached=4, output=5)
    )


KINDS = """output_text refusal reasoning_text reasoning_summary_text function_call_arguments mcp_call_arguments
custom_tool_call_input code_interpreter_call_code audio"""


@pytest.mark.parametrize("kind", KINDS.split())
def test_every_kind_of_delta_is_content_unless_it_is_empty(kind: str) -> None:
    events = [event(delta(n, text, kind)) for n, text in enumerate(["a", "", '"', "\\", ""])]
    answer = read(RESPONSES, [CREATED, *events, COMPLETED])
    assert (answer.failure, answer.first_at, answer.last_at, answer.chunks) == (None, 1.0, 4.0, 3)


@pytest.mark.parametrize(
    ("item", "is_content"),
    [
        ({"type": "function_call", "name": "f", "arguments": ""}, True),
        ({"type": "web_search_call", "id": "1"}, True),
        ({"type": "reasoning", "summary": []}, False),
        ({"type": "message", "content": []}, False),
    ],
)
def test_the_start_of_a_call_is_content_as_it_names_what_is_called(item: dict[str, Any], is_content: bool) -> None:
    answer = read(RESPONSES, [CREATED, event({"type": "response.output_item.added", "item": item}), ended()])
    assert answer.failure is (None if is_content else FailureReason.EMPTY)
    assert answer.first_at == (1.0 if is_content else None)


def test_an_answer_given_only_at_the_end_is_an_answer_and_one_repeated_is_not_counted_twice() -> None:
    answer = read(RESPONSES, [CREATED, COMPLETED])
    assert (answer.failure, answer.first_at, answer.chunks) == (None, 1.0, 1)
    assert read(RESPONSES, [CREATED, ended(output=[])]).failure is FailureReason.EMPTY


@pytest.mark.parametrize(
    ("pieces", "whole", "failure"),
    [
        ([WORD, ended("incomplete", incomplete_details={"reason": "max_output_tokens"})], False, None),
        ([WORD, ended("failed", error={"code": "server_error"})], True, FailureReason.STREAM_ERROR),
        ([WORD, ended("cancelled")], True, FailureReason.STREAM_ERROR),
        ([WORD, event({"type": "error", "code": "x", "message": "m"}, named=False)], True, FailureReason.STREAM_ERROR),
        ([WORD, b'data: {"error":{"message":"m"}}\n\n'], True, FailureReason.STREAM_ERROR),
        ([WORD, b"event: error\ndata: {}\n\n", COMPLETED], True, FailureReason.STREAM_ERROR),
        ([WORD], True, FailureReason.STREAM_CUT),
        ([WORD, TEXT_DONE, ITEM_DONE], True, FailureReason.STREAM_CUT),
        ([WORD, b"data: [DONE]\n\n"], True, FailureReason.STREAM_CUT),  # not what ends this API's answers
        ([WORD, COMPLETED, b"data: [DONE]\n\n"], True, None),
        ([WORD, COMPLETED[:-1]], False, None),  # the blank line alone is missing
        ([WORD, COMPLETED[:-5]], False, FailureReason.STREAM_CUT),
        ([WORD, b"data: {}\n\n"], True, FailureReason.MALFORMED),
        ([WORD, b"data: [1]\n\n"], True, FailureReason.MALFORMED),
        ([WORD, b'data: {"type":"response.completed"}\n\n'], True, FailureReason.MALFORMED),
        ([WORD, b'data: {"type":"response.of_a_later_day","x":[]}\n\n', COMPLETED], True, None),
        ([CREATED, ended()], True, FailureReason.EMPTY),
    ],
)
def test_how_a_responses_stream_may_end(pieces: list[bytes], whole: bool, failure: FailureReason | None) -> None:
    assert read(RESPONSES, pieces, whole).failure == failure


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        (response("completed", output=[MESSAGE], usage=R_USAGE), None),
        (response("incomplete", output=[MESSAGE]), None),
        (response("completed", output=[{"type": "function_call", "name": "f", "arguments": "{}"}]), None),
        (response("completed", output=[{"type": "reasoning", "summary": [{"text": "s"}]}]), None),
        (response("completed", output=[{"type": "message", "content": [{"refusal": "no"}]}]), None),
        (response("completed", output=[]), FailureReason.EMPTY),
        (response("completed", output=[{"type": "reasoning", "summary": []}]), FailureReason.EMPTY),
        (response("queued", output=[]), FailureReason.EMPTY),
        (response("failed") | {"error": {"code": "x"}}, FailureReason.STREAM_ERROR),
        (response("cancelled", output=[MESSAGE]), FailureReason.STREAM_ERROR),
        ({"error": {"message": "m"}}, FailureReason.STREAM_ERROR),
        (b"<html>", FailureReason.MALFORMED),
        (b'{"output":{}}', FailureReason.MALFORMED),
    ],
)
def test_how_a_buffered_response_may_end(body: Any, failure: FailureReason | None) -> None:
    assert buffered(RESPONSES, body).failure == failure


def test_a_buffered_response_has_its_tokens() -> None:
    answer = buffered(RESPONSES, response("completed", output=[MESSAGE], usage=R_USAGE), whole=False)
    assert answer == Answer(failure=None, last_at=2.0, tokens=Tokens(prompt=9, cached=4, output=5))
