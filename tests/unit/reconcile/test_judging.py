"""A run is judged on what was read after its end, once; and no report, readable or not, keeps it from ending."""

import copy
import dataclasses
from typing import Any

import msgspec
import pytest
from shadowrun_mirror.evidence import Amount
from shadowrun_mirror.reasons import FlagReason
from shadowrun_operator.judge.verdict import judged_again
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile import judging, progress
from shadowrun_operator.reconcile.judging import EVIDENCE_KEY, REPORT_KEY, report_of, report_step, stored_report
from shadowrun_operator.reconcile.plan import Apply, Create
from shadowrun_operator.reconcile.reconcile import reconcile

from tests.unit.reconcile.world import World

pytestmark = pytest.mark.verdict


def _ended() -> World:
    """Copying is over; the next passes read the last evidence."""
    world = World.with_spec()
    world.until("Finishing")
    return world


def _report() -> Manifest:
    world = World.with_spec()
    world.until("Complete")
    return world.objects["ConfigMap", "x-report"]


def test_the_stored_report_judged_again_is_the_same_report() -> None:
    world = World.with_spec()
    world.until("Complete")
    report = stored_report(world.observe())
    assert report is not None
    assert report.verdict == "Pass"
    assert judged_again(report) == report
    assert '"evidence"' not in world.objects["ConfigMap", "x-report"]["data"][REPORT_KEY]


def test_the_report_of_another_run_is_not_this_run_s_verdict() -> None:
    old = _report()
    old["data"][REPORT_KEY] = old["data"][REPORT_KEY].replace('"run_uid":"1111', '"run_uid":"2222')
    world = _ended()
    world.rate = 0
    world.objects["ConfigMap", "x-report"] = old
    assert stored_report(world.observe()) is None
    world.until("Complete")
    report = stored_report(world.observe())
    assert report is not None
    assert report.facts.run_uid == world.run.uid


def _not_json(report: Manifest) -> None:
    report["data"][REPORT_KEY] = "{"


def _of_another_kind(report: Manifest) -> None:
    report["data"][REPORT_KEY] = '{"verdict":"Pass"}'


def _no_evidence(report: Manifest) -> None:
    del report["binaryData"][EVIDENCE_KEY]


def _broken_evidence(report: Manifest) -> None:
    report["binaryData"][EVIDENCE_KEY] = "AAAA"


def _not_base64(report: Manifest) -> None:
    report["binaryData"][EVIDENCE_KEY] = "A"


def _empty(report: Manifest) -> None:
    del report["data"], report["binaryData"]


@pytest.mark.parametrize("spoil", [_not_json, _of_another_kind, _no_evidence, _broken_evidence, _not_base64, _empty])
def test_a_report_that_cannot_be_read_counts_as_none_and_is_replaced(spoil: Any) -> None:
    spoiled = _report()
    spoil(spoiled)
    world = _ended()
    world.objects["ConfigMap", "x-report"] = spoiled
    world.until("Complete")
    report = stored_report(world.observe())
    assert report is not None
    assert world.body["status"]["verdict"] == report.verdict == "Pass"


@pytest.mark.parametrize("deaf", [Create, Apply])
def test_a_report_that_cannot_be_stored_holds_up_neither_the_verdict_nor_the_end(
    deaf: type[Create | Apply], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = _ended()
    if deaf is Apply:
        world.objects["ConfigMap", "x-report"] = {"kind": "ConfigMap", "metadata": {"name": "x-report"}}
    carried_out = World.step

    def step(self: World, step: Any) -> None:
        if not (isinstance(step, deaf) and step.manifest["metadata"]["name"] == "x-report"):
            carried_out(self, step)

    monkeypatch.setattr(World, "step", step)
    waits: list[float] = []
    for _ in range(60):
        waits.append(world.turn().requeue_after)
        if world.phase == "Complete":
            break
    assert (world.phase, world.body["status"]["verdict"]) == ("Complete", "Pass")
    assert "reportRef" not in world.body["status"]
    assert waits.count(0.0) <= 2, "no pass follows another at once for ever"
    assert next(c for c in world.body["status"]["conditions"] if c["type"] == "Succeeded")["status"] == "True"


def test_an_error_of_the_judge_is_inconclusive_and_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(judging, "judge", fails)
    world = World.with_spec()
    world.until("Complete")
    status = world.body["status"]
    assert (status["verdict"], status["reason"], status["endReason"]) == (
        "Inconclusive",
        "JudgeFailed",
        "DurationReached",
    )
    assert "ZeroDivisionError" in status["message"]
    monkeypatch.undo()
    report = stored_report(world.observe())
    assert report is not None
    assert judged_again(report).verdict == "Pass", "the evidence is kept, so a mended judge can look at it"


def test_an_error_of_the_judge_while_counting_is_said_and_the_run_goes_on_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    world = World.with_spec(duration="2m", endConditions={"decided": True})
    world.until("Running")
    monkeypatch.setattr(progress, "case_of", fails)
    world.turn()
    world.turn()
    assert "The criteria cannot be judged: ZeroDivisionError" in world.body["status"]["message"]
    world.until("Complete")
    assert world.body["status"]["endReason"] == "DurationReached"


def test_a_run_that_is_decided_but_held_up_says_by_what_and_goes_on() -> None:
    world = World.with_spec(duration="2m", endConditions={"minDuration": "30s", "decided": True})
    world.until("Running")
    (pod,) = world.evidence
    for _ in range(25):
        world.turn()
        counted = world.evidence[pod].windows[1].classes["default"] if 1 in world.evidence[pod].windows else None
        if counted is not None:
            counted.flagged = {FlagReason.LAGGED: counted.admitted}
    assert world.phase == "Running"
    said = world.body["status"]["message"].partition("Every criterion is decided, but there is no verdict: ")[2]
    assert "too busy to stamp exactly" in said
    world.until("Complete")
    assert world.body["status"]["reason"] == "MirrorOverloaded"


@pytest.mark.parametrize("off", ["admitted", "in_flight", "received"])
@pytest.mark.parametrize("by", [-10_000, 10_000])
def test_counters_that_contradict_each_other_are_inconclusive_and_the_run_ends(off: str, by: int) -> None:
    world = _ended()
    world.rate = 0
    (evidence,) = world.evidence.values()
    counted = evidence.windows[1].classes["default"]
    amount = Amount(requests=by, bytes=by * 400)
    windows = copy.deepcopy(evidence.windows)
    setattr(windows[1].classes["default"], off, getattr(counted, off) + amount)
    world.evidence[evidence.source.pod_uid] = msgspec.structs.replace(evidence, windows=windows)
    world.until("Complete", turns=60)
    assert world.body["status"]["verdict"] == "Inconclusive"
    report = stored_report(world.observe())
    assert report is not None
    assert "EvidenceInconsistent" in {finding.reason for finding in report.findings}


def test_a_report_is_never_written_over_an_object_that_is_not_ours() -> None:
    seen = dataclasses.replace(_ended().observe(), objects={})
    assert seen.record is not None
    assert isinstance(report_step(seen, report_of(seen, seen.record)), Create)


@pytest.mark.parametrize("silent", ["mirror-0", "capture-0", "capture-1"])
def test_a_pod_that_runs_and_is_not_read_after_the_end_makes_the_evidence_incomplete(silent: str) -> None:
    world = _ended()
    world.silent = {silent}
    ended = world.now
    world.until("Complete")
    status = world.body["status"]
    assert (status["verdict"], status["reason"]) == ("Inconclusive", "EvidenceMissing")
    assert silent in status["message"]
    assert world.now > ended + 25, "it was waited for, as long as an answer may take"


def test_a_pod_that_answers_again_in_time_costs_nothing_but_time() -> None:
    world = _ended()
    world.silent = {"mirror-0"}
    for _ in range(4):
        world.turn()
    assert "verdict" not in world.body["status"]
    world.silent = set()
    world.until("Complete")
    assert world.body["status"]["verdict"] == "Pass"


def test_a_pod_on_its_way_out_is_waited_for_too() -> None:
    world = _ended()
    seen = world.observe()
    leaving = tuple(dataclasses.replace(pod, leaving=True, ready=False) for pod in seen.pods)
    late = dataclasses.replace(seen, now=seen.now + 10, pods=leaving)
    assert reconcile(late).status.verdict == "Pass"
    unread = dataclasses.replace(late, read=frozenset())
    assert reconcile(unread).status.verdict is None
    assert seen.record is not None
    assert report_of(unread, seen.record).reason == "EvidenceMissing"
