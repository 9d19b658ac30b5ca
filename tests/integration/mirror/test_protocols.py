"""Every API over real sockets: what the arms are sent, and what is made of their answers."""

from typing import Any

import msgspec
import pytest
from shadowrun_mirror.config import Admission, Sampling
from shadowrun_mirror.reasons import DropReason, FailureReason, FlagReason

from tests.integration.mirror.engine import (
    DONE,
    FINISH,
    STREAMS,
    Got,
    Script,
    Wire,
    bomb,
    chunk_json,
    event,
    raw,
    speaks,
    streams,
    typed,
)
from tests.integration.mirror.rig import configuration, rig

pytestmark = pytest.mark.mirror

SSE = "text/event-stream"
EMBEDDINGS = "/v1/embeddings"
CANARY = "canary-7c21"


def request(path: str, stream: bool, **more: Any) -> dict[str, Any]:
    """A minimal request of the API at `path`."""
    body: dict[str, Any] = {"model": "live-model", **more}
    if stream:
        body["stream"] = True
    if path.endswith(("/chat/completions", "/messages")):
        return body | {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 16}
    return body | ({"prompt": "hello"} if path.endswith("/v1/completions") else {"input": "hello"})


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("coding", ["", "gzip", "deflate"])
@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_of_every_api_is_measured(path: str, coding: str, end: bytes) -> None:
    script = speaks(tokens=5, gap_s=0.02, delay_s=0.05, coding=coding, end=end)
    async with rig(script, script) as mirror:
        assert (await mirror.copy(request(path, stream=True), path=path)).status_code == 202
        counted = await mirror.counted()
        window = (await mirror.settled()).windows[1]
    for arm in counted.arms.values():
        assert arm.failed == {}
        assert (arm.usage.prompt_tokens, arm.usage.cached_tokens, arm.usage.output_tokens) == (100, 64, 5)
        assert 0.045 <= arm.ttft.total <= 0.5
        assert 0.015 <= arm.tpot.total <= 0.2
        assert 0.015 <= arm.gap.total <= 0.5
        assert arm.per_token.total == pytest.approx(arm.e2e.total / 5)
    assert set(window.pairs["candidate"]) == {"ttft", "tpot", "e2e", "slo", "errors"}
    assert counted.flagged.get(FlagReason.TOKEN_SOURCES_DIFFER) is None


@pytest.mark.parametrize("coding", ["", "gzip", "deflate"])
@pytest.mark.parametrize("path", [*STREAMS, EMBEDDINGS])
async def test_a_buffered_answer_of_every_api_is_measured(path: str, coding: str) -> None:
    async with rig(speaks(coding=coding), speaks(coding=coding)) as mirror:
        await mirror.copy(request(path, stream=False), path=path)
        counted = await mirror.counted()
    for arm in counted.arms.values():
        assert arm.failed == {}
        assert (arm.usage.prompt_tokens, arm.usage.cached_tokens) == (100, 64)
        assert arm.usage.output_tokens == (0 if path == EMBEDDINGS else 4)
        assert (arm.ttft.count, arm.tpot.count, arm.gap.count, arm.e2e.count) == (0, 0, 0, 1)
        assert arm.per_token.count == (0 if path == EMBEDDINGS else 1)


async def test_embeddings_never_stream_even_if_a_stream_was_asked_for() -> None:
    async with rig(speaks(), speaks()) as mirror:
        await mirror.copy(request(EMBEDDINGS, stream=True), path=EMBEDDINGS)
        counted = await mirror.counted()
        sent = mirror.engines[0].got[0].json
    assert counted.arms["candidate"].completed.requests == 1
    assert counted.arms["candidate"].ttft.count == 0
    assert "stream_options" not in sent


@pytest.mark.parametrize("path", [*STREAMS, EMBEDDINGS])
async def test_an_arm_is_not_told_who_asked_and_keeps_nothing(path: str) -> None:
    identities = {
        "user": CANARY,
        "safety_identifier": CANARY,
        "metadata": {"user_id": CANARY},
        "tenant": CANARY,
        "prompt_cache_key": CANARY,
    }
    sampling = Sampling(unit="Key", threshold=0, seed=7, key_headers=("x-a", "x-b"), key_field="tenant")
    capture = msgspec.structs.replace(configuration([1, 2]).capture, sampling=sampling)
    async with rig(speaks(), speaks(), capture=capture) as mirror:
        for _ in range(2):
            body = request(path, stream=False, temperature=0.5, store=True, **identities)
            await mirror.copy(body, path=path, headers={"x-a": CANARY, "x-b": CANARY})
        counted = await mirror.counted()
        got = [got for engine in mirror.engines for got in engine.got]
    assert counted.arms["candidate"].completed.requests == 2
    assert [CANARY for one in got if CANARY in str(one.headers) or CANARY.encode() in one.body] == []
    assert [one.path for one in got] == [path] * 4
    sent = got[0].json
    assert len({one.json["prompt_cache_key"] for one in got}) == 1  # the same for all, as it was
    assert (sent["model"], sent["temperature"]) == ("live-model", 0.5)
    assert sent["store"] is (not path.endswith(("/chat/completions", "/responses")))
    assert got[0].values("accept-encoding") == ["identity"]


async def test_an_answer_in_the_background_is_asked_for_in_the_foreground() -> None:
    path = "/v1/responses"
    async with rig(speaks(), speaks()) as mirror:
        await mirror.copy(request(path, stream=False, background=True), path=path)
        counted = await mirror.counted()
        sent = mirror.engines[0].got[0].json
    assert "background" not in sent
    assert sent["store"] is False
    assert counted.arms["candidate"].usage.output_tokens == 4


@pytest.mark.parametrize("more", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
async def test_a_copy_that_goes_on_from_what_the_primary_keeps_is_sent_to_no_arm(more: dict[str, str]) -> None:
    path = "/v1/responses"
    async with rig(speaks(), speaks()) as mirror:
        await mirror.copy(request(path, stream=True, **more), path=path)
        counted = await mirror.counted()
        sent = [got for engine in mirror.engines for got in engine.got]
    assert {reason: lost.requests for reason, lost in counted.dropped.items()} == {
        DropReason.CONVERSATION_JOINED_LATE: 1
    }
    assert sent == []


R_WORD = typed({"type": "response.output_text.delta", "delta": "word"})
M_WORD = typed({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word"}})


async def _one_byte_at_a_time(got: Got, wire: Wire) -> None:
    opening, words, ending = STREAMS[got.path](3)
    await wire.head(SSE, "transfer-encoding: chunked")
    for byte in (b": hello\n\n" + opening + b"".join(words) + ending).replace(b"\n", b"\r\n"):
        await wire.chunk(bytes([byte]))
    await wire.send(b"0\r\n\r\n")


async def _all_at_once_until_closed(got: Got, wire: Wire) -> None:
    opening, words, ending = STREAMS[got.path](3)
    await wire.head(SSE)
    await wire.send(opening + b"".join(words) + ending)


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("script", [_one_byte_at_a_time, _all_at_once_until_closed])
async def test_an_unusual_but_whole_stream_of_every_api_is_complete(path: str, script: Script) -> None:
    async with rig(script, script) as mirror:
        await mirror.copy(request(path, stream=True), path=path)
        candidate = (await mirror.counted()).arms["candidate"]
    assert candidate.failed == {}
    assert (candidate.usage.output_tokens, candidate.ttft.count) == (3, 1)


@pytest.mark.parametrize(
    ("path", "script", "reason"),
    [
        ("/v1/responses", raw(SSE, R_WORD), FailureReason.STREAM_CUT),
        ("/v1/responses", raw(SSE, R_WORD, DONE), FailureReason.STREAM_CUT),
        ("/v1/responses", raw(SSE, R_WORD, typed({"type": "response.failed"})), FailureReason.STREAM_ERROR),
        ("/v1/responses", raw(SSE, R_WORD, b'data: {"type":"error"}\n\n'), FailureReason.STREAM_ERROR),
        ("/v1/responses", raw(SSE, event(chunk_json("word")), FINISH, DONE), FailureReason.MALFORMED),
        ("/v1/messages", raw(SSE, M_WORD), FailureReason.STREAM_CUT),
        ("/v1/messages", raw(SSE, M_WORD, typed({"type": "error"})), FailureReason.STREAM_ERROR),
        ("/v1/messages", raw(SSE, typed({"type": "message_stop"})), FailureReason.EMPTY),
        ("/v1/messages", raw("application/json", b"{}"), FailureReason.MALFORMED),
        ("/v1/chat/completions", bomb(SSE, 40), FailureReason.TOO_LONG),
        ("/v1/messages", raw(SSE, b"data: " + b"x" * 1_500_000), FailureReason.TOO_LONG),
    ],
)
async def test_a_failing_stream_of_another_api_is_a_result(path: str, script: Script, reason: FailureReason) -> None:
    admission = Admission(max_in_flight=8, timeout_s=5.0, max_answer_bytes=2_000_000)
    async with rig(speaks(), script, admission=admission) as mirror:
        await mirror.copy(request(path, stream=True), path=path)
        arms = (await mirror.counted()).arms
    assert arms["baseline"].failed == {}
    assert set(arms["candidate"].failed) == {reason.value}


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/v1/responses", b'{"status":"failed","output":[]}', FailureReason.STREAM_ERROR),
        ("/v1/responses", b'{"status":"completed","output":[]}', FailureReason.EMPTY),
        ("/v1/messages", b'{"type":"error"}', FailureReason.STREAM_ERROR),
        (EMBEDDINGS, b'{"data":[]}', FailureReason.EMPTY),
        (EMBEDDINGS, b'{"data":[{"embedding":[1.0', FailureReason.MALFORMED),
    ],
)
async def test_a_failing_buffered_answer_of_another_api_is_a_result(
    path: str, body: bytes, reason: FailureReason
) -> None:
    async with rig(speaks(), raw("application/json", body)) as mirror:
        await mirror.copy(request(path, stream=False), path=path)
        arms = (await mirror.counted()).arms
    assert set(arms["candidate"].failed) == {reason.value}
    assert (arms["candidate"].e2e.failed, arms["candidate"].gap.count, arms["candidate"].per_token.count) == (1, 0, 0)


async def test_a_pair_with_two_kinds_of_token_counts_says_nothing_per_token_and_is_flagged() -> None:
    silent = raw(SSE, *[event(chunk_json("word"))] * 4, FINISH, DONE, gap_s=0.01)
    async with rig(streams(gap_s=0.01), silent) as mirror:
        await mirror.copy()
        counted = await mirror.counted()
        window = (await mirror.settled()).windows[1]
    assert counted.flagged[FlagReason.TOKEN_SOURCES_DIFFER] == counted.admitted
    assert set(window.pairs["candidate"]) == {"ttft", "e2e", "slo", "errors"}
    for arm in counted.arms.values():
        assert (arm.completed.requests, arm.ttft.count, arm.e2e.count, arm.gap.count) == (1, 1, 1, 1)
        assert (arm.tpot.count, arm.per_token.count) == (0, 0)
