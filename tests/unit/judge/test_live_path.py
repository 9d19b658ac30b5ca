"""The live path is called harmed where copying harms it, and not for what the primary does by itself."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.evidence import CaptureEvidence, CaptureWindow, LivePath
from shadowrun_mirror.histogram import Histogram
from shadowrun_operator.api.status import CONDITION_LENGTH
from shadowrun_operator.judge import live_path
from shadowrun_operator.judge.live_path import ALPHA, COARSE_S, Moments, Watch, harm, watched
from shadowrun_operator.judge.merge import merged
from shadowrun_operator.judge.rules import LivePathLimits, block_length

from tests.unit.judge.synthetic import source

pytestmark = pytest.mark.verdict

LIMITS = LivePathLimits(latency=0.2, errors=0.01)
SLOTS_PER_BLOCK = 5
PAUSED = 0.1


class Customers:
    """Requests by slots of ten seconds; one in ten is paused. Counts as capture does."""

    def __init__(self, seed: int, *, per_slot: int = 100, limits: LivePathLimits = LIMITS) -> None:
        self.draw = random.Random(seed)
        self.per_slot, self.limits = per_slot, limits
        self.on, self.off, self.now = LivePath(), LivePath(), 0.0
        self.watch: Watch | None = None
        self.requests = 0

    def slot(self, *, errors: float = 0.002, more_errors: float = 0.0, slower: float = 1.0, begun: bool = True) -> None:
        """One slot with a share of errors and a median first byte of 300 ms; what copying adds, it adds."""
        paused = not begun or self.draw.random() < PAUSED
        path = self.off if paused else self.on
        for _ in range(self.per_slot):
            path.requests += 1
            self.requests += 1
            if self.draw.random() < errors + (0.0 if paused else more_errors):
                path.errors += 1
                continue
            path.first_byte.add(0.3 * math.exp(self.draw.gauss(0, 0.5)) * (1.0 if paused else slower))
        self.now += 10.0

    def look(self) -> str | None:
        """What the operator says now."""
        on, off = LivePath().merged(self.on), LivePath().merged(self.off)
        self.watch = watched(self.watch, on, off, self.now, self.limits)
        return harm(self.watch, on, off, self.now, self.limits)

    def until_harm(self, slots: int, **harm_done: float) -> str | None:
        """Looks after every slot."""
        for _ in range(3):
            self.slot(begun=False)
        for _ in range(slots):
            self.slot(**harm_done)  # type: ignore[arg-type]
            said = self.look()
            if said:
                return said
        return None


Numbers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def rejected(blocks: list[tuple[int, int, int, int]], tolerated: float) -> bool:
    """Whether any look at blocks calls this harm."""
    moments = Moments()
    for block in blocks:
        moments = moments.plus(*block)
        found = live_path.comparison("errors", moments, tolerated, ALPHA / 3)
        if found is not None and found.harmed:
            return True
    return False


def blocks_of(requests: Numbers, bad: Numbers, paused: Flags) -> list[tuple[int, int, int, int]]:
    """Requests of slots, by blocks."""
    parts = (requests * ~paused, bad * ~paused, requests * paused, bad * paused)
    sums = [part.reshape(-1, SLOTS_PER_BLOCK).sum(axis=1).tolist() for part in parts]
    return list(zip(*sums, strict=True))


def equal_run(draw: np.random.Generator, blocks: int) -> list[tuple[int, int, int, int]]:
    """Load that comes and goes, shares that wander from slot to slot, and now and then an outage of minutes."""
    slots = blocks * SLOTS_PER_BLOCK
    requests = draw.poisson(draw.uniform(1, 60) * draw.uniform(0.2, 1.8, slots))
    rates = np.clip(draw.choice([0.002, 0.03, 0.5]) * np.exp(draw.normal(0, 0.7, slots)), 0, 1)
    if draw.random() < 0.5:
        begins, length = draw.integers(0, slots), draw.integers(1, 120)
        rates[begins : begins + length] = draw.uniform(0.2, 1.0)
    return blocks_of(requests, draw.binomial(requests, rates), draw.random(slots) < PAUSED)


def test_two_thousand_runs_without_harm_are_never_called_harmed_though_looked_at_after_every_block() -> None:
    draw = np.random.default_rng(7)
    assert sum(rejected(equal_run(draw, 72), 0.0) for _ in range(2000)) == 0


def test_a_tolerated_increase_is_no_harm() -> None:
    draw, false_alarms = np.random.default_rng(8), 0
    for _ in range(300):
        requests = draw.poisson(30.0, 60 * SLOTS_PER_BLOCK)
        paused = draw.random(requests.shape) < PAUSED
        bad = draw.binomial(requests, np.where(paused, 0.01, 0.03))
        false_alarms += rejected(blocks_of(requests, bad, paused), 0.02)
    assert false_alarms == 0


@pytest.mark.parametrize("seed", range(3))
def test_five_points_more_errors_are_found_within_twenty_thousand_requests(seed: int) -> None:
    customers = Customers(seed)
    said = customers.until_harm(200, more_errors=0.05)
    assert said is not None
    assert customers.requests <= 20_000
    assert "errors" in said
    assert "points more and at least" in said
    assert len(said) <= CONDITION_LENGTH


@pytest.mark.parametrize("seed", range(3))
def test_twice_the_latency_is_found_within_twenty_thousand_requests_and_said_by_how_much(seed: int) -> None:
    customers = Customers(seed)
    said = customers.until_harm(200, slower=2.0)
    assert said is not None
    assert customers.requests <= 20_000
    assert "first byte: p50 " in said
    assert len(said) <= CONDITION_LENGTH
    assert any(f"(+{n}%)" in said for n in range(85, 116))


@pytest.mark.parametrize("seed", range(4))
def test_an_increase_of_latency_within_the_limit_is_no_harm(seed: int) -> None:
    assert Customers(seed, per_slot=20).until_harm(400, slower=1.19) is None


def test_gross_trouble_from_the_first_copy_on_is_found_within_five_hundred_copied_requests() -> None:
    customers = Customers(1)
    said = customers.until_harm(20, more_errors=0.6)
    assert said is not None
    assert customers.on.requests <= 500
    assert "before copying began" in said
    assert len(said) <= CONDITION_LENGTH


def test_answers_four_times_as_slow_from_the_first_copy_on_are_found_at_once() -> None:
    customers = Customers(1)
    said = customers.until_harm(20, slower=12.0)
    assert said is not None
    assert customers.on.requests <= 500
    assert "first byte came later" in said


def test_the_time_before_says_nothing_any_more_an_hour_after_the_first_copy() -> None:
    before, on = LivePath(requests=300), LivePath(requests=500, errors=400)
    watch = Watch(closed=1000.0, began=1000.0, before=before, on=LivePath(requests=1), off=before)
    assert harm(watch, on, before, 1000.0 + COARSE_S, LIMITS) is not None
    assert harm(watch, on, before, 1001.0 + COARSE_S, LIMITS) is None


@pytest.mark.parametrize("seed", range(12))
def test_an_outage_of_the_primary_is_not_laid_at_the_door_of_copying(seed: int) -> None:
    customers = Customers(seed, per_slot=20)
    said = [customers.until_harm(100)]
    for _ in range(60):
        customers.slot(errors=0.7)
        said.append(customers.look())
    said.append(customers.until_harm(60))
    assert not any(said)


def test_gross_trouble_that_paused_slots_show_as_well_is_not_laid_at_the_door_of_copying() -> None:
    customers = Customers(5)
    for _ in range(3):
        customers.slot(begun=False)
    said = []
    for _ in range(30):
        customers.slot(errors=0.7)
        found = customers.look()
        shown = customers.watch is not None and customers.off.requests > customers.watch.before.requests
        said.append((shown, found))
    assert any(found for shown, found in said if not shown)
    assert [found for shown, found in said if shown].count(None) > 10
    assert not any(found for shown, found in said if shown)


def test_nothing_is_said_of_few_requests() -> None:
    customers = Customers(1, per_slot=1)
    assert customers.until_harm(90, more_errors=0.5) is None


def test_a_limit_that_is_not_set_is_not_looked_at() -> None:
    assert Customers(1, limits=LivePathLimits(latency=0.2)).until_harm(100, more_errors=0.3) is None
    assert Customers(1, limits=LivePathLimits(errors=0.01)).until_harm(100, slower=3.0) is None


def test_counters_that_fell_back_are_not_taken_for_customers() -> None:
    customers = Customers(1)
    customers.until_harm(30)
    assert customers.watch is not None
    blocks = customers.watch.errors.blocks
    customers.on, customers.off = LivePath(requests=1), LivePath()
    customers.now += 100
    assert customers.look() is None
    assert customers.watch.errors.blocks == blocks
    assert customers.watch.on.requests == 1


def test_a_block_expects_half_a_paused_slot() -> None:
    assert block_length(0.1, 10) == 50
    assert block_length(0.5, 10) == 10
    assert block_length(0.01, 20) == 1000


def test_customers_of_every_window_and_capture_process_count_once() -> None:
    def snapshot(pod: str, sequence: int, requests: int) -> CaptureEvidence:
        path = LivePath(requests=requests, first_byte=Histogram(bins={1: requests}))
        windows = {n: CaptureWindow(on=path, off=LivePath(requests=1)) for n in (0, 1)}
        return CaptureEvidence(
            run_uid="run",
            source=source(pod, sequence),
            directive_version=1,
            copying=True,
            active_requests=0,
            windows=windows,
        )

    found = merged([], [snapshot("a", 1, 3), snapshot("a", 2, 5), snapshot("b", 1, 7)])
    assert (found.on.requests, found.on.first_byte.count, found.off.requests) == (24, 24, 4)


blocks = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 20), st.integers(0, 20)).map(
        lambda b: (b[0], min(b[0], b[1]), b[2], min(b[2], b[3]))
    ),
    min_size=1,
    max_size=40,
)


@given(blocks, st.floats(0, 0.5))
def test_a_larger_limit_never_finds_more_and_better_customers_are_never_harmed(
    found: list[tuple[int, int, int, int]], limit: float
) -> None:
    moments = Moments()
    for block in found:
        moments = moments.plus(*block)
    strict = live_path.comparison("errors", moments, 0.0, ALPHA)
    loose = live_path.comparison("errors", moments, limit, ALPHA)
    assert (strict is None) == (loose is None)
    if strict is not None and loose is not None:
        assert strict.margin >= 0
        assert not (strict.on <= strict.off and strict.harmed)
        assert not (loose.difference <= limit and loose.harmed)
