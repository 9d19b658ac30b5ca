"""Customers that fare worse with copying end the run at once; a rate above the target comes down."""

import msgspec
import pytest
from shadowrun_mirror.config import MODULO
from shadowrun_mirror.evidence import CaptureEvidence, LivePath
from shadowrun_operator.judge.live_path import MIN_BLOCKS
from shadowrun_operator.judge.report import unpacked_report
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile.judging import stored_report
from shadowrun_operator.reconcile.pending import POLL_S

from tests.unit.reconcile.world import World, decoded

pytestmark = pytest.mark.operator

GUARD = {"maxErrorIncrease": "1%", "maxLatencyIncrease": "20%"}


class Watched(World):
    """A world whose capture sees customers: ten requests a second, one slot of ten seconds in ten is paused."""

    errors_on: float = 0.0
    slow_on: float = 1.0

    def customers(self) -> tuple[LivePath, LivePath]:
        """Totals with copying on and in pauses."""
        if not hasattr(self, "totals"):
            self.totals = (LivePath(), LivePath())
        return self.totals

    def pass_time(self, seconds: float) -> None:
        super().pass_time(seconds)
        on, off = self.customers()
        if self.mirror is None or not self.mirror.copying or self.mirror.capture.pauses is None:
            return
        pausing = self.mirror.capture.pauses.share == MODULO or int(self.now // 10) % 10 == 3
        path, count = (off, 30) if pausing else (on, 30)
        failed = 0 if pausing else round(count * self.errors_on)
        path.requests += count
        path.errors += failed
        for i in range(count - failed):
            path.first_byte.add((0.2 + 0.01 * i) * (1.0 if pausing else self.slow_on))

    def _capture_evidence(self, pod: object) -> CaptureEvidence:
        snapshot = super()._capture_evidence(pod)  # type: ignore[arg-type]
        if snapshot.windows:
            on, off = (LivePath().merged(path) for path in self.customers())
            window = next(iter(snapshot.windows))
            seen = msgspec.structs.replace(snapshot.windows[window], on=on, off=off)
            return msgspec.structs.replace(snapshot, windows=snapshot.windows | {window: seen})
        return snapshot


def healthy(status: Manifest) -> Manifest:
    """The condition about customers."""
    (found,) = (c for c in status["conditions"] if c["type"] == "LivePathHealthy")
    return dict(found)


def started(**changes: object) -> Watched:
    world = Watched.with_spec(livePathGuard=GUARD, duration="3h", startDeadline="2h", **changes)
    assert isinstance(world, Watched)
    world.until("Running")
    return world


@pytest.mark.parametrize(("errors", "slow", "said"), [(0.1, 1.0, "errors"), (0.0, 2.0, "first byte")])
def test_harm_ends_the_run_and_copying_in_the_pass_that_finds_it(errors: float, slow: float, said: str) -> None:
    world = started()
    world.errors_on, world.slow_on = errors, slow
    turns = 0
    while world.phase == "Running":
        plan = world.turn()
        turns += 1
        assert turns < 1000
    assert plan.push is not None
    assert not plan.push.config.copying
    assert POLL_S <= 5
    (event,) = plan.events
    assert (event.type, event.reason) == ("Warning", "LivePathHarmed")
    assert said in event.message
    world.until("Complete")
    status = world.body["status"]
    assert (status["endReason"], status["verdict"], status["reason"]) == (
        "LivePathHarmed",
        "Inconclusive",
        "LivePathHarmed",
    )
    condition = healthy(status)
    assert (condition["status"], condition["reason"]) == ("False", "Harmed")
    assert said in condition["message"]


def test_the_report_says_how_customers_fared() -> None:
    world = started()
    world.errors_on = 0.1
    world.until("Finishing", turns=1000)
    for _ in range(30):
        report = stored_report(world.observe())
        if report is not None:
            break
        world.turn()
    assert report is not None
    kinds = {c.kind: c for c in report.circumstances.customers}
    assert kinds.keys() == {"before", "copying", "paused"}
    assert kinds["paused"].errors == 0
    assert (kinds["copying"].errors or 0) > 0.01
    assert any(c.metric == "errors" and c.harmed for c in report.circumstances.comparisons)
    found = world.objects["ConfigMap", "x-report"]
    assert unpacked_report(found["data"]["report.json"], found["binaryData"]["evidence.json.zlib"]) == report


def test_customers_that_fare_alike_end_nothing_and_the_watch_outlives_the_operator() -> None:
    world = started()
    for turn in range(330):
        if turn % 50 == 0:
            world.restart_operator()
            assert world.record is not None
            world.record = decoded(world.record)
        world.turn()
    assert world.phase == "Running"
    assert healthy(world.body["status"])["status"] == "True"
    assert world.record is not None
    assert world.record.watch is not None
    assert world.record.watch.errors.off_blocks >= MIN_BLOCKS
    assert world.record.watch.before.requests > 0


def test_without_a_guard_nothing_is_watched() -> None:
    world = World.with_spec()
    world.until("Running")
    world.turn()
    assert world.record is not None
    assert world.record.watch is None


def test_a_rate_above_the_target_is_lowered_recorded_and_told() -> None:
    world = World.with_spec(duration="3h", startDeadline="2h", sampling={"targetPairsPerSecond": "1"})
    world.until("Running")
    for _ in range(200):
        world.turn()
    assert world.record is not None
    assert world.mirror is not None
    changes = world.record.pace.changes
    assert changes
    assert world.record.rate_share == changes[-1].share < MODULO
    assert world.mirror.capture.sampling.threshold == MODULO - 500_000 * changes[-1].share // MODULO
    world.body["spec"]["stop"] = {"reason": "enough"}
    world.until("Finishing")
    for _ in range(30):
        report = stored_report(world.observe())
        if report is not None:
            break
        world.turn()
    assert report is not None
    assert report.circumstances.rates == changes
