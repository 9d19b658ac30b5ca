"""The models of the spec: the agreed defaults, names in both spellings, and what is refused on reading."""

import pytest
from pydantic import ValidationError
from shadowrun_operator.api.run import ShadowRun
from shadowrun_operator.api.spec import Criterion

from tests.unit.api.example import spec

pytestmark = pytest.mark.operator


def test_the_defaults_are_the_agreed_ones() -> None:
    smallest = spec()
    assert smallest.sampling.rate.millionths == 10_000
    assert smallest.sampling.on_missing_key == "Random"
    assert smallest.capture.max_body_bytes.bytes == 64 * 1024
    assert (smallest.admission.max_in_flight, smallest.admission.queue.max_length) == (8, 0)
    assert smallest.admission.timeout.seconds == 60
    assert smallest.duration.seconds == 7 * 24 * 3600
    assert smallest.end_conditions.min_duration.seconds == 24 * 3600
    assert smallest.start_deadline.seconds == 30 * 60
    assert smallest.arms.control == "Disabled"
    assert smallest.arms.warmup.requests == 200
    assert smallest.hardware.policy == "Require"


def test_a_criterion_has_a_class_under_the_name_of_the_resource() -> None:
    one = Criterion.model_validate(
        {"name": "x", "metric": "TTFT", "quantile": "p95", "class": "long", "require": "Better"}
    )
    assert one.traffic_class == "long"
    assert one.to_json()["class"] == "long"
    assert spec().criteria[0].traffic_class == ""


def test_the_implied_class_comes_last() -> None:
    long = {"name": "long", "when": {"stream": True}}
    assert spec(classes=[long]).class_names == ("long", "default")


@pytest.mark.parametrize(
    ("control", "arms"),
    [("Disabled", ("baseline", "candidate")), ("Enabled", ("baseline", "candidate", "control"))],
)
def test_the_baseline_is_the_first_arm(control: str, arms: tuple[str, ...]) -> None:
    block = {"template": {"deploymentRef": {"name": "chat"}}, "candidate": {}, "control": control}
    assert spec(arms=block).arm_names == arms


@pytest.mark.parametrize(
    ("sampling", "follows"),
    [
        ({}, False),
        ({"unit": "Conversation"}, True),
        ({"unit": "Conversation", "key": {"header": "x-c"}}, False),
        ({"unit": "Conversation", "key": {"header": "x-c"}, "onMissingKey": "Lineage"}, True),
        ({"unit": "Key", "key": {"credential": True}}, False),
    ],
)
def test_a_conversation_without_a_key_is_known_by_its_opening(sampling: dict[str, object], follows: bool) -> None:
    assert spec(sampling=sampling).sampling.follows_openings is follows


@pytest.mark.parametrize(
    ("capture", "name"),
    [
        ({"proxy": {"serviceName": "front"}}, "front"),
        ({"mode": "External", "external": {"serviceName": "copies"}}, "copies"),
        ({"mode": "HTTPRoute", "httpRoute": {"name": "front", "rule": "chat", "serviceName": "copies"}}, "copies"),
    ],
)
def test_the_service_that_is_made_is_named_by_the_mode_s_own_block(capture: dict[str, object], name: str) -> None:
    assert spec(capture=capture).capture.service_name == name


def test_the_guard_of_the_live_path_has_pauses_of_its_own_accord() -> None:
    guard = spec(livePathGuard={"maxLatencyIncrease": "10%"}).live_path_guard
    assert guard is not None
    assert (guard.pause_share.millionths, guard.pause_slot.seconds) == (50_000, 10)


def test_a_class_may_ask_for_a_form_of_the_answer_under_the_name_of_the_resource() -> None:
    structured = {"name": "s", "when": {"schema": True, "turns": {"min": 2}, "images": False}}
    when = spec(classes=[structured]).classes[0].when
    assert (when.structured, when.images, when.turns and when.turns.min) == (True, False, 2)
    assert when.to_json()["schema"] is True


def test_what_was_read_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        spec().suspend = True  # type: ignore[misc]


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert spec(mood="good") == spec()


def test_a_wrong_field_is_named() -> None:
    with pytest.raises(ValidationError, match=r"sampling\.rate\n.*not a percentage"):
        spec(sampling={"rate": "1"})


def test_a_run_is_read_with_what_identifies_it() -> None:
    run = ShadowRun.parse(
        {
            "apiVersion": "shadowrun.dev/v1alpha1",
            "kind": "ShadowRun",
            "metadata": {
                "name": "x",
                "namespace": "ns",
                "uid": "u",
                "generation": 2,
                "creationTimestamp": "2026-11-30T12:00:00Z",
                "managedFields": [],
            },
            "spec": spec().to_json(),
        }
    )
    assert (run.name, run.namespace, run.uid, run.metadata.generation) == ("x", "ns", "u", 2)
    assert run.status.phase == "Pending"
