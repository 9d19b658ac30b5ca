"""Where the spec guards the customers' path they are watched without copies first, and the rate may be lowered."""

import msgspec
import pytest
from shadowrun_mirror.config import MODULO
from shadowrun_operator.judge.facts import RateChange
from shadowrun_operator.reconcile.objects import next_config
from shadowrun_operator.reconcile.rate import Pace

from tests.unit.reconcile.world import World

pytestmark = pytest.mark.operator

GUARD = {"maxLatencyIncrease": "10%", "pauseSlot": "40s"}


def test_nothing_is_copied_before_customers_were_watched_for_a_while() -> None:
    world = World.with_spec(livePathGuard=GUARD)
    world.until("WarmingUp")
    assert world.record is not None
    began = world.record.copying_since
    shares: list[tuple[float, int]] = []
    for _ in range(20):
        assert world.mirror is not None
        assert world.mirror.capture.pauses is not None
        shares.append((world.now - began, world.mirror.capture.pauses.share))
        world.turn()
    assert {share for after, share in shares if after < 40} == {MODULO}
    assert {share for after, share in shares if after > 46} == {50_000}
    world.until("Running")


def test_the_message_says_why_nothing_is_copied_yet() -> None:
    world = World.with_spec(livePathGuard=GUARD)
    world.until("WarmingUp")
    world.turn()
    assert "watched without copies" in world.body["status"]["message"]


def test_a_new_operator_watches_no_longer_than_the_first_would_have() -> None:
    world = World.with_spec(livePathGuard=GUARD)
    world.until("WarmingUp")
    for _ in range(20):
        world.restart_operator()
        world.turn()
    assert world.mirror is not None
    assert world.mirror.capture.pauses is not None
    assert world.mirror.capture.pauses.share == 50_000


def test_without_a_guard_copying_begins_at_once() -> None:
    world = World.with_spec()
    world.until("WarmingUp")
    assert world.mirror is not None
    assert world.mirror.capture.pauses is None


def test_a_lowered_rate_is_told_to_the_mirrors_under_a_higher_version() -> None:
    world = World.with_spec()
    world.until("Running")
    world.turn()
    assert world.record is not None
    assert world.mirror is not None
    pace = Pace(changes=(RateChange(at=world.now, share=250_000),))
    lowered = msgspec.structs.replace(world.record, pace=pace)
    config = next_config(world.observe(), lowered, copying=True, indicators=lowered.indicators)
    assert config.version == world.mirror.version + 1
    assert config.capture.sampling.threshold == MODULO - 125_000


@pytest.mark.parametrize(("protocol", "http2"), [("kubernetes.io/h2c", True), ("http", False), ("", False)])
def test_the_arms_are_spoken_to_as_the_primary_s_port_says(protocol: str, http2: bool) -> None:
    world = World.with_spec()
    if protocol:
        world.users["Service", "chat"]["spec"]["ports"][0]["appProtocol"] = protocol
    world.until("WarmingUp")
    assert world.mirror is not None
    assert {arm.http2 for arm in world.mirror.arms} == {http2}
    (port,) = world.objects["Service", "x-candidate"]["spec"]["ports"]
    assert port.get("appProtocol", "") == protocol


def test_a_primary_that_goes_away_changes_nothing_about_how_the_arms_are_spoken_to() -> None:
    world = World.with_spec()
    world.users["Service", "chat"]["spec"]["ports"][0]["appProtocol"] = "kubernetes.io/h2c"
    world.until("Running")
    world.turn()
    assert world.mirror is not None
    before = world.mirror
    del world.users["Service", "chat"]
    world.turn()
    assert world.mirror == before
