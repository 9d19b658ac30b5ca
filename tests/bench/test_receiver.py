"""What the latency bench puts in the mirror's place does what the name of its row says."""

import json
from pathlib import Path

import pytest

from tests.bench.envoy import captures
from tests.bench.load_program import engine, turns
from tests.bench.receiver import receiver
from tests.integration.capture.faults import SIXTY_MB
from tests.integration.capture.harness import Capture, Client, capture_on_free_ports, directive, until
from tests.ports import free_ports

pytestmark = pytest.mark.mirror

COPIES = 20
CUT_AFTER = 64 << 10
"""Bytes of an answer that Envoy takes for a copy; it closes the connection on one that is longer."""


async def test_the_receiver_of_sixty_megabytes_answers_them_all() -> None:
    (port,) = free_ports(1)
    async with receiver("answers-60-MB", port):
        client = Client(port)
        answered = await client.request()
        client.close()
    assert answered.status == 200
    assert len(answered.body) == SIXTY_MB


async def test_each_copy_meets_that_answer_and_no_customer_fails(tmp_path: Path) -> None:
    capture = capture_on_free_ports(tmp_path)
    async with (
        engine(first_s=0) as primary,
        receiver("answers-60-MB", capture.mirror_port),
    ):
        capture.primary_port = primary.port
        async with captures(capture, CUT_AFTER), turns([capture.customers], stream="false") as client:
            await capture.follow(directive(max_body_bytes=CUT_AFTER))
            turn = await client.take(0, COPIES, rate=50)
            await until(capture.is_quiet, 10.0)
            assert turn.failed == 0
            assert len(turn.times) == COPIES
            assert await copies_stat(capture, "upstream_rq_total") == COPIES
            assert await copies_stat(capture, "upstream_cx_rx_bytes_total") >= COPIES * CUT_AFTER


async def copies_stat(capture: Capture, name: str) -> int:
    (stat,) = json.loads(await capture.admin(f"/stats?format=json&filter=^cluster.copies.{name}$"))["stats"]
    return int(stat["value"])
