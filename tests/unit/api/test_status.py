"""The status: its bounds hold it below what the API promises, and conditions keep their times."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from shadowrun_mirror.reasons import DropReason, FailureReason
from shadowrun_operator.api.conditions import (
    ConditionType,
    EndReason,
    Reason,
    condition,
    set_condition,
    timestamp,
)
from shadowrun_operator.api.spec import MAX_CLASSES, MAX_CRITERIA
from shadowrun_operator.api.status import (
    CONDITION_LENGTH,
    ArmStatus,
    Condition,
    ConditionStatus,
    Dropped,
    Failure,
    Status,
)

from tests.unit.api.fullstatus import full_status

pytestmark = pytest.mark.operator

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)


def test_the_fullest_status_stays_below_16_kib() -> None:
    assert 12_000 < len(json.dumps(full_status().to_json(), separators=(",", ":"))) < 16 * 1024


def test_a_status_has_room_for_every_criterion_and_class_of_a_spec() -> None:
    full = full_status()
    assert len(full.criteria) == MAX_CRITERIA
    assert len(full.classes) == MAX_CLASSES + 1
    assert len(full.conditions) == len(ConditionType)


@pytest.mark.parametrize("reason", list(DropReason))
def test_every_reason_of_a_drop_fits(reason: DropReason) -> None:
    assert Dropped(reason=reason.value).reason == reason


@pytest.mark.parametrize("reason", list(FailureReason))
def test_every_reason_of_a_failure_fits(reason: FailureReason) -> None:
    assert Failure(reason=reason.value).reason == reason
    assert len(FailureReason) <= len(full_status().failures)


def test_a_status_is_read_back_as_it_was_written() -> None:
    assert Status.model_validate(full_status().to_json()) == full_status()


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert Status.model_validate({"phase": "Running", "mood": "good"}) == Status(phase="Running")


def put(
    conditions: tuple[Condition, ...], status: ConditionStatus, now: datetime, message: str = ""
) -> tuple[Condition, ...]:
    """`ArmsReady` set at a time."""
    return set_condition(conditions, ConditionType.ARMS_READY, status, Reason.WAITING, message, generation=3, now=now)


def test_a_condition_that_stays_keeps_its_transition_time() -> None:
    before = put((), "False", NOW, "0 of 2")
    after = put(before, "False", LATER, "1 of 2")
    assert [(c.message, c.last_transition_time) for c in after] == [("1 of 2", timestamp(NOW))]


def test_a_condition_that_turns_gets_a_new_transition_time() -> None:
    after = put(put((), "False", NOW), "True", LATER)
    assert [(c.status, c.last_transition_time) for c in after] == [("True", timestamp(LATER))]


def test_conditions_are_listed_in_the_order_of_their_types() -> None:
    first = put((), "True", NOW)
    both = set_condition(first, ConditionType.ACCEPTED, "True", Reason.ACCEPTED, "", generation=3, now=NOW)
    assert [c.type for c in both] == ["Accepted", "ArmsReady"]


def test_a_condition_that_was_never_set_is_not_there() -> None:
    assert condition((), ConditionType.COMPLETE) is None


def test_a_message_too_long_is_cut_visibly() -> None:
    (only,) = put((), "True", NOW, "x" * 1000)
    assert len(only.message) == CONDITION_LENGTH
    assert only.message.endswith("…")


def test_text_for_people_is_never_too_long_for_the_status() -> None:
    arm = ArmStatus(name="baseline", images=("a" * 300, "b"), nodes=("x", "y", "z"), accelerator="c" * 100)
    assert (len(arm.images[0]), len(arm.images), arm.nodes, len(arm.accelerator)) == (200, 1, ("x", "y"), 96)


def test_an_instant_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        timestamp(datetime(2026, 11, 30, 12, 0, 0))  # noqa: DTZ001


@pytest.mark.parametrize("words", [ConditionType, Reason, EndReason])
def test_every_word_has_a_sentence_and_fits_a_condition(words: type[ConditionType | Reason | EndReason]) -> None:
    for word in words:
        assert word.sentence.endswith(".")
        assert Condition(type="X", status="True", reason=word.value, last_transition_time=timestamp(NOW)).reason == word


def test_only_the_agreed_ends_are_judged() -> None:
    assert [reason.value for reason in EndReason if reason.judged] == [
        "DurationReached",
        "PairsReached",
        "TokensReached",
        "GPUHoursReached",
        "MatchRateReached",
        "Decided",
        "FailureProven",
    ]
