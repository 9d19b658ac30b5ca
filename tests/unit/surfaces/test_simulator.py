"""The simulator over a real socket: the protocol as clients read it, every fault, and the client's name for each."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from examples.engine.simulator import Simulator, arguments
from examples.traffic.client import Answer, ask

pytestmark = pytest.mark.surfaces

PATH = "/v1/chat/completions"
FAST = ["--speed=20"]


@asynccontextmanager
async def serving(*options: str) -> AsyncIterator[str]:
    """A simulator on a free port; its address."""
    runner = web.AppRunner(
        Simulator(arguments([*FAST, *options], {})).application(), handler_cancellation=True, shutdown_timeout=0.2
    )
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def body(words: int = 40, *, stream: bool = True, tokens: int = 6, first: str = "w", **more: Any) -> dict[str, Any]:
    content = " ".join([first, *["w"] * (words - 1)])
    return {
        "model": "chat",
        "messages": [{"role": "user", "content": content}],
        "max_tokens": tokens,
        "stream": stream,
    } | more


async def asked(url: str, request: dict[str, Any], patience: float = 5.0) -> Answer:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=patience)) as session:
        return await ask(session, url + PATH, request, "c1")


async def events(url: str, request: dict[str, Any]) -> list[Any]:
    """All events of a stream, parsed; the last is the bare end marker."""
    async with aiohttp.ClientSession() as session, session.post(url + PATH, json=request) as response:
        assert response.status == 200
        assert response.headers["content-type"] == "text/event-stream"
        lines = (await response.text()).split("\n\n")
    data = [line.removeprefix("data: ") for line in lines if line]
    return [json.loads(text) if text != "[DONE]" else text for text in data]


async def test_a_stream_has_a_role_its_tokens_an_end_and_usage_where_asked() -> None:
    async with serving() as url:
        found = await events(url, body(words=40, stream_options={"include_usage": True}))
    *chunks, usage, done = found
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"]["prompt_tokens"] == 41  # the role is a word too
    assert usage["usage"]["completion_tokens"] == 6
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    contents = [c["choices"][0]["delta"].get("content") for c in chunks[1:-1]]
    assert len(contents) == 6
    assert all(contents)
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


async def test_without_being_asked_it_reports_no_usage_and_neither_does_it_when_told_not_to() -> None:
    async with serving() as url:
        assert not any("usage" in e for e in (await events(url, body()))[:-1])
    async with serving("--usage=off") as url:
        assert not any("usage" in e for e in (await events(url, body(stream_options={"include_usage": True})))[:-1])


async def test_tokens_can_come_in_bundles() -> None:
    async with serving("--tokens-per-chunk=3") as url:
        found = await events(url, body(tokens=6))
    contents = [e["choices"][0]["delta"].get("content") for e in found[1:-2]]
    assert [len(text.split()) for text in contents] == [3, 3]


async def test_an_answer_in_one_piece_says_the_same_as_the_stream() -> None:
    async with serving() as url:
        assert (await asked(url, body(stream=False))).text == (await asked(url, body())).text != ""


async def test_ten_times_the_prompt_takes_about_ten_times_as_long_to_the_first_token() -> None:
    async with serving("--speed=1") as url:

        async def shortest(words: int) -> float:
            return min([(await asked(url, body(words=words))).ttft_s or 0.0 for _ in range(3)])

        short, long = await shortest(60), await shortest(600)
    assert long > 0.28
    assert 3 < long / short < 15


async def test_a_prefix_cache_makes_the_second_turn_start_sooner_and_says_how_much_was_cached() -> None:
    took = []
    async with serving("--speed=1", "--prefix-cache=on") as url:
        for customer in ("one", "two", "three"):
            again = body(words=400, first=customer, stream_options={"include_usage": True})
            first = await asked(url, again)
            again["messages"] += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "w w w"}]
            begun = time.monotonic()
            usage = (await events(url, again))[-2]["usage"]
            took.append(time.monotonic() - begun)
            assert usage["prompt_tokens_details"]["cached_tokens"] == 384
            assert first.ttft_s is not None
            assert first.ttft_s > 0.15
    assert min(took) < 0.15


@pytest.mark.parametrize(
    ("option", "failure"),
    [
        ("--error-rate=1", "HTTP500"),
        ("--busy-rate=1", "HTTP429"),
        ("--cut-rate=1", "ClientPayloadError"),
        ("--stream-error-rate=1", "StreamError"),
        ("--stall-rate=1", "Timeout"),
        ("--empty-rate=1", "Empty"),
    ],
)
async def test_every_fault_is_seen_by_the_client_as_what_it_is(option: str, failure: str) -> None:
    async with serving(option) as url:
        assert (await asked(url, body(), patience=0.5)).failure == failure


async def test_only_the_longest_prompts_are_dropped() -> None:
    async with serving("--drop-longest-over=100") as url:
        assert (await asked(url, body(words=90))).failure is None
        assert (await asked(url, body(words=110), patience=0.4)).failure == "Timeout"


async def test_a_share_of_faults_hits_that_share_and_the_same_prompts_each_time() -> None:
    async with serving("--error-rate=0.3") as url:

        async def hit() -> list[bool]:
            answers = [await asked(url, body(words=5, tokens=1, first=f"p{i}")) for i in range(100)]
            return [answer.failure is not None for answer in answers]

        first, second = await hit(), await hit()
    assert first == second
    assert 15 <= sum(first) <= 45


async def test_a_client_that_leaves_makes_room_for_the_next() -> None:
    async with serving("--speed=1", "--slots=1", "--decode-ms=20") as url:
        gone = asyncio.create_task(asked(url, body(tokens=1_000)))
        await asyncio.sleep(0.2)
        gone.cancel()
        await gone
        answer = await asked(url, body(tokens=2), patience=2)
    assert answer.failure is None


async def test_what_is_no_request_is_refused() -> None:
    async with serving() as url, aiohttp.ClientSession() as session, session.post(url + PATH, data=b"{") as response:
        assert response.status == 400


async def test_it_is_ready_when_it_was_told_to_be() -> None:
    async def health(*options: str) -> int:
        async with (
            serving(*options) as url,
            aiohttp.ClientSession() as session,
            session.get(url + "/health") as response,
        ):
            return response.status

    assert await health() == 200
    assert await health("--ready-after=60") == 503
    assert await health("--ready-after=-1") == 503


def test_the_environment_sets_options_and_the_command_line_wins() -> None:
    found = arguments(["--slots=3"], {"SLOTS": "9", "DROP_LONGEST_OVER": "400", "HOME": "/"})
    assert (found.slots, found.drop_longest_over) == (3, 400)


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SystemExit):
        arguments(["--drop-shortest=1"], {})
