"""What the judge reads from a spec."""

from typing import Any

import pytest
from shadowrun_operator.judge.rules import CoverageFloor, Criterion, rules_of

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
    }
    found = rules_of(spec(criteria=[latency, share])).criteria
    assert found == (
        Criterion(name="a", metric="TTFT", quantile=0.95, traffic_class="default", require="NotWorse", margin=0.1),
        Criterion(name="b", metric="Failures", require="NotWorse", margin=0.005, min_pairs=7, critical=True),
    )


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
