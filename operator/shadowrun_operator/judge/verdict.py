"""The verdict: `judge(rules, evidence, facts)`, the same for a live run and a stored report.

Pass only if every gating criterion passes and no guard objects; Fail on a refuted criterion or dropped hard requests;
else Inconclusive. What objects and in which order is the table in `guards`. Nothing but the three arguments is read.
"""

from shadowrun_operator.judge.circumstances import circumstances
from shadowrun_operator.judge.criteria import CriterionResult, Outcome
from shadowrun_operator.judge.display import arm_reports, class_reports
from shadowrun_operator.judge.facts import Facts
from shadowrun_operator.judge.funnel import funnel
from shadowrun_operator.judge.guards import Case, Finding, case_of, findings, gravest, standing
from shadowrun_operator.judge.hard_drops import MORE_ALPHA
from shadowrun_operator.judge.matches import matches
from shadowrun_operator.judge.merge import Merged, scopes
from shadowrun_operator.judge.missing import missing_weights, worst_cases
from shadowrun_operator.judge.report import METHOD, Report
from shadowrun_operator.judge.rules import Rules
from shadowrun_operator.judge.thresholds import HEAVIEST
from shadowrun_operator.judge.words import criterion_sentence, names

ALL_PASSED = "AllCriteriaPassed"
NOTHING_TO_PROVE = "NoGatingCriteria"


def judge(rules: Rules, evidence: Merged, facts: Facts) -> Report:
    """The report with its verdict. `evidence` should be final; if it is not, the verdict can't be a Pass or Fail."""
    counts = funnel(evidence, rules.baseline, superset=rules.superset, external=rules.external)
    case = case_of(rules, evidence, facts, counts)
    found = findings(case)
    verdict, reason, message = _conclusion(found, case.gating)
    if facts.attempt > 1:
        message = f"Attempt {facts.attempt} of this spec. {message}"
    views = scopes(evidence.counted)
    if facts.hardware.matched is None and not rules.hardware_required:
        message = f"Hardware not verified. {message}"
    return Report(
        verdict=verdict,
        reason=reason,
        message=message,
        findings=found,
        criteria=case.results,
        funnel=counts,
        arms=arm_reports(rules, views, counts),
        classes=class_reports(views),
        worst_cases=worst_cases(rules, counts, case.results, missing_weights(rules, evidence, facts)),
        matches=matches(rules, evidence),
        method=METHOD.format(
            pass_alpha=rules.pass_alpha, fail_alpha=rules.fail_alpha, heaviest=HEAVIEST, hard_alpha=MORE_ALPHA
        ),
        circumstances=circumstances(rules, evidence, facts, counts, views[""]),
        rules=rules,
        facts=facts,
        evidence=evidence,
    )


def prospect(case: Case) -> tuple[Outcome, str]:
    """What the verdict would be if the run ended in a normal way now, with what is counted so far, and its message."""
    verdict, _, message = _conclusion(standing(case), case.gating)
    return verdict, message


def judged_again(report: Report) -> Report:
    """The report that today's judge makes of a stored report's rules, evidence and facts."""
    return judge(report.rules, report.evidence, report.facts)


def _conclusion(found: tuple[Finding, ...], gating: tuple[CriterionResult, ...]) -> tuple[Outcome, str, str]:
    worst = gravest(found)
    if worst is not None:
        return ("Fail" if worst.group == "Refuted" else "Inconclusive"), worst.reason, worst.message
    if not gating or any(r.outcome != "Pass" for r in gating):
        return "Inconclusive", NOTHING_TO_PROVE, f"{len(gating)} criteria take part in the verdict; 1 is needed."
    narrowest, *rest = sorted(gating, key=lambda r: (r.require != "Better", (r.lower or 0.0) - r.limit))
    return "Pass", ALL_PASSED, criterion_sentence(narrowest) + names(rest, "Also hold")
