"""From observation and progress to the judge, and from its report to the status. Pure; judges nothing itself."""

from shadowrun_operator.api.status import MESSAGE_LENGTH, ReportRef, Status, shortened
from shadowrun_operator.judge.criteria import CriterionResult
from shadowrun_operator.judge.funnel import Funnel
from shadowrun_operator.judge.guards import Finding
from shadowrun_operator.judge.hours import hours
from shadowrun_operator.judge.matches import ArmMatches
from shadowrun_operator.judge.merge import Merged
from shadowrun_operator.judge.report import Report, packed_report, unpacked_report
from shadowrun_operator.judge.rules import Rules
from shadowrun_operator.judge.summary import (
    classes_status,
    comparison_status,
    criteria_status,
    dropped_status,
    failures_status,
    funnel_status,
    shown,
    within_slo_status,
)
from shadowrun_operator.judge.verdict import judge
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.known import facts_of
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.plan import Apply, Create, Step
from shadowrun_operator.reconcile.progress import Progress, progress
from shadowrun_operator.reconcile.record import RunRecord

REPORT_KEY = "report.json"
EVIDENCE_KEY = "evidence.json.zlib"


def report_of(seen: Observation, record: RunRecord) -> Report:
    """The judge's report on final evidence. An error of the judge is a verdict too: a run must end all the same."""
    done = progress(seen, final=True)
    facts = facts_of(seen, record, done.first_counted)
    try:
        return judge(done.rules, done.evidence, facts)
    except Exception as error:
        message = f"The evidence could not be judged: {type(error).__name__} in the judge. It is kept in the report."
        return Report(
            verdict="Inconclusive",
            reason="JudgeFailed",
            message=message,
            findings=(Finding(group="Void", reason="JudgeFailed", message=message),),
            criteria=(),
            funnel=done.funnel,
            arms=(),
            method="",
            rules=done.rules,
            facts=facts,
            evidence=done.evidence,
        )


def report_step(seen: Observation, report: Report) -> Step:
    """Keep the report: over one of this run that cannot be read, but never over somebody else's ConfigMap."""
    readable, evidence = packed_report(report)
    manifest: Manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": names.metadata(seen.ref, names.REPORT),
        "data": {REPORT_KEY: readable},
        "binaryData": {EVIDENCE_KEY: evidence},
    }
    return Create(manifest) if seen.object("ConfigMap", names.REPORT) is None else Apply(manifest)


def stored_report(seen: Observation) -> Report | None:
    """This run's report, once it has been written; one that cannot be read counts as none."""
    found = seen.object("ConfigMap", names.REPORT) or {}
    readable, evidence = found.get("data", {}).get(REPORT_KEY), found.get("binaryData", {}).get(EVIDENCE_KEY)
    if readable is None or evidence is None:
        return None
    try:
        report = unpacked_report(readable, evidence)
    except ValueError:
        return None
    return report if report.facts.run_uid == seen.run.uid else None


def with_progress(status: Status, done: Progress) -> Status:
    """The status with the funnel and the criteria as they stand while counting."""
    return _with_counts(status, done.rules, done.evidence, done.funnel, done.results, done.matches, done.first_counted)


def with_report(seen: Observation, status: Status, report: Report) -> Status:
    """The status with the verdict and everything it rests on."""
    counted = _with_counts(
        status, report.rules, report.evidence, report.funnel, report.criteria, report.matches, report.facts.started
    )
    return counted.model_copy(
        update={
            "verdict": report.verdict,
            "reason": report.reason,
            "message": shortened(report.message, MESSAGE_LENGTH),
            "report_ref": ReportRef(name=names.object_name(seen.run.name, names.REPORT)),
        }
    )


def _with_counts(
    status: Status,
    rules: Rules,
    evidence: Merged,
    funnel: Funnel,
    results: tuple[CriterionResult, ...],
    matched: tuple[ArmMatches, ...],
    first: float | None,
) -> Status:
    seen = hours(rules, evidence).of_the_day
    return status.model_copy(
        update={
            "start_time": status.start_time or (times.written(first) if first is not None else None),
            "pairs": shown(funnel.pairs.requests),
            "within_slo": within_slo_status(rules, funnel),
            "funnel": funnel_status(funnel),
            "dropped": dropped_status(funnel),
            "failures": failures_status(funnel),
            "criteria": criteria_status(results),
            "classes": classes_status(rules, funnel),
            "comparison": comparison_status(rules, matched),
            "provenance": status.provenance.model_copy(update={"hours_seen": seen}),
        }
    )
