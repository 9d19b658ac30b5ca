"""What the primary made of the originals, as a real Envoy logs it and as anybody may send it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from shadowrun_mirror.capture.outcome_log import LOG_TAG
from shadowrun_mirror.evidence import Evidence, PrimaryEvidence
from shadowrun_mirror.primary import MAX_CONNECTIONS, MAX_MESSAGE_BYTES

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
from tests.integration.mirror.engine import answers, hangs
from tests.integration.mirror.rig import Rig, rig

pytestmark = pytest.mark.mirror

pack = msgspec.msgpack.encode
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
    """Real capture in front of a primary, and a replica that gets its copies and its log."""
    async with running_capture(folder) as capture:
        data_port, log_port = capture.mirror_port, capture.log_port
        async with rig(answers(), answers(), data_port=data_port, log_port=log_port, run_uid="run-1") as mirror:
            primary = await Peer(capture.primary_port, as_told).start()
            try:
                await capture.follow(directive(threshold=0))
                yield capture, mirror
            finally:
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


def forward(*records: dict[str, Any]) -> bytes:
    return pack([LOG_TAG, [[1, each] for each in records]])


def record(request_id: str, **changes: Any) -> dict[str, Any]:
    usual = {"status": 200, "flags": "-", "first_byte_us": 1000, "run": "run-uid", "route": "sampled-1"}
    return {"id": request_id, **usual, **changes}


async def write(mirror: Rig, *pieces: bytes, wait_s: float = 0.1) -> bool:
    """Send to the log port; whether the connection was still there afterwards."""
    reader, writer = await asyncio.open_connection("127.0.0.1", mirror.replica.log_port)
    with contextlib.suppress(ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
    try:
        await asyncio.wait_for(reader.read(1), wait_s)
    except TimeoutError:
        return True
    except ConnectionError:
        return False
    finally:
        writer.close()
    return False


async def test_a_log_line_counts_whether_it_comes_before_or_after_its_copy_or_its_end() -> None:
    async with rig(answers(delay_s=0.2), answers()) as mirror:
        await write(mirror, forward(record("early")))
        for name in ("early", "during", "late", "never"):
            await mirror.copy(headers={"x-request-id": name})
        await write(mirror, forward(record("during", status=500)))
        await mirror.settled()
        whole = forward(record("late", status=0, flags="DC"), record("unknown"))
        await write(mirror, *(bytes([byte]) for byte in whole[:20]), whole[20:] + forward(record("late")))
        primary = of_primary(await mirror.settled())
    assert (primary.answered.requests, primary.failed.requests, primary.cut.requests) == (1, 1, 1)
    assert primary.refused.requests == 0


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\xc1",
        b"\xdb\x7f\xff\xff\xff" + b"x" * 1000,
        pack(["another", []]),
        pack([LOG_TAG, "x" * MAX_MESSAGE_BYTES]),
        b"\x91" * 100_000 + b"\0",
        b"\xdd\xff\xff\xff\xff" * 400_000,
    ],
)
async def test_what_is_no_log_costs_its_connection_and_nothing_else(data: bytes) -> None:
    async with rig(answers(), answers()) as mirror:
        assert not await write(mirror, data, wait_s=5)
        await write(mirror, forward(record("one")))
        assert (await mirror.copy(headers={"x-request-id": "one"})).status_code == 202
        primary = of_primary(await mirror.settled())
        text = await mirror.metrics()
        assert not mirror.replica.outcomes.connections
    assert primary.answered.requests == 1
    assert 'shadowrun_mirror_refused_total{reason="log"} 1.0' in text


async def test_connections_to_the_log_are_bounded() -> None:
    async with rig(hangs, hangs) as mirror:
        writers = [
            (await asyncio.open_connection("127.0.0.1", mirror.replica.log_port))[1] for _ in range(MAX_CONNECTIONS + 3)
        ]
        await asyncio.sleep(0.1)
        assert len(mirror.replica.outcomes.connections) == MAX_CONNECTIONS
        text = await mirror.metrics()
        for writer in writers:
            writer.close()
    assert 'shadowrun_mirror_refused_total{reason="connections"} 3.0' in text
