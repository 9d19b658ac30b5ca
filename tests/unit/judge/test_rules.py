"""What the judge reads from a spec."""

from typing import Any

import pytest
from shadowrun_operator.judge.rules import CoverageFloor, Criterion, LivePathLimits, rules_of

from tests.unit.api.example import spec

pytestmark = pytest.mark.verdict


def test_criteria_carry_their_numbers_as_shares() -> None:
    latency = {
        "name": "a",
        "metric": "TTFT",
        "quantile": "p95",
        "class": "default",
        "require": "NotWorse",
        "margin": "10%",
    }
    share = {
        "name": "b",
        "metric": "Failures",
        "require": "NotWorse",
        "margin": "0.5%",
        "minPairs": 7,
        "critical": True,
        "weight": "Tokens",
    }
    found = rules_of(spec(criteria=[latency, share])).criteria
    assert found == (
        Criterion(name="a", metric="TTFT", quantile=0.95, traffic_class="default", require="NotWorse", margin=0.1),
        Criterion(
            name="b",
            metric="Failures",
            require="NotWorse",
            weight="Tokens",
            margin=0.005,
            min_pairs=7,
            critical=True,
        ),
    )


@pytest.mark.parametrize(
    ("slo", "of_class", "limited"),
    [
        ({"tpot": "50ms"}, None, ("long", "default")),
        ({"tpot": "50ms"}, {"ttft": "2s"}, ("default",)),
        ({"ttft": "2s"}, {"tpot": "50ms"}, ("long",)),
        ({"ttft": "2s"}, None, ()),
        ({}, None, ()),
    ],
)
def test_classes_whose_slo_limits_the_time_per_token_are_known(
    slo: dict[str, str], of_class: dict[str, str] | None, limited: tuple[str, ...]
) -> None:
    classes = [{"name": "long", "when": {"stream": True}} | ({} if of_class is None else {"slo": of_class})]
    assert rules_of(spec(classes=classes, slo=slo)).tpot_limits == limited


def test_floors_of_a_class_replace_only_what_they_name() -> None:
    classes = [{"name": "long", "when": {"stream": True}, "coverage": {"minTokens": "50%"}}]
    rules = rules_of(spec(classes=classes, coverage={"minRequests": "95%", "minTokens": "70%"}))
    assert rules.floor_of("long") == CoverageFloor(requests=0.95, tokens=0.5)
    assert rules.floor_of("default") == rules.floor_of("") == CoverageFloor(requests=0.95, tokens=0.7)


@pytest.mark.parametrize(
    ("hardware", "required"),
    [({"matchLabelKeys": ["gpu"]}, True), ({}, False), ({"matchLabelKeys": ["gpu"], "policy": "Report"}, False)],
)
def test_hardware_is_required_where_labels_are_named(hardware: dict[str, Any], required: bool) -> None:
    assert rules_of(spec(hardware=hardware)).hardware_required == required


def test_arms_and_warm_up_are_those_of_the_spec() -> None:
    arms = {
        "template": {"deploymentRef": {"name": "chat"}},
        "candidate": {},
        "control": "Enabled",
        "warmup": {"requests": 9},
    }
    rules = rules_of(spec(arms=arms), block_s=4)
    assert (rules.arms, rules.warm_up_requests, rules.block_s) == (("baseline", "candidate", "control"), 9, 4)
    assert rules_of(spec()).control is None


def named(name: str, **when: Any) -> dict[str, Any]:
    return {"name": name, "when": when}


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([], ("default",)),
        ([named("long", promptTokens={"min": 8000})], ("long",)),  # takes every oversized request
        ([named("short", promptTokens={"max": 1000})], ("default",)),  # can take none
        ([named("huge", promptTokens={"min": 50_000})], ("huge", "default")),
        ([named("middle", promptTokens={"min": 1, "max": 30_000})], ("middle", "default")),
        ([named("tools", tools=True), named("long", promptTokens={"min": 1})], ("tools", "long")),
    ],
)
def test_oversized_requests_may_belong_to_the_classes_that_admit_their_size(
    classes: list[dict[str, Any]], expected: tuple[str, ...]
) -> None:
    """64Ki bytes, the default limit, are about 16,384 tokens."""
    assert rules_of(spec(classes=classes)).oversized_classes == expected


KEYED = {"unit": "Key", "key": {"header": "x-user"}}


@pytest.mark.parametrize(
    ("sampling", "superset"),
    [
        ({}, False),
        (KEYED, False),
        ({"unit": "Key", "key": {"bodyField": "user"}}, True),
        ({"unit": "Conversation"}, True),
        ({"unit": "Conversation", "key": {"header": "x-id"}, "onMissingKey": "Lineage"}, True),
        ({"classRates": [{"class": "long", "rate": "50%"}]}, True),
    ],
)
def test_capture_copies_more_than_is_selected_where_only_the_mirror_can_tell(
    sampling: dict[str, Any], superset: bool
) -> None:
    classes = [{"name": "long", "when": {"stream": True}}]
    assert rules_of(spec(classes=classes, sampling=sampling)).superset == superset


def test_rates_of_classes_are_those_of_the_spec_and_of_the_rest_the_run_s() -> None:
    classes = [{"name": name, "when": {"stream": True}} for name in ("long", "rare")]
    sampling = {"rate": "1%", "classRates": [{"class": "rare", "rate": "50%"}]}
    assert rules_of(spec(classes=classes, sampling=sampling)).class_rates == {
        "long": 0.01,
        "rare": 0.5,
        "default": 0.01,
    }
    assert rules_of(spec(classes=classes)).class_rates == {}


@pytest.mark.parametrize(
    ("guard", "limits"),
    [
        (None, None),
        ({"maxErrorIncrease": "1%"}, LivePathLimits(errors=0.01, block_s=100.0)),
        (
            {"maxLatencyIncrease": "20%", "pauseShare": "25%", "pauseSlot": "20s"},
            LivePathLimits(latency=0.2, block_s=40.0),
        ),
    ],
)
def test_the_limits_of_the_live_path_are_those_of_the_spec(
    guard: dict[str, Any] | None, limits: LivePathLimits | None
) -> None:
    assert rules_of(spec(livePathGuard=guard)).live_path == limits


@pytest.mark.parametrize("when", [{"images": True}, {"schema": True}, {"turns": {"min": 2}}, {"tools": True}])
def test_a_class_with_any_condition_beside_length_does_not_take_every_oversized_request(when: dict[str, Any]) -> None:
    classes = [{"name": "some", "when": when}, {"name": "long", "when": {"promptTokens": {"min": 10}}}]
    assert rules_of(spec(classes=classes)).oversized_classes == ("some", "long")
