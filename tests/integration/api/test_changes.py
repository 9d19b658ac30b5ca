"""What may change once a run has started, asked of a real API server; and that it keeps what is written to it."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from shadowrun_operator.api.crd import _root_rules
from shadowrun_operator.api.run import ShadowRun

from tests.integration.api.conftest import Runs
from tests.integration.api.manifest import ABSENT, GROUP, manifest
from tests.unit.api.fullstatus import full_status

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

STAYS_POSSIBLE: dict[str, Mapping[str, Any]] = {
    "suspend": {"spec.suspend": True},
    "stop": {"spec.stop": {"reason": "enough"}},
    "a shorter duration": {"spec.duration": "90m"},
    "the rate": {"spec.sampling.rate": "0.5%"},
    "the target of the rate": {"spec.sampling.targetPairsPerSecond": "3"},
    "the queue": {"spec.admission.queue": {"maxLength": 2, "maxWait": "1s"}},
    "the cap": {"spec.admission.maxInFlight": 2},
    "the timeout": {"spec.admission.timeout": "30s"},
    "how long arms are kept": {"spec.keepArms": {"for": "1h"}},
    "how long the run is kept": {"spec.ttlAfterFinished": "24h"},
    "labels": {"metadata.labels": {"team": "search"}},
}

NO_LONGER_POSSIBLE: dict[str, tuple[Mapping[str, Any], str]] = {
    "the primary": ({"spec.primary.service.port": 8001}, "spec.primary decides"),
    "capture": ({"spec.capture.maxBodyBytes": "1Mi"}, "spec.capture decides"),
    "the sampling unit": ({"spec.sampling.unit": "Key"}, "spec.sampling.unit decides"),
    "the sampling key": ({"spec.sampling.key": {"header": "x-user"}}, "spec.sampling.key decides"),
    "what happens without a key": ({"spec.sampling.onMissingKey": "Skip"}, "spec.sampling.onMissingKey decides"),
    "rates of classes": (
        {
            "spec.sampling.classRates": [{"class": "long", "rate": "9%"}],
            "spec.classes.0.when": {"tools": True},
            "spec.criteria.1.class": "default",
        },
        "spec.sampling.classRates decides",
    ),
    "the mirror": ({"spec.mirror": {"replicas": 2}}, "spec.mirror decides"),
    "the arms": ({"spec.arms.control": "Enabled"}, "spec.arms decides"),
    "hardware": ({"spec.hardware.policy": "Report"}, "spec.hardware decides"),
    "classes": ({"spec.classes.0.when": {"stream": True}}, "spec.classes decides"),
    "the SLO": ({"spec.slo.ttft": "3s"}, "spec.slo decides"),
    "coverage": ({"spec.coverage": {"minRequests": "1%"}}, "spec.coverage decides"),
    "comparison added": ({"spec.comparison": {"output": "Parity"}}, "spec.comparison decides"),
    "criteria": ({"spec.criteria.1.margin": "2%"}, "spec.criteria decides"),
    "a criterion removed": ({"spec.criteria.1": ABSENT}, "spec.criteria decides"),
    "a longer duration": ({"spec.duration": "3h"}, "duration can only be shortened"),
    "end conditions": ({"spec.endConditions.pairs": 1}, "spec.endConditions decides"),
    "the start deadline": ({"spec.startDeadline": "1h"}, "spec.startDeadline decides"),
    "a start time added": (
        {"spec.schedule": {"startTime": "2027-01-15T08:00:00Z"}},
        "spec.schedule decides",
    ),
    "hours of the day added": (
        {"spec.schedule": {"dailyWindow": {"from": "09:00", "to": "17:00"}}},
        "spec.schedule decides",
    ),
    "the live path guard added": (
        {"spec.livePathGuard": {"maxErrorIncrease": "1%"}},
        "spec.livePathGuard decides",
    ),
}


def test_every_field_that_cannot_change_has_a_case_and_no_other_has() -> None:
    refused = {
        change.removeprefix("spec.").split(".")[0] for changes, _ in NO_LONGER_POSSIBLE.values() for change in changes
    }
    frozen = {rule["fieldPath"].split(".")[2] for rule in _root_rules() if "decides the evidence" in rule["message"]}
    assert refused == frozen | {"duration"}


@pytest.mark.parametrize("duration", ["119m", "1h"])
def test_a_duration_may_be_shortened_again_and_again_and_never_back(
    runs: Runs, started: dict[str, Any], duration: str
) -> None:
    shorter = manifest({"spec.duration": duration}, base=started)
    assert runs.update_refusal(shorter) is None
    below = manifest({"spec.duration": "59m"}, base=started)
    assert "minDuration (default 24h) must not exceed duration" in (runs.update_refusal(below) or "accepted")


def test_an_ended_run_refuses_what_a_started_one_refuses(runs: Runs, started: dict[str, Any]) -> None:
    ended = runs.write_status(started["metadata"]["name"], {"phase": "Complete", "verdict": "Fail"})
    longer = manifest({"spec.slo.ttft": "9s"}, base=ended)
    assert "spec.slo decides" in (runs.update_refusal(longer) or "accepted")
    assert runs.update_refusal(manifest({"spec.ttlAfterFinished": "1h"}, base=ended)) is None


@pytest.fixture
def pending(runs: Runs) -> Iterator[dict[str, Any]]:
    """A stored run that has not started."""
    stored = runs.create(manifest({}))
    yield stored
    runs.delete(stored["metadata"]["name"])


@pytest.fixture
def started(runs: Runs, pending: dict[str, Any]) -> dict[str, Any]:
    """A stored run that is being measured."""
    return runs.write_status(pending["metadata"]["name"], {"phase": "Preparing"})


@pytest.mark.parametrize("change", STAYS_POSSIBLE.values(), ids=STAYS_POSSIBLE.keys())
def test_a_started_run_lets_through(runs: Runs, started: dict[str, Any], change: Mapping[str, Any]) -> None:
    assert runs.update_refusal(manifest(change, base=started)) is None


@pytest.mark.parametrize(("change", "message"), NO_LONGER_POSSIBLE.values(), ids=NO_LONGER_POSSIBLE.keys())
def test_a_started_run_refuses(runs: Runs, started: dict[str, Any], change: Mapping[str, Any], message: str) -> None:
    assert message in (runs.update_refusal(manifest(change, base=started)) or "accepted")


@pytest.mark.parametrize(("change", "message"), NO_LONGER_POSSIBLE.values(), ids=NO_LONGER_POSSIBLE.keys())
def test_a_run_that_has_not_started_lets_the_same_through(
    runs: Runs, pending: dict[str, Any], change: Mapping[str, Any], message: str
) -> None:
    assert runs.update_refusal(manifest(change, base=pending)) is None, message


def test_the_patch_of_the_candidate_is_kept_as_it_was_written(runs: Runs, pending: dict[str, Any]) -> None:
    patch = pending["spec"]["arms"]["candidate"]["patch"]
    assert patch == {"spec": {"template": {"spec": {"containers": [{"name": "engine", "args": ["--cache"]}]}}}}


def test_the_server_fills_in_what_the_models_default_to(runs: Runs, pending: dict[str, Any]) -> None:
    assert ShadowRun.parse(manifest({})).spec.to_json() == pending["spec"]


def test_every_field_of_the_status_survives_the_server(runs: Runs, pending: dict[str, Any]) -> None:
    written = full_status().to_json()
    assert runs.write_status(pending["metadata"]["name"], written)["status"] == written


def test_a_status_outside_its_bounds_is_refused(runs: Runs, pending: dict[str, Any]) -> None:
    document = pending | {"status": {"phase": "Dreaming"}}
    assert "Unsupported value" in (runs.status_refusal(document) or "accepted")


def test_writing_the_status_does_not_count_as_a_change_of_the_spec(runs: Runs, pending: dict[str, Any]) -> None:
    name = pending["metadata"]["name"]
    assert runs.write_status(name, {"phase": "Preparing"})["metadata"]["generation"] == 1
    assert runs.read(name)["spec"] == pending["spec"]


def test_an_unknown_field_is_told(runs: Runs) -> None:
    assert 'unknown field "spec.sampling.rat"' in (runs.refusal(manifest({"spec.sampling.rat": "1%"})) or "accepted")


def test_kubectl_shows_the_columns_a_person_looks_for(server: Any, runs: Runs, pending: dict[str, Any]) -> None:
    runs.write_status(
        pending["metadata"]["name"],
        {
            "phase": "Complete",
            "verdict": "Pass",
            "pairs": 1234,
            "withinSLO": "98.1% / 97.9%",
            "expiryTime": "2026-12-01T00:00:00Z",
            "funnel": {"requests": {"seen": 56789}},
        },
    )
    shown = server.kubectl("get", f"shadowruns.{GROUP}", "-n", pending["metadata"]["namespace"]).splitlines()
    assert shown[0].split() == ["NAME", "PHASE", "VERDICT", "SEEN", "PAIRS", "WITHIN-SLO", "EXPIRES", "AGE"]
    row = " ".join(shown[1].split())
    assert row.startswith("prefix-cache Complete Pass 56789 1234 98.1% / 97.9% 2026-12-01T00:00:00Z")


RATE_OF_CLASSES = "with sampling.classRates the rate cannot change"


def test_a_started_run_with_rates_of_classes_refuses_another_rate(runs: Runs) -> None:
    of_classes = {
        "spec.sampling.classRates": [{"class": "long", "rate": "9%"}],
        "spec.classes.0.when": {"tools": True},
        "spec.criteria.1.class": "default",
    }
    stored = runs.create(manifest(of_classes))
    name = stored["metadata"]["name"]
    try:
        assert runs.update_refusal(manifest({"spec.sampling.rate": "2%"}, base=stored)) is None
        started = runs.write_status(name, {"phase": "Preparing"})
        refusal = runs.update_refusal(manifest({"spec.sampling.rate": "2%"}, base=started))
        assert RATE_OF_CLASSES in (refusal or "accepted")
        assert runs.update_refusal(manifest({"spec.suspend": True}, base=started)) is None
    finally:
        runs.delete(name)
