"""Two operators and one Lease on a real API server: never two at once, and another within the length of the lease."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator

import pytest
from shadowrun_operator.cluster.client import Cluster
from shadowrun_operator.cluster.lease import Lease

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

LEASE_S = 12


@pytest.fixture
async def name(api: Cluster) -> AsyncIterator[str]:
    one = f"operator-{uuid.uuid4().hex[:8]}"
    yield one
    await api.delete("Lease", "default", one)


async def test_a_standby_takes_over_when_the_other_dies_and_at_once_when_it_gives_up(api: Cluster, name: str) -> None:
    first, second, third = (
        Lease(api, "default", name, pod, lease_s=LEASE_S, act_s=LEASE_S / 2, renew_s=0.5) for pod in ("a", "b", "c")
    )
    await asyncio.wait_for(first.acquired(), 10)
    keeps = asyncio.create_task(first.lost())
    waits = asyncio.create_task(second.acquired())
    await asyncio.sleep(1.2 * LEASE_S)
    assert first.is_held()
    assert not waits.done()
    keeps.cancel()
    died = time.monotonic()
    await asyncio.wait_for(waits, 3 * LEASE_S)
    assert not first.is_held(), "it had to stop before"
    assert time.monotonic() - died > LEASE_S / 2
    await second.give_up()
    await asyncio.wait_for(third.acquired(), 10)
    assert (first.is_held(), second.is_held(), third.is_held()) == (False, False, True)


async def test_of_many_that_try_at_once_one_acts(api: Cluster, name: str) -> None:
    replicas = [Lease(api, "default", name, f"pod-{i}", lease_s=LEASE_S, act_s=LEASE_S / 2) for i in range(8)]
    await asyncio.gather(*(replica._tried() for replica in replicas))
    assert [replica.is_held() for replica in replicas].count(True) == 1
