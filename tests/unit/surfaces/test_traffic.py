"""The generator as a program: its summary is true, every failure is logged with its time."""

import asyncio
import json
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from examples.traffic.__main__ import Tally, arguments
from examples.traffic.client import Answer, ask
from tests.unit.surfaces.test_simulator import serving

pytestmark = pytest.mark.surfaces

NOW = datetime(2030, 1, 1, tzinfo=UTC)


async def started(url: str, *options: str) -> asyncio.subprocess.Process:
    line = ["-m", "examples.traffic", "--url", url, "--prompt-max=50", "--answer-tokens=3", "--rate=40", *options]
    return await asyncio.create_subprocess_exec(sys.executable, *line, stdout=asyncio.subprocess.PIPE)


async def ended(process: asyncio.subprocess.Process) -> tuple[int, dict[str, Any]]:
    """Exit status and summary."""
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode is not None
    return process.returncode, json.loads(out.decode().strip().splitlines()[-1])


async def test_a_run_without_failures_ends_with_zero_and_a_summary(tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    async with serving("--slots=64") as url:
        code, told = await ended(await started(url, "--duration=1.5", f"--summary={summary}"))
    assert code == 0
    assert told["sent"] == told["ok"] > 10
    assert told["failed"] == told["in_flight"] == 0
    assert json.loads(summary.read_text()) == told


async def test_every_failure_is_counted_logged_with_its_time_and_ends_with_one(tmp_path: Path) -> None:
    log = tmp_path / "failures.jsonl"
    async with serving("--error-rate=0.4", "--slots=64") as url:
        code, told = await ended(await started(url, "--duration=1.5", f"--failures={log}"))
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    assert code == 1
    assert told["failed"] == told["failures"]["HTTP500"] == len(logged) > 0
    assert told["sent"] == told["ok"] + told["failed"]
    assert all(datetime.fromisoformat(entry["sent"]) <= datetime.fromisoformat(entry["time"]) for entry in logged)


async def test_sigterm_lets_open_requests_finish_and_prints_the_summary() -> None:
    asked = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.sleep(2)
        return web.json_response({"choices": [{"message": {"content": "word"}}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    async with TestServer(app) as server:
        process = await started(str(server.make_url("")).rstrip("/"), "--no-stream", "--grace=10")
        await asyncio.wait_for(asked.wait(), 30)
        await asyncio.sleep(0.3)  # for some more, none of which has an answer yet
        process.send_signal(signal.SIGTERM)
        code, told = await ended(process)
    assert code == 0
    assert told["ok"] == told["sent"] > 0


async def test_a_request_without_an_answer_after_the_grace_counts_as_failed() -> None:
    async with serving("--stall-rate=1") as url:
        code, told = await ended(await started(url, "--duration=0.7", "--grace=0.3"))
    assert code == 2
    assert told["failures"] == {"Abandoned": told["sent"]}


async def test_nobody_there_is_a_failure_not_a_retry() -> None:
    code, told = await ended(await started("http://127.0.0.1:9", "--duration=0.5"))
    assert code == 2
    assert told["failures"] == {"ClientConnectorError": told["sent"]}


async def test_answers_are_as_short_and_as_long_as_they_are_asked_to_be() -> None:
    asked: list[int] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((await request.json())["max_tokens"])
        return web.json_response({"choices": [{"message": {"content": "word"}}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        await ended(await started(url, "--duration=1.5", "--no-stream", "--answer-min=2"))
    assert set(asked) == {2, 3}


@pytest.mark.parametrize("shortest", [0, 17])
def test_a_shortest_answer_that_is_longer_than_the_longest_is_refused(
    shortest: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        arguments(["--url=http://x", f"--answer-min={shortest}"])
    assert f"--answer-min {shortest}" in capsys.readouterr().err


@pytest.mark.parametrize(("last", "connections"), [(False, 1), (True, 3)])
async def test_a_connection_is_kept_until_its_last_request(last: bool, connections: int) -> None:
    """Customers who never closed one would never meet an Envoy that came later."""
    met = set()

    async def answer(request: web.Request) -> web.Response:
        met.add(request.transport and request.transport.get_extra_info("peername"))
        return web.json_response({"choices": [{"message": {"content": "word"}}]})

    app = web.Application()
    app.router.add_post("/", answer)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        for _ in range(3):
            assert (await ask(session, str(server.make_url("/")), {"stream": False}, "x", last=last)).failure is None
    assert len(met) == connections


def test_a_tally_keeps_the_first_and_the_last_failure() -> None:
    tally = Tally(sent=3, in_flight=3)
    tally.count(Answer(failure="Timeout"), NOW)
    tally.count(Answer(text="x", ttft_s=0.5), NOW)
    tally.count(Answer(failure="Empty"), NOW.replace(minute=1))
    assert (tally.ok, tally.failed, tally.in_flight) == (1, 2, 0)
    assert tally.first_failure < tally.last_failure
    assert tally.line() == "sent 3  ok 1  failed 2  open 0  first token p50 0.50 s, p95 0.50 s"


def test_the_url_is_required() -> None:
    with pytest.raises(SystemExit):
        arguments([])
