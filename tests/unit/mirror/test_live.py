from typing import Any

import msgspec
import pytest
from shadowrun_mirror.config import MODULO, Admission, Comparison, MirrorConfig, Pauses, Sampling, TrafficClass
from shadowrun_mirror.expiry import Expiry
from shadowrun_mirror.live import LiveConfig, wrong_value

from tests.integration.mirror.rig import configuration

pytestmark = pytest.mark.mirror


def live(sampling: Sampling | None = None) -> LiveConfig:
    config = configuration([1, 2])
    capture = config.capture if sampling is None else msgspec.structs.replace(config.capture, sampling=sampling)
    return LiveConfig(msgspec.structs.replace(config, capture=capture), wall=1000.0, mono=0.0)


def room(max_in_flight: int = 1, max_queued: int = 0, max_wait_s: float = 5.0) -> Admission:
    return Admission(max_in_flight=max_in_flight, timeout_s=1.0, max_queued=max_queued, max_wait_s=max_wait_s)


def offered(holder: LiveConfig, **changes: object) -> MirrorConfig:
    config = msgspec.structs.replace(holder.config, version=holder.config.version + 1, **changes)
    assert holder.offer(config, 1000.0, 0.0) is None
    return config


@pytest.mark.parametrize(
    ("wall", "mono", "passed"),
    [
        (1009.9, 9.9, False),
        (1010.0, 9.9, True),  # by the wall clock
        (500.0, 10.0, True),  # the wall clock was set back
        (1000.0, 9.9, False),
    ],
)
def test_expiry_passes_by_whichever_clock_is_first(wall: float, mono: float, passed: bool) -> None:
    assert Expiry(1010.0, wall=1000.0, mono=0.0).passed(wall, mono) is passed


def test_once_passed_it_stays_passed() -> None:
    expiry = Expiry(1010.0, wall=1000.0, mono=0.0)
    assert expiry.passed(1010.0, 1.0)
    assert expiry.passed(900.0, 1.0)


def test_learning_it_again_after_the_clock_was_set_back_wins_no_time() -> None:
    expiry = Expiry(1010.0, wall=1000.0, mono=0.0)
    expiry.brought_forward(1010.0, wall=100.0, mono=5.0)
    assert not expiry.passed(105.0, 9.9)
    assert expiry.passed(105.0, 10.0)


def test_it_can_be_brought_forward() -> None:
    expiry = Expiry(1010.0, wall=1000.0, mono=0.0)
    expiry.brought_forward(1004.0, wall=1001.0, mono=1.0)
    assert not expiry.passed(1003.9, 3.9)
    assert expiry.passed(1003.9, 4.0)


def test_thresholds_of_recent_windows_are_remembered_and_the_warm_ups_always() -> None:
    holder = live()
    indicators = holder.config.indicators
    for window in range(2, 30):
        offered(holder, window=window, indicators=indicators[:1])
    warm_up, latest = holder.of_window(0), holder.of_window(29)
    assert warm_up is not None
    assert warm_up.indicators == ()
    assert latest is not None
    assert latest.indicators == indicators[:1]
    assert holder.of_window(1) is None
    assert holder.of_window(30) is None


def test_no_answer_of_the_warm_up_is_compared_and_how_is_frozen_for_a_window() -> None:
    holder = live()
    offered(holder, window=2, comparison=Comparison())
    warm_up, counted = holder.of_window(0), holder.of_window(2)
    assert warm_up is not None
    assert warm_up.comparison is None
    assert counted is not None
    assert counted.comparison == Comparison()
    other = msgspec.structs.replace(holder.config, version=holder.config.version + 1, comparison=None)
    refusal = holder.offer(other, 1000.0, 0.0)
    assert refusal is not None
    assert (refusal.status, refusal.field) == (409, "comparison")


SAMPLING = Sampling(unit="Conversation", threshold=0, seed=7, key_headers=("x-key",), class_thresholds={"long": 5})


@pytest.mark.parametrize(
    ("field", "value"),
    [("seed", 8), ("unit", "Key"), ("key_headers", ("x",)), ("key_field", "user"), ("on_missing_key", "Skip")],
)
def test_what_the_sample_is_drawn_by_is_fixed_but_its_rates_are_not(field: str, value: Any) -> None:
    holder = live(SAMPLING)
    capture = holder.config.capture

    def changed(version: int, **changes: Any) -> MirrorConfig:
        sampling = msgspec.structs.replace(capture.sampling, **changes)
        return msgspec.structs.replace(
            holder.config, version=version, capture=msgspec.structs.replace(capture, sampling=sampling)
        )

    refusal = holder.offer(changed(2, **{field: value}), 1000.0, 0.0)
    assert refusal is not None
    assert (refusal.status, refusal.field) == (409, f"capture.sampling.{field}")
    assert holder.offer(changed(2, threshold=9, class_thresholds={"long": 6}), 1000.0, 0.0) is None


def test_the_source_of_copies_is_fixed() -> None:
    holder = live()
    refusal = holder.offer(msgspec.structs.replace(holder.config, version=2, source="External"), 1000.0, 0.0)
    assert refusal is not None
    assert (refusal.status, refusal.field) == (409, "source")


def with_sampling(**changes: Any) -> dict[str, Any]:
    capture = configuration([1, 2]).capture
    return {"capture": msgspec.structs.replace(capture, sampling=msgspec.structs.replace(SAMPLING, **changes))}


def with_pauses(share: int, slot_s: int) -> dict[str, Any]:
    return {
        "capture": msgspec.structs.replace(configuration([1, 2]).capture, pauses=Pauses(share=share, slot_s=slot_s))
    }


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("capture.sampling.class_thresholds", with_sampling(class_thresholds={"short": 5})),
        ("capture.sampling.class_thresholds", with_sampling(class_thresholds={"long": MODULO + 1})),
        ("capture.sampling.key_headers", with_sampling(key_headers=("X-Key",))),
        ("capture.sampling.key_headers", with_sampling(key_headers=("",))),
        ("capture.sampling.on_missing_key", with_sampling(key_headers=(), on_missing_key="Skip")),
        ("capture.sampling.on_missing_key", with_sampling(unit="Key", on_missing_key="Lineage")),
        ("capture.pauses.share", with_pauses(MODULO + 1, 10)),
        ("capture.pauses.slot_s", with_pauses(1, 0)),
        ("admission.max_queued", {"admission": room(1, max_queued=-1)}),
        ("admission.max_wait_s", {"admission": room(1, max_wait_s=-1.0)}),
        ("admission.max_wait_s", {"admission": room(1, max_queued=1, max_wait_s=0.0)}),
        ("lag_limit_s", {"lag_limit_s": 0.0}),
        ("lease_s", {"lease_s": 0.0}),
        ("classes", {"classes": (TrafficClass(name="default"),)}),
        ("classes", {"classes": (TrafficClass(name="a"), TrafficClass(name="a"))}),
        ("classes", {"classes": (TrafficClass(name="a", min_turns=3, max_turns=2),)}),
    ],
)
def test_a_value_that_makes_no_sense_is_named(field: str, changes: dict[str, Any]) -> None:
    refusal = wrong_value(configuration([1, 2], **changes))
    assert refusal is not None
    assert (refusal.status, refusal.field) == (422, field)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        with_sampling(),
        with_sampling(class_thresholds={"default": 5, "long": 0}),
        with_sampling(key_headers=(), key_field="user", on_missing_key="Skip"),
        with_sampling(key_headers=(), on_missing_key="Lineage"),
        with_pauses(MODULO, 1),
        {"admission": room(1, max_queued=1, max_wait_s=1.0)},
        {"classes": (TrafficClass(name="a", min_turns=2, max_turns=2),)},
    ],
)
def test_values_that_make_sense_are_taken(changes: dict[str, Any]) -> None:
    assert wrong_value(configuration([1, 2], **changes)) is None


def test_a_refused_configuration_changes_nothing() -> None:
    holder = live()
    before = holder.config
    refusal = holder.offer(msgspec.structs.replace(before, version=2, expiry=before.expiry + 1), 1000.0, 0.0)
    assert refusal is not None
    assert (refusal.status, refusal.field) == (409, "expiry")
    assert holder.config is before
