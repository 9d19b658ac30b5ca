"""A capture pod is ready when customers can get through it to the primary, and not before."""

import asyncio
from pathlib import Path

import pytest

from tests.integration.capture.harness import Client, capture_on_free_ports, primary, until

pytestmark = pytest.mark.path


async def test_an_envoy_that_knows_no_address_of_the_primary_is_not_ready(tmp_path: Path) -> None:
    capture = capture_on_free_ports(tmp_path)
    capture.primary_host = "chat.no-such-namespace.invalid"
    try:
        await capture.launch()

        async def live() -> bool:
            return b"LIVE" in await capture.admin("/ready")

        async def admin_answers() -> bool:
            try:
                return await live()
            except OSError:
                return False

        await until(admin_answers, 40.0)  # name servers that do not answer are given a while
        for _ in range(20):
            assert not await capture.is_ready()
            await asyncio.sleep(0.05)
        assert await live()
    finally:
        await capture.stop()


async def test_a_name_that_leads_to_the_primary_is_enough_though_nobody_listens_yet(tmp_path: Path) -> None:
    """A primary that restarts must not take capture out of the endpoints."""
    capture = capture_on_free_ports(tmp_path)
    capture.primary_host = "localhost"
    try:
        await capture.start()
        client = Client(capture.customers)
        assert (await client.request()).status == 503
        to_primary = await primary(capture.primary_port).start()
        assert (await client.request()).status == 200
        client.close()
        await to_primary.stop()
        assert await capture.is_ready()
    finally:
        await capture.stop()
