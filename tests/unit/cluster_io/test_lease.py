"""Of several replicas at most one acts at any instant, and another takes over when it stops renewing."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from shadowrun_operator.cluster.client import ApiRefusal, ApiUnreachable
from shadowrun_operator.cluster.lease import ACT_S, LEASE_S, RENEW_S, TRY_S, Lease
from shadowrun_operator.manifests.names import Manifest

pytestmark = pytest.mark.operator


class Leases:
    """One Lease on an API server. `before` is called before every call, and may let time pass or others act."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.version = 0
        self.stored: Manifest | None = None
        self.before: Callable[[], None] = lambda: None
        self.down = False

    def _called(self) -> None:
        self.before()
        if self.down:
            raise ApiUnreachable("no answer")

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        self._called()
        return self.stored

    async def create(self, manifest: Manifest) -> Manifest | None:
        self._called()
        return None if self.stored is not None else self._store(manifest)

    async def replace(self, manifest: Manifest) -> Manifest:
        self._called()
        if manifest["metadata"]["resourceVersion"] != str(self.version):
            raise ApiRefusal(409, "Conflict", "the object has been modified")
        return self._store(manifest)

    def _store(self, manifest: Manifest) -> Manifest:
        self.version += 1
        meta = {**manifest["metadata"], "resourceVersion": str(self.version)}
        self.stored = {**manifest, "metadata": meta}
        return self.stored


def _replica(server: Leases, pod: str) -> Any:
    """Its clock shows another time than its neighbour's."""
    offset = random.Random(pod).uniform(-1e6, 1e6)
    return Lease(server, "system", "operator", pod, clock=lambda: server.now + offset)  # type: ignore[arg-type]


def test_the_times_leave_a_span_in_which_nobody_acts() -> None:
    assert RENEW_S + 2 * TRY_S <= ACT_S < LEASE_S


async def test_the_first_one_acts_and_the_other_stands_by_as_long_as_it_renews() -> None:
    server = Leases()
    first, second = _replica(server, "a"), _replica(server, "b")
    assert await first._tried()
    for _ in range(100):
        server.now += RENEW_S
        assert await first._tried()
        assert not await second._tried()
        assert (first.is_held(), second.is_held()) == (True, False)


async def test_a_dead_one_is_replaced_within_the_length_of_the_lease_and_not_before_it_had_to_stop() -> None:
    server = Leases()
    first, second = _replica(server, "a"), _replica(server, "b")
    assert await first._tried()
    assert not await second._tried()
    waited = 0.0
    while not await second._tried():
        server.now += RENEW_S
        waited += RENEW_S
        assert not (second.is_held() and first.is_held())
    assert ACT_S < waited <= LEASE_S + RENEW_S
    assert (first.is_held(), second.is_held()) == (False, True)
    assert not await first._tried()


async def test_one_that_gives_up_is_replaced_at_once() -> None:
    server = Leases()
    first, second = _replica(server, "a"), _replica(server, "b")
    assert await first._tried()
    await first.give_up()
    assert not first.is_held()
    assert await second._tried()
    await first.give_up()
    assert second.is_held()
    assert server.stored is not None
    assert server.stored["spec"]["holderIdentity"] == second.holder


async def test_without_an_api_server_the_holder_stops_acting_by_itself() -> None:
    server = Leases()
    first = _replica(server, "a")
    assert await first._tried()
    server.down = True
    server.now += ACT_S - 0.1
    assert not await first._tried()
    assert first.is_held()
    server.now += 0.1
    assert not first.is_held()
    server.down = False
    assert await first._tried(), "nobody else has taken it"


async def test_an_answer_that_comes_late_counts_from_when_it_was_asked_for() -> None:
    server = Leases()
    first = _replica(server, "a")

    def slow() -> None:
        server.now += ACT_S / 2

    server.before = slow
    assert await first._tried()
    assert not first.is_held()


async def test_a_container_that_starts_anew_in_the_same_pod_is_another_holder() -> None:
    server = Leases()
    first, again = _replica(server, "a"), _replica(server, "a")
    assert await first._tried()
    assert not await again._tried()


@given(seed=st.integers(0, 100_000))
@settings(max_examples=300, deadline=None)
def test_never_two_at_once_whatever_the_network_and_the_clocks_do(seed: int) -> None:
    dice = random.Random(seed)
    server = Leases()
    replicas = [_replica(server, pod) for pod in "abc"]
    depth = 0
    held = 0

    def alone() -> None:
        nonlocal held
        acting = sum(replica.is_held() for replica in replicas)
        assert acting <= 1
        held += acting

    def something_happens() -> None:
        """Time passes within a call, the network fails, or another replica tries meanwhile."""
        nonlocal depth
        server.now += dice.choice([0.0, 0.01, 0.5, 3.0])
        server.down = dice.random() < 0.1
        alone()
        if depth < 2 and dice.random() < 0.3:
            depth += 1
            attempt(dice.choice(replicas))
            depth -= 1
            server.down = False

    def attempt(replica: Any) -> None:
        """One attempt, without an event loop: nothing in it really waits."""
        coroutine = replica._taken()
        try:
            coroutine.send(None)
        except StopIteration:
            pass
        except (ApiRefusal, ApiUnreachable):
            pass
        else:
            raise AssertionError("it waited")

    server.before = something_happens
    for _ in range(120):
        attempt(dice.choice(replicas))
        alone()
        server.now += dice.choice([0.1, 2.0, 2.0, 6.0, 20.0])
        alone()
    assert held, "somebody acted now and then"


async def test_it_is_lost_at_its_deadline_whatever_a_renewal_waits_for() -> None:
    server = Leases()
    loop = asyncio.get_running_loop()
    held: Any = Lease(server, "system", "operator", "a", act_s=0.3, renew_s=0.05, clock=loop.time)  # type: ignore[arg-type]
    begun = loop.time()
    assert await held._tried()

    async def hangs(*_: str) -> None:
        await asyncio.sleep(60)

    server.get = hangs  # type: ignore[method-assign, assignment]
    await asyncio.wait_for(held.lost(), 3)
    assert 0.3 <= loop.time() - begun < 2.0, "not when the attempt is given up, which is later"
    assert not held.is_held()
