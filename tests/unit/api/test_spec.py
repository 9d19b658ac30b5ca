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
