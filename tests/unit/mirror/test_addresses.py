import asyncio
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.addresses import Addresses, chosen, seated

pytestmark = pytest.mark.mirror


class Names:
    """A name service that counts how often it is asked."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.asked = 0
        self.holding = asyncio.Event()
        self.holding.set()

    async def __call__(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked += 1
        await asyncio.sleep(0)
        await self.holding.wait()
        if not self.addresses:
            raise socket.gaierror("unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self.addresses]


async def settled() -> None:
    """Let lookups in the background end, if they can."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def now() -> list[float]:
    return [100.0]


class Arm:
    """An arm whose pods come and go; where each of some conversations goes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *pods: str) -> None:
        self.names = Names(*pods)
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self.names)
        self.now = 100.0
        self.addresses = Addresses(lambda: self.now)

    async def homes(self, *pods: str) -> dict[int, str]:
        """With these pods from now on."""
        self.names.addresses = pods or self.names.addresses
        self.now += 6.0
        await self.addresses.one("arm", 80)
        await settled()
        return {place: await self.addresses.one("arm", 80, place) for place in range(400)}


PODS = ("10.0.0.3", "10.0.0.1", "10.0.0.2", "10.0.0.4")


@pytest.mark.parametrize("gone", PODS)
@pytest.mark.parametrize("new", ["10.0.0.0", "10.0.0.9"])
async def test_when_a_pod_is_replaced_no_conversation_of_another_pod_moves(
    monkeypatch: pytest.MonkeyPatch, gone: str, new: str
) -> None:
    arm = Arm(monkeypatch, *PODS)
    before = await arm.homes()
    assert min(list(before.values()).count(pod) for pod in PODS) > 60
    left = tuple(pod for pod in PODS if pod != gone)
    without = await arm.homes(*left)
    assert set(without.values()) == set(left)
    assert all(without[place] == home for place, home in before.items() if home != gone)
    after = await arm.homes(new, *left)
    assert after == {place: new if home == gone else home for place, home in before.items()}


async def test_a_pod_that_leaves_for_a_while_gets_its_conversations_back(monkeypatch: pytest.MonkeyPatch) -> None:
    arm = Arm(monkeypatch, *PODS)
    before = await arm.homes()
    await arm.homes(*PODS[1:])
    assert await arm.homes(*reversed(PODS)) == before


async def test_a_pod_more_takes_its_share_and_moves_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    arm = Arm(monkeypatch, *PODS)
    before = await arm.homes()
    after = await arm.homes("10.0.0.0", *PODS)
    moved = [home for place, home in after.items() if home != before[place]]
    assert set(moved) == {"10.0.0.0"}
    assert 40 < len(moved) < 120


@given(st.lists(st.sets(st.sampled_from("abcdefgh"), min_size=1), min_size=1, max_size=12))
def test_every_address_has_one_seat_and_keeps_it_while_it_is_there(lookups: list[set[str]]) -> None:
    seats: list[str] = []
    there: set[str] = set()
    for found in lookups:
        after = seated(seats, list(found))
        assert found <= set(after)
        assert len(set(after)) == len(after) <= max(map(len, lookups))
        assert all(after.index(address) == seats.index(address) for address in found & there)
        seats, there = after, found


@given(st.integers(0, 2**64 - 1), st.integers(1, 16))
def test_when_one_more_receiver_comes_nobody_moves_but_to_it(place: int, count: int) -> None:
    assert chosen(place, range(count + 1)) in (chosen(place, range(count)), count)


async def test_a_name_is_looked_up_once_per_ttl_however_many_ask(
    monkeypatch: pytest.MonkeyPatch, now: list[float]
) -> None:
    names = Names("10.0.0.1")
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names)
    addresses = Addresses(lambda: now[0], ttl_s=5.0)
    assert await asyncio.gather(*(addresses.one("arm", 80) for _ in range(10))) == ["10.0.0.1"] * 10
    assert names.asked == 1
    names.addresses = ("10.0.0.2",)
    now[0] = 104.9
    assert await addresses.one("arm", 80) == "10.0.0.1"
    now[0] = 105.0
    assert await asyncio.gather(*(addresses.one("arm", 80) for _ in range(10))) == ["10.0.0.1"] * 10
    await settled()
    assert await addresses.one("arm", 80) == "10.0.0.2"
    assert names.asked == 2


@pytest.mark.parametrize("trouble", ["fails", "hangs"])
async def test_a_name_service_in_trouble_takes_no_known_address_away(
    monkeypatch: pytest.MonkeyPatch, now: list[float], trouble: str
) -> None:
    names = Names("10.0.0.1")
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names)
    addresses = Addresses(lambda: now[0], ttl_s=5.0)
    await addresses.one("arm", 80)
    names.addresses = ()
    if trouble == "hangs":
        names.holding.clear()
    for _ in range(3):
        now[0] += 5.0
        assert await asyncio.wait_for(addresses.one("arm", 80), 1.0) == "10.0.0.1"
        await settled()
        assert await asyncio.wait_for(addresses.one("arm", 80), 1.0) == "10.0.0.1"
    assert names.asked == (4 if trouble == "fails" else 2)
    names.addresses = ("10.0.0.2",)
    names.holding.set()
    now[0] += 5.0
    await addresses.one("arm", 80)
    await settled()
    assert await addresses.one("arm", 80) == "10.0.0.2"


async def test_a_caller_that_gives_up_takes_nobody_with_it(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> None:
    names = Names("10.0.0.1")
    names.holding.clear()
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names)
    addresses = Addresses(lambda: now[0])
    patient = asyncio.create_task(addresses.one("arm", 80))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(addresses.one("arm", 80), 0.01)
    names.holding.set()
    assert await patient == "10.0.0.1"
    assert names.asked == 1


async def test_several_addresses_take_turns(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", Names("10.0.0.1", "10.0.0.2"))
    addresses = Addresses(lambda: now[0])
    assert sorted([await addresses.one("arm", 80) for _ in range(4)]) == ["10.0.0.1"] * 2 + ["10.0.0.2"] * 2


async def test_an_unknown_name_is_an_error_each_time(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> None:
    names = Names()
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names)
    addresses = Addresses(lambda: now[0])
    for _ in range(2):
        with pytest.raises(socket.gaierror):
            await addresses.one("arm", 80)
    assert names.asked == 2


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_an_address_is_itself(monkeypatch: pytest.MonkeyPatch, host: str, now: list[float]) -> None:
    names = Names()
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names)
    assert await Addresses(lambda: now[0]).one(host, 80) == host
    assert names.asked == 0
