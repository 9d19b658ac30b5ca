"""Whole pairs over real sockets: what the arms got, what was counted of what they did."""

import asyncio
import math
from pathlib import Path

import msgspec
import pytest
from shadowrun_mirror.config import Admission, Sampling
from shadowrun_mirror.reasons import FailureReason

from tests.integration.mirror.engine import (
    DONE,
    FINISH,
    ROLE,
    Got,
    Script,
    Wire,
    answers,
    chunk_json,
    event,
    hangs,
    raw,
    refuses,
    streams,
    usage_event,
)
from tests.integration.mirror.rig import closed_port, configuration, rig

pytestmark = pytest.mark.mirror

SSE = "text/event-stream"
WORD = event(chunk_json("word"))


async def test_a_streamed_copy_reaches_both_arms_and_is_measured() -> None:
    async with rig(streams(tokens=5, gap_s=0.02, delay_s=0.1), streams(tokens=5, gap_s=0.02, delay_s=0.05)) as mirror:
        response = await mirror.copy()
        assert response.status_code == 202
        counted = await mirror.counted()
        evidence = await mirror.settled()
    assert counted.admitted.requests == 1
    baseline, candidate = counted.arms["baseline"], counted.arms["candidate"]
    for arm in (baseline, candidate):
        assert arm.completed == counted.received
        assert arm.within_slo == counted.received
        assert arm.usage.prompt_tokens == 100
        assert arm.usage.cached_tokens == 64
        assert arm.usage.output_tokens == 5
        assert arm.usage.body_bytes == counted.received.bytes
        assert 0.015 <= arm.tpot.total <= 0.3
    assert 0.095 <= baseline.ttft.total <= 0.9
    assert 0.045 <= candidate.ttft.total <= 0.9
    assert baseline.e2e.total >= baseline.ttft.total + 0.07
    window = evidence.windows[1]
    assert window.first_pair is not None
    assert {name: series.pairs for name, series in window.pairs["candidate"].items()} == dict.fromkeys(
        ("ttft", "tpot", "e2e", "slo", "errors"), 1
    )
    assert "baseline" not in window.pairs


async def test_a_buffered_copy_has_tokens_and_an_end_but_no_first_token() -> None:
    async with rig(answers(delay_s=0.05), answers()) as mirror:
        await mirror.copy(stream=False)
        counted = await mirror.counted()
        window = (await mirror.settled()).windows[1]
        sent = mirror.engines[0].got[0]
    baseline = counted.arms["baseline"]
    assert baseline.completed.requests == 1
    assert baseline.usage.output_tokens == 4
    assert baseline.ttft.count == 0
    assert baseline.tpot.count == 0
    assert baseline.e2e.total >= 0.045
    assert set(window.pairs["candidate"]) == {"e2e", "slo", "errors"}
    assert "stream_options" not in sent.json


async def test_three_arms_get_the_same_request_but_for_what_is_their_own(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("arm-token\n")
    async with rig(answers(), answers(), answers()) as mirror:
        arms = mirror.config.arms
        arms = (
            arms[0],
            msgspec.structs.replace(arms[1], model="candidate-model", credential_file=str(secret)),
            arms[2],
        )
        assert (await mirror.put(msgspec.structs.replace(mirror.config, version=2, arms=arms))).status_code == 204
        await mirror.copy(
            headers={
                "authorization": "Bearer customer",
                "X_Api_Key": "customer",
                "cookie": "a=b",
                "baggage": "team=blue,shadow=false",
                "x-feature": "on",
                "x-forwarded-for": "10.0.0.1",
            }
        )
        counted = await mirror.counted()
        baseline, candidate, control = (engine.got[0] for engine in mirror.engines)
        secret.write_text("another-token\n")
        await mirror.copy()
        await mirror.settled()
        renewed = mirror.engines[1].got[1]
    assert set(counted.arms) == {"baseline", "candidate", "control"}
    assert baseline.line == "POST /v1/chat/completions HTTP/1.1"
    for got in (baseline, candidate, control):
        assert got.values("baggage") == ["team=blue,shadow=true,shadow.run=prefix-cache"]
        assert got.values("x-feature") == ["on"]
        assert got.values("content-type") == ["application/json"]
        assert got.json["stream_options"] == {"include_usage": True}
        assert got.json["messages"] == [{"role": "user", "content": "hello"}]
        for name in ("x_api_key", "cookie", "x-forwarded-for", "x-shadowrun-run", "x-shadowrun-window"):
            assert got.values(name) == []
    assert baseline.values("authorization") == []
    assert candidate.values("authorization") == ["Bearer arm-token"]
    assert renewed.values("authorization") == ["Bearer another-token"]
    assert baseline.body == control.body
    assert baseline.json["model"] == "live-model"
    assert candidate.json["model"] == "candidate-model"


async def test_an_unusable_credential_is_the_arms_refusal_not_the_customers_key(tmp_path: Path) -> None:
    async def guarded(got: Got, wire: Wire) -> None:
        script = answers() if got.values("authorization") else refuses("401 Unauthorized")
        await script(got, wire)

    async with rig(answers(), guarded) as mirror:
        arms = (
            mirror.config.arms[0],
            msgspec.structs.replace(mirror.config.arms[1], credential_file=str(tmp_path / "no")),
        )
        await mirror.put(msgspec.structs.replace(mirror.config, version=2, arms=arms))
        await mirror.copy(headers={"authorization": "Bearer customer"})
        counted = await mirror.counted()
    assert set(counted.arms["candidate"].failed) == {"HTTP4xx"}


async def _cut_json(_: Got, wire: Wire) -> None:
    await wire.head("application/json", "content-length: 100")
    await wire.send(b'{"choices":[{"message":{"content":"w"}}]')


async def _not_http(_: Got, wire: Wire) -> None:
    await wire.send(b"SSH-2.0-OpenSSH_9.6\r\n")


async def _says_nothing(_: Got, __: Wire) -> None:
    return


async def _compressed(_: Got, wire: Wire) -> None:
    await wire.head(SSE, "content-encoding: br", "transfer-encoding: chunked")
    await wire.chunk(b"\x0b\x02\x80")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (refuses("400 Bad Request"), FailureReason.HTTP_4XX),
        (refuses("429 Too Many Requests"), FailureReason.HTTP_4XX),
        (refuses("500 Internal Server Error"), FailureReason.HTTP_5XX),
        (refuses("503 Service Unavailable"), FailureReason.HTTP_5XX),
        (refuses("302 Found"), FailureReason.MALFORMED),
        (raw(SSE, ROLE, WORD, event(b'{"error":{"message":"out of memory"}}')), FailureReason.STREAM_ERROR),
        (raw(SSE, ROLE, WORD, b"event: error\ndata: {}\n\n"), FailureReason.STREAM_ERROR),
        (raw(SSE, ROLE, WORD, whole=False), FailureReason.STREAM_CUT),
        (raw(SSE, ROLE, WORD), FailureReason.STREAM_CUT),  # ended, but nobody said that the answer had
        (raw(SSE, ROLE, FINISH, DONE), FailureReason.EMPTY),
        (raw(SSE, ROLE, event(b"not json"), DONE), FailureReason.MALFORMED),
        (raw("application/json", b"{}"), FailureReason.MALFORMED),  # a stream was asked for
        (raw(SSE, ROLE, *[event(chunk_json("x" * 40_000))] * 8, DONE), FailureReason.TOO_LONG),
        (hangs, FailureReason.TIMEOUT),
        (raw(SSE, *[WORD] * 40, gap_s=0.05), FailureReason.TIMEOUT),  # busy, but never done
        (_not_http, FailureReason.MALFORMED),
        (_says_nothing, FailureReason.STREAM_CUT),
        (_compressed, FailureReason.MALFORMED),
    ],
)
async def test_a_failing_arm_is_a_result_and_the_other_arm_is_not_touched(
    script: Script, reason: FailureReason
) -> None:
    admission = Admission(max_in_flight=8, timeout_s=1.0, max_answer_bytes=200_000)
    async with rig(streams(), script, admission=admission) as mirror:
        assert (await mirror.copy()).status_code == 202
        counted = await mirror.counted()
        window = (await mirror.settled()).windows[1]
        await asyncio.sleep(0.05)
        assert mirror.engines[1].open_connections == 0 or reason is FailureReason.TIMEOUT
        text = await mirror.metrics()
    baseline, candidate = counted.arms["baseline"], counted.arms["candidate"]
    assert baseline.completed.requests == 1
    assert candidate.failed == {reason.value: counted.admitted}
    assert candidate.ttft.failed == candidate.tpot.failed == candidate.e2e.failed == 1
    assert candidate.within_slo.requests == 0
    assert math.isinf(candidate.ttft.quantile(0.5))
    ((_, z),) = window.pairs["candidate"]["errors"].sums.values()
    assert z == -1
    result = "timeout" if reason is FailureReason.TIMEOUT else "error"
    assert f'shadowrun_mirror_requests_total{{result="{result}"}} 1.0' in text
    assert f'shadowrun_mirror_answers_total{{arm="candidate",model="",outcome="{reason}"}} 1.0' in text


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (raw("application/json", b'{"error":{"message":"no"}}'), FailureReason.STREAM_ERROR),
        (raw("application/json", b'{"choices":[]}'), FailureReason.EMPTY),
        (raw("application/json", b"<html>"), FailureReason.MALFORMED),
        (raw(SSE, WORD, DONE), FailureReason.MALFORMED),  # no stream was asked for
        (_cut_json, FailureReason.STREAM_CUT),
    ],
)
async def test_a_failing_buffered_answer_fails_without_a_first_token(script: Script, reason: FailureReason) -> None:
    async with rig(answers(), script) as mirror:
        await mirror.copy(stream=False)
        candidate = (await mirror.counted()).arms["candidate"]
    assert set(candidate.failed) == {reason.value}
    assert candidate.e2e.failed == 1
    assert candidate.ttft.count == 0


async def test_a_refused_connection_fails_that_arm_only() -> None:
    async with rig(streams(), streams()) as mirror:
        arms = (mirror.config.arms[0], msgspec.structs.replace(mirror.config.arms[1], port=closed_port()))
        await mirror.put(msgspec.structs.replace(mirror.config, version=2, arms=arms))
        await mirror.copy()
        counted = await mirror.counted()
    assert set(counted.arms["candidate"].failed) == {"Connect"}
    assert counted.arms["baseline"].completed.requests == 1
    assert counted.arms["baseline"].sent_first == 1
    assert counted.forward.count == 1


async def test_an_unknown_name_is_a_failed_connection() -> None:
    async with rig(streams(), streams()) as mirror:
        arms = tuple(msgspec.structs.replace(arm, host="no-such-name.invalid") for arm in mirror.config.arms)
        await mirror.put(msgspec.structs.replace(mirror.config, version=2, arms=arms))
        await mirror.copy()
        counted = await mirror.counted()
    assert all(set(arm.failed) == {"Connect"} for arm in counted.arms.values())
    assert counted.forward.count == 0


async def _one_byte_at_a_time(_: Got, wire: Wire) -> None:
    await wire.head(SSE, "transfer-encoding: chunked")
    for byte in ROLE + b": ping\r\n\r\n" + event(chunk_json("wörd"), b"\r\n\r\n") + FINISH + usage_event(9, 3) + DONE:
        await wire.chunk(bytes([byte]))
    await wire.send(b"0\r\n\r\n")


async def _all_at_once_until_closed(_: Got, wire: Wire) -> None:
    await wire.head(SSE)
    await wire.send(ROLE + WORD * 3 + FINISH + usage_event(9, 3) + DONE)


async def _done_but_never_closed(_: Got, wire: Wire) -> None:
    await wire.head(SSE, "transfer-encoding: chunked")
    await wire.chunk(WORD * 3 + FINISH + usage_event(9, 3) + DONE)
    await asyncio.sleep(60)


async def _after_an_interim_answer(got: Got, wire: Wire) -> None:
    await wire.send(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n")
    await streams(tokens=3)(got, wire)


@pytest.mark.parametrize(
    "script",
    [
        _one_byte_at_a_time,
        _all_at_once_until_closed,
        _done_but_never_closed,
        _after_an_interim_answer,
        raw(SSE, WORD * 3 + FINISH, usage_event(9, 3)),  # no [DONE], but it finished and ended properly
    ],
)
async def test_an_unusual_but_whole_stream_is_complete(script: Script) -> None:
    async with rig(script, script, admission=Admission(max_in_flight=8, timeout_s=0.5)) as mirror:
        await mirror.copy()
        candidate = (await mirror.counted()).arms["candidate"]
    assert candidate.failed == {}
    assert candidate.usage.output_tokens == 3
    assert candidate.ttft.count == 1


async def test_sent_first_is_drawn_anew_for_every_pair() -> None:
    async with rig(streams(), streams()) as mirror:
        for _ in range(40):
            await mirror.copy()
            await mirror.settled()
        counted = await mirror.counted()
    firsts = {name: arm.sent_first for name, arm in counted.arms.items()}
    assert sum(firsts.values()) == 40
    assert min(firsts.values()) >= 8  # one in 10,000 fair draws is worse


async def test_long_and_short_prompts_are_counted_by_class_under_their_own_slo() -> None:
    config = configuration([1, 2])
    slos = {"long": msgspec.structs.replace(config.slo, ttft_s=0.0)}
    async with rig(streams(delay_s=0.01), streams(delay_s=0.01), class_slos=slos) as mirror:
        await mirror.copy()
        await mirror.copy({"model": "m", "stream": True, "prompt": "x" * 8000})
        evidence = await mirror.settled()
    classes = evidence.windows[1].classes
    assert classes["default"].arms["candidate"].within_slo.requests == 1
    assert classes["long"].arms["candidate"].completed.requests == 1
    assert classes["long"].arms["candidate"].within_slo.requests == 0


async def test_a_slow_arm_never_delays_the_202() -> None:
    async with rig(hangs, hangs, admission=Admission(max_in_flight=100, timeout_s=1.0)) as mirror:
        started = asyncio.get_running_loop().time()
        for _ in range(20):
            assert (await mirror.copy()).status_code == 202
        took = asyncio.get_running_loop().time() - started
        evidence = await mirror.evidence()
        assert evidence.windows[1].classes["default"].in_flight.requests == 20
        counted = await mirror.counted()
    assert took < 0.9  # twenty copies, none of which waited for an arm's timeout
    assert counted.arms["baseline"].failed["Timeout"].requests == 20


CANARY = "canary-8d1f"
PLANTED = (
    "x-forwarded-access-token",
    "x-forwarded-user",
    "x-forwarded-for",
    "x_forwarded_groups",
    "x-auth-request-access-token",
    "x-auth-request-email",
    "x-amzn-oidc-data",
    "x-amzn-oidc-accesstoken",
    "x-original-authorization",
    "X-Customer-Id",
    "authorization",
    "cookie",
)


async def test_no_secret_of_the_head_of_a_request_reaches_an_arm() -> None:
    """Planted in the query, in what authenticating proxies add, and in the header that names the customer."""
    sampling = Sampling(unit="Key", threshold=0, seed=7, key_headers=("x-customer-id",))
    capture = msgspec.structs.replace(configuration([]).capture, sampling=sampling)
    async with rig(answers(), answers(), capture=capture) as mirror:
        await mirror.copy(headers=dict.fromkeys(PLANTED, CANARY), query=f"?api_key={CANARY}&b=/{CANARY}")
        counted = await mirror.counted()
        seen = [got for engine in mirror.engines for got in engine.got]
    assert counted.arms["candidate"].completed.requests == 1
    assert [got.line for got in seen] == ["POST /v1/chat/completions HTTP/1.1"] * 2
    assert [header for got in seen for header in got.headers if CANARY in header[1]] == []


async def test_a_conversations_id_reaches_the_arms_so_that_they_may_route_by_it() -> None:
    sampling = Sampling(unit="Conversation", threshold=0, seed=7, key_headers=("x-conversation-id",))
    capture = msgspec.structs.replace(configuration([]).capture, sampling=sampling)
    async with rig(answers(), answers(), capture=capture) as mirror:
        await mirror.copy(headers={"x-conversation-id": "c-1"})
        await mirror.settled()
        assert [engine.got[0].values("x-conversation-id") for engine in mirror.engines] == [["c-1"], ["c-1"]]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_absurd_token_count_is_no_count_and_the_pair_ends(stream: bool) -> None:
    usage = b'"usage":{"prompt_tokens":1,"completion_tokens":1' + b"0" * 400 + b"}"
    script = (
        raw(SSE, WORD, WORD, event(b'{"choices":[],' + usage + b"}"), DONE)
        if stream
        else raw("application/json", b'{"choices":[{"message":{"content":"w"}}],' + usage + b"}")
    )
    async with rig(answers(), script) as mirror:
        await mirror.copy(stream=stream)
        candidate = (await mirror.counted()).arms["candidate"]
    assert candidate.completed.requests == 1
    assert candidate.usage.answers == 0


@pytest.mark.parametrize(
    "what",
    ["stream.StreamReader.feed", "stream.StreamReader.answer", "dispatch.arm_result", "reading.head_objection"],
)
async def test_whatever_breaks_while_an_answer_is_read_the_pair_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise OverflowError("the answer was: hello")

    monkeypatch.setattr(f"shadowrun_mirror.{what}", breaks)
    async with rig(streams(), streams()) as mirror:
        await mirror.copy()
        counted = await mirror.counted()
    assert counted.in_flight.requests == 0
    assert [set(arm.failed) for arm in counted.arms.values()] == [{"Malformed"}] * 2
    assert "hello" not in caplog.text


async def test_an_answer_in_one_event_has_no_tpot_and_is_in_the_metrics() -> None:
    bundled = raw(SSE, WORD, FINISH + usage_event(100, 9), DONE)
    async with rig(streams(), bundled) as mirror:
        await mirror.copy()
        candidate = (await mirror.counted()).arms["candidate"]
        window = (await mirror.settled()).windows[1]
        text = await mirror.metrics()
    assert (candidate.completed.requests, candidate.ttft.count, candidate.tpot.count) == (1, 1, 0)
    assert "tpot" not in window.pairs["candidate"]
    assert 'shadowrun_mirror_bundled_answers_total{arm="candidate",model=""} 1.0' in text
    assert 'shadowrun_mirror_bundled_answers_total{arm="baseline",model=""} 0.0' in text
