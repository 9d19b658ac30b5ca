"""Copying pauses when the clock says so, and customers are counted apart in pauses and outside of them."""

import asyncio
import time
from itertools import pairwise
from pathlib import Path

import pytest
from shadowrun_mirror.capture.pauses import is_paused
from shadowrun_mirror.config import MODULO, Pauses
from shadowrun_mirror.evidence import Amount, LivePath

from tests.integration.capture.companions import companioned
from tests.integration.capture.harness import (
    PATH,
    Capture,
    Client,
    Control,
    Message,
    answer,
    directive,
    running_scene,
    until,
)
from tests.ports import free_ports

pytestmark = pytest.mark.path

SLOT_S = 2
SLOTS = 5
HALF = Pauses(share=MODULO // 2, slot_s=SLOT_S)


def changing_seed(now: float) -> int:
    """A seed under which the next slots alternate: those of the test, after as many in which Envoy may still start."""
    first = int(now // SLOT_S) + 1
    for seed in range(10_000):
        drawn = [is_paused(HALF, seed, (first + slot) * SLOT_S) for slot in range(2 * SLOTS)]
        if all(one != two for one, two in pairwise(drawn)):
            return seed
    raise AssertionError("no seed")


async def test_a_pause_begins_and_ends_within_a_second_of_its_slot(tmp_path: Path) -> None:
    seed = changing_seed(time.time())
    control = Control(free_ports(1)[0], directive(seed=seed, pauses=HALF, lease_s=60.0))
    async with companioned(tmp_path, control) as (capture, _, to_mirror):
        client = Client(capture.customers)
        sent: list[tuple[float, float]] = []  # when each request was sent and answered
        ends = (time.time() // SLOT_S + SLOTS) * SLOT_S
        while (started := time.time()) < ends:
            await client.request([("x-conversation-id", f"c{len(sent)}")])
            sent.append((started, time.time()))
            await asyncio.sleep(0.03)
        client.close()
        await asyncio.sleep(0.5)
        ids = {copy.header("x-conversation-id") for copy in to_mirror.received}
        seen = [(*times, f"c{number}" in ids) for number, times in enumerate(sent)]
        assert sum(one[2] != two[2] for one, two in pairwise(seen)) >= SLOTS - 2
        for started, done, copied in seen:
            settled = started % SLOT_S >= 1.0 and started // SLOT_S == done // SLOT_S
            assert not settled or copied != is_paused(HALF, seed, started), started
        wrong = [started for started, _, copied in seen if copied == is_paused(HALF, seed, started)]
        assert len(wrong) < len(seen) / 4  # at the very edge rather than a second later, as a rule
        window = (await capture.evidence()).windows[1]
        assert window.sampled.requests + window.paused.requests == len(seen)
        assert window.paused.requests == sum(not copied for _, _, copied in seen)
        assert (await capture.evidence()).copying  # a pause is not the end of copying


async def misbehaves(head: Message, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    how = head.header("x-how")
    if how == "late":
        await asyncio.sleep(1.0)
        await answer(writer, "200 OK", [])
        return True
    if how == "error":
        await answer(writer, "502 Broken", [])
        return True
    if how == "refuses":
        await answer(writer, "404 Nope", [])
        return True
    if how == "cut":
        await answer(writer, "200 OK", [("Content-Length", "1000")], b"only this")
        return False
    if how == "hangs":
        await asyncio.sleep(30)
    return False  # "silent": the connection ends without an answer


async def live_path(capture: Capture, *, paused: bool, requests: int) -> LivePath:
    async def counted() -> bool:
        window = (await capture.evidence()).windows[1]
        return (window.off if paused else window.on).requests >= requests

    await until(counted, 5.0)
    window = (await capture.evidence()).windows[1]
    return window.off if paused else window.on


@pytest.mark.parametrize("paused", [True, False])
async def test_requests_that_ended_are_counted_with_their_first_byte_and_their_errors(
    paused: bool, tmp_path: Path
) -> None:
    async with running_scene(tmp_path) as (capture, to_primary, to_mirror):
        to_primary.behaviour = to_primary.keeping(misbehaves)
        told = directive(pauses=HALF, max_body_bytes=100)
        await capture.follow(told, paused=paused)
        client = Client(capture.customers)
        for how, status in (("late", 200), ("late", 200), ("late", 200), ("error", 502), ("refuses", 404)):
            assert (await client.request([("x-how", how)])).status == status
        assert (await client.request([("x-how", "late")], b"x" * 1000)).status == 200  # too large to be copied
        assert (await client.request([("x-how", "error")], path="/other")).status == 502  # not in scope
        silent = Client(capture.customers)
        assert (await silent.request([("x-how", "silent")])).status == 503
        silent.close()
        cut = Client(capture.customers)
        with pytest.raises(asyncio.IncompleteReadError):
            await cut.request([("x-how", "cut")])
        cut.close()
        left = Client(capture.customers)
        await left.send(f"POST {PATH} HTTP/1.1\r\nHost: a\r\nx-how: hangs\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        await asyncio.sleep(0.2)
        left.close()  # a customer who gives up before the answer has met no error
        got = await live_path(capture, paused=paused, requests=9)
        assert (got.requests, got.errors) == (9, 3)
        assert got.first_byte.count == 8
        assert got.first_byte.quantile(0.5) < 0.5 < 0.95 < got.first_byte.quantile(0.75) < 2.0
        window = (await capture.evidence()).windows[1]
        assert (window.on if paused else window.off) == LivePath()
        assert (window.paused if paused else window.sampled + window.oversized) == Amount(requests=9, bytes=1016)
        assert len(to_mirror.received) == (0 if paused else 8)
        client.close()
        assert "non-number" not in (capture.folder / "envoy.log").read_text()
