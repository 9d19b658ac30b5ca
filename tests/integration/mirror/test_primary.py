"""What the primary made of the originals, as a real Envoy logs it and as anybody may send it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from shadowrun_mirror.capture.outcome_file import OutcomeFile
from shadowrun_mirror.capture.outcome_log import MAX_BATCH_BYTES
from shadowrun_mirror.capture.telling import Telling
from shadowrun_mirror.evidence import Evidence, PrimaryEvidence
from yarl import URL

from tests.integration.capture.harness import (
    Capture,
    Client,
    Message,
    Peer,
    answer,
    directive,
    read_body,
    request_bytes,
    running_capture,
    until,
)
from tests.integration.mirror.engine import answers
from tests.integration.mirror.rig import TOKEN, Rig, rig

pytestmark = pytest.mark.mirror

BODY = b'{"model":"m","messages":[]}'


async def as_told(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """The primary answers with the status the request asks for, after the time it asks for."""
    await read_body(reader, head)
    await asyncio.sleep(float(head.header("x-delay") or 0))
    status = head.header("x-status") or "200"
    if status == "none":
        return False
    await answer(writer, f"{status} As Told", [("content-type", "application/json")], b"{}")
    return True


@asynccontextmanager
async def live_traffic(folder: Path) -> AsyncIterator[tuple[Capture, Rig]]:
    """Real capture in front of a primary, and a replica that gets its copies and is told of its log."""
    async with (
        running_capture(folder) as capture,
        rig(answers(), answers(), data_port=capture.mirror_port, run_uid="run-1") as mirror,
        aiohttp.ClientSession() as http,
    ):
        primary = await Peer(capture.primary_port, as_told).start()
        url = URL(f"http://127.0.0.1:{mirror.replica.control_port}")
        telling = Telling(OutcomeFile(capture.outcome_log), url, TOKEN, http, print)
        tells = asyncio.create_task(telling.run())
        try:
            await capture.follow(directive(threshold=0))
            yield capture, mirror
        finally:
            tells.cancel()
            await asyncio.gather(tells, return_exceptions=True)
            await primary.stop()


def of_primary(evidence: Evidence) -> PrimaryEvidence:
    (counted,) = evidence.windows[1].classes.values()
    return counted.primary


async def ask(capture: Capture, *headers: tuple[str, str]) -> int:
    client = Client(capture.customers)
    try:
        return (await client.request(headers, BODY)).status
    finally:
        client.close()


async def test_every_outcome_of_the_primary_is_counted_with_its_pair(tmp_path: Path) -> None:
    async with live_traffic(tmp_path) as (capture, mirror):
        for status in ("200", "200", "404", "503"):
            assert await ask(capture, ("x-status", status)) == int(status)
        assert await ask(capture, ("x-delay", "0.3")) == 200
        assert await ask(capture, ("x-status", "none")) in (502, 503)
        impatient = Client(capture.customers)
        await impatient.send(request_bytes([("x-delay", "5")], BODY))
        await asyncio.sleep(0.2)
        impatient.close()

        async def said() -> bool:
            return of_primary(await mirror.settled()).cut.requests > 0

        await until(said, 10)
        evidence = await mirror.settled()
        text = await mirror.metrics()
    primary = of_primary(evidence)
    amounts = {kind: getattr(primary, kind).requests for kind in ("answered", "refused", "failed", "cut")}
    assert amounts == {"answered": 3, "refused": 1, "failed": 2, "cut": 1}
    assert primary.answered.bytes == 3 * len(BODY)
    assert 5 <= primary.first_byte.count <= 6
    assert 0.3 <= primary.first_byte.quantile(1.0) <= 2.0
    assert 'shadowrun_mirror_primary_outcomes_total{outcome="answered"} 3.0' in text


def record(request_id: str, **changes: Any) -> bytes:
    usual = {"status": 200, "flags": "-", "first_byte_us": 1000, "run": "run-uid"}
    return json.dumps({"id": request_id, **usual, **changes}).encode()


async def tell(mirror: Rig, *lines: bytes) -> int:
    return (await mirror.control("POST", "/outcomes", content=b"\n".join(lines))).status_code


async def test_a_line_counts_whether_it_comes_before_or_after_its_copy_or_its_end() -> None:
    async with rig(answers(delay_s=0.2), answers()) as mirror:
        assert await tell(mirror, record("early")) == 204
        for name in ("early", "during", "late", "never"):
            await mirror.copy(headers={"x-request-id": name})
        await tell(mirror, record("during", status=500))
        await mirror.settled()
        await tell(mirror, record("late", status=0, flags="DC"), record("unknown"), record("late"))
        primary = of_primary(await mirror.settled())
    assert (primary.answered.requests, primary.failed.requests, primary.cut.requests) == (1, 1, 1)
    assert primary.refused.requests == 0


async def test_of_several_mirrors_each_joins_its_own_pairs() -> None:
    async with rig(answers(), answers()) as one, rig(answers(), answers()) as other:
        await one.copy(headers={"x-request-id": "a"})
        await other.copy(headers={"x-request-id": "b"})
        for mirror in (one, other):
            await tell(mirror, record("a"), record("b", status=404))
        mine, others = [of_primary(await mirror.settled()) for mirror in (one, other)]
    assert (mine.answered.requests, mine.refused.requests) == (1, 0)
    assert (others.answered.requests, others.refused.requests) == (0, 1)


async def test_only_who_has_the_token_may_tell_and_only_so_much() -> None:
    async with rig(answers(), answers()) as mirror:
        await mirror.copy(headers={"x-request-id": "a"})
        denied = await mirror.control("POST", "/outcomes", token="wrong", content=record("a"))
        assert denied.status_code == 401
        assert await tell(mirror, record("a"), b"x" * MAX_BATCH_BYTES) == 413
        assert await tell(mirror, b"GET / HTTP/1.1", record("other", run="another"), record("a")[:30]) == 204
        assert not of_primary(await mirror.settled()).answered.requests
        assert await tell(mirror, record("a")) == 204
        assert of_primary(await mirror.settled()).answered.requests == 1
        text = await mirror.metrics()
    assert 'shadowrun_mirror_refused_total{reason="log_record"} 2.0' in text
    assert 'shadowrun_mirror_refused_total{reason="other_run"} 1.0' in text
