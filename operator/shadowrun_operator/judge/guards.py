"""What stands against a verdict, one function a rule. Each gives a `Finding` with the numbers, or None.

A finding says what the verdict is if no graver finding exists. The gravest group wins; inside a group, the first.

    group      rule, in this order        verdict        when
    Void       end of run                 Inconclusive   it ended in a way that is not judged: the end's reason;
                                                         NotEnded while more evidence may come
    Void       HardwareMismatch           Inconclusive   hardware.policy Require, and nodes differ or were not verified
    Void       NoEvidence                 Inconclusive   no counted pair
    Void       EvidenceMissing            Inconclusive   a pod could not be read, or none of capture where it is ours
    Void       EvidenceInconsistent       Inconclusive   counters contradict each other
    Void       ClocksApart                Inconclusive   the clocks of mirrors differ by more than the finest block
    Void       BaselineFailed             Inconclusive   the baseline failed over half of the pairs, or of a class's
    Void       HalfMissing                Inconclusive   arms were to change places, and no pair was counted after that
    Void       NoisyBaseline              Inconclusive   control differs from baseline, see `noise`; or its
                                                         cache holds another share, see `parity`
    Refuted    DroppedHardRequests        Fail           the candidate fails the long requests, see `dropped_hard`
    Refuted    CriterionFailed            Fail           a gating criterion is refuted
    Open       EvidenceLost               Inconclusive   more than 1 % of the selected were lost, in requests or tokens
    Open       LowCoverage                Inconclusive   fewer pairs than the floor of the run or of a class, in
                                                         requests or tokens, see `coverage`
    Open       LongRequestsFailed         Inconclusive   the candidate failed long requests with over 5 % of the tokens,
                                                         and that it isn't chance is not proven, see `hard_drops`
    Open       MirrorOverloaded           Inconclusive   more than 20 % of the pairs are Lagged
    Open       ArmsOutOfStep              Inconclusive   more than 20 % of the pairs are DispatchSkew
    Open       SendOrderBiased            Inconclusive   an arm was first too often or too rarely, see `parity`
    Open       TokenSourcesDiffer         Inconclusive   TPOT gates (as a metric, or in the SLO of WithinSLO), and more
                                                         than 1 % of its pairs have no equal count
    Open       TPOTMissing                Inconclusive   TPOT gates, and the candidate has it for over 1 % fewer answers
    Open       AnswerLengthsDiffer        Inconclusive   TPOT gates, and the output tokens per answer that the arms
                                                         report differ by more than a quarter, see `token_counts`
    Open       HalvesDisagree,            Inconclusive   a gating criterion is open for that reason
               TooFewPairs, NoThreshold,
               ThresholdDrifted, Undecided

Void findings take away every verdict, for the comparison itself is unsound. Open ones only forbid a Pass: what is
refuted on the pairs there are stays refuted. Where arms change places, Open rules that aren't about criteria are asked
of each half too. No rule of the group Void looks at how the candidate answered, and those of the group Open that do
(LongRequestsFailed, TokenSourcesDiffer, TPOTMissing, AnswerLengthsDiffer, a criterion's own outcome) take no Fail away,
so failing more cannot help a candidate here.
"""

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
from shadowrun_mirror.reasons import DropReason, FlagReason

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.judge.circumstances import flagged_pairs
from shadowrun_operator.judge.coverage import lacking_coverage
from shadowrun_operator.judge.criteria import CriterionResult, Gap
from shadowrun_operator.judge.facts import Facts
from shadowrun_operator.judge.figures import percent
from shadowrun_operator.judge.funnel import ArmCounts, Count, Funnel
from shadowrun_operator.judge.halves import Half, apart, outcomes
from shadowrun_operator.judge.hard_drops import hard_drop_by_halves
from shadowrun_operator.judge.merge import Merged, inconsistencies
from shadowrun_operator.judge.noise import noise
from shadowrun_operator.judge.parity import cache_bias, order_bias
from shadowrun_operator.judge.rules import Rules
from shadowrun_operator.judge.token_counts import judged_by_tpot, unlike_lengths, without_tpot
from shadowrun_operator.judge.words import criterion_sentence, names

Group = Literal["Void", "Refuted", "Open"]
GROUPS: tuple[Group, ...] = ("Void", "Refuted", "Open")

LOST_SHARE = 0.01
FLAGGED_SHARE = 0.2
"""A fifth: what is left must decide a median by itself, with room; less is the ordinary unrest of a busy node."""
BASELINE_FAILED_SHARE = 0.5
"""Requests that no arm can answer (a customer's mistakes) are equal on all sides, and may be many."""
_OF_ALL = (FlagReason.LAGGED, FlagReason.DISPATCH_SKEW)  # flags that concern every metric


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One objection: its group, a machine word, a sentence with the numbers."""

    group: Group
    reason: str
    message: str


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """All that a rule may look at."""

    rules: Rules
    evidence: Merged
    facts: Facts
    funnel: Funnel
    results: tuple[CriterionResult, ...]
    halves: tuple[Half, ...]  # none where the arms don't change places

    @property
    def gating(self) -> tuple[CriterionResult, ...]:
        """Results of the criteria that take part in the verdict."""
        return tuple(r for r in self.results if not r.informational)


Rule = Callable[[Case], Finding | None]


def case_of(rules: Rules, evidence: Merged, facts: Facts, funnel: Funnel) -> Case:
    """The case with what follows from the evidence: every criterion's outcome, and the halves."""
    results, halves = outcomes(rules, evidence, facts), apart(rules, evidence)
    return Case(rules=rules, evidence=evidence, facts=facts, funnel=funnel, results=results, halves=halves)


def findings(case: Case) -> tuple[Finding, ...]:
    """Every objection, the one that decides the verdict first; none of them means Pass."""
    ended = ended_early(case)
    found = [*([] if ended is None else [ended]), *standing(case)]
    return tuple(sorted(found, key=lambda f: GROUPS.index(f.group)))


def standing(case: Case) -> tuple[Finding, ...]:
    """Every objection but that the run goes on, or how it ended; the gravest first."""
    found = [finding for rule in _RULES if (finding := rule(case)) is not None]
    return tuple(sorted(found, key=lambda f: GROUPS.index(f.group)))


def ended_early(case: Case) -> Finding | None:
    """Whether the run ended in a way that must not be judged; its reason becomes the verdict's."""
    reason = case.facts.end_reason
    if not case.evidence.final or not reason:
        message = f"The run has not ended; {case.evidence.pairs} pairs are counted so far."
        return Finding(group="Void", reason="NotEnded", message=message)
    word = next((w for w in EndReason if w.value == reason), None)
    if word is not None and word.judged:
        return None
    sentence = word.sentence if word is not None else "The run ended for a reason that is not judged."
    told = f" {case.facts.end_message}" if case.facts.end_message else ""
    message = f"{sentence}{told} {case.evidence.pairs} pairs had been counted."
    return Finding(group="Void", reason=reason, message=message)


def hardware_mismatch(case: Case) -> Finding | None:
    """Whether the arms are known to have run on equal nodes, if the spec requires that."""
    if not case.rules.hardware_required or case.facts.hardware.matched:
        return None
    told = case.facts.hardware.message or "the nodes of the arms were never verified"
    return Finding(group="Void", reason="HardwareMismatch", message=f"The arms can't be compared: {told}.")


def no_evidence(case: Case) -> Finding | None:
    """Whether any pair was counted at all."""
    if case.evidence.pairs:
        return None
    message = (
        f"No pair was counted: {case.funnel.seen.requests} requests seen, {case.funnel.selected.requests} selected,"
        f" {case.funnel.drops.requests} dropped, evidence from {case.evidence.mirrors} mirror and"
        f" {case.evidence.captures} capture processes."
    )
    return Finding(group="Void", reason="NoEvidence", message=message)


def evidence_missing(case: Case) -> Finding | None:
    """Whether every process that counted could be read to the end."""
    if case.evidence.missing:
        names = ", ".join(case.evidence.missing)
        message = f"The last evidence of {len(case.evidence.missing)} pods could not be read: {names}."
        return Finding(group="Void", reason="EvidenceMissing", message=message)
    if not case.evidence.captures and not case.rules.external:
        message = (
            f"There is no evidence of capture (0 pods read), so {case.evidence.received.requests} requests were"
            " received out of an unknown number selected."
        )
        return Finding(group="Void", reason="EvidenceMissing", message=message)
    return None


def evidence_inconsistent(case: Case) -> Finding | None:
    """Whether the mirrors' counters add up."""
    wrong = inconsistencies(case.evidence, case.rules.arms)
    if not wrong:
        return None
    message = f"Counters contradict each other in {len(wrong)} places; the first: {wrong[0]}."
    return Finding(group="Void", reason="EvidenceInconsistent", message=message)


def clocks_apart(case: Case) -> Finding | None:
    """Whether the mirrors' blocks of time are the same ones: where they are not, every bound is too narrow."""
    ahead = case.facts.clocks
    if not ahead or max(ahead.values()) - min(ahead.values()) <= case.rules.block_s:
        return None
    first, last = min(ahead, key=ahead.__getitem__), max(ahead, key=ahead.__getitem__)
    message = (
        f"The clock of {last} was {ahead[last] - ahead[first]:.0f} s ahead of that of {first}: what all pairs of one"
        f" moment share lies in several blocks of time and looks like chance; {case.rules.block_s} s are allowed."
    )
    return Finding(group="Void", reason="ClocksApart", message=message)


def baseline_failed(case: Case) -> Finding | None:
    """Whether the baseline answered most of what it got, in the run, each half of it, and every class that gates.

    Arms that both fail everything are equal in every share, and would be no worse than each other.
    """
    named, scopes = {r.traffic_class for r in case.gating}, []
    for counts in (case.funnel, *(half.funnel for half in case.halves)):
        scopes.append(("the run" if counts is case.funnel else "one half", counts.arms, counts.pairs))
        scopes += [(f'class "{c.name}"', c.arms, c.pairs) for c in counts.classes if c.name in named]
    for said, arms, pairs in scopes:
        failed = arms.get(case.rules.baseline, ArmCounts()).failures.requests
        if failed > BASELINE_FAILED_SHARE * pairs.requests:
            message = (
                f"The baseline failed {failed} of {pairs.requests} pairs of {said} ({percent(failed, pairs.requests)}):"
                f" it is nothing to compare with; {BASELINE_FAILED_SHARE:.0%} is allowed."
            )
            return Finding(group="Void", reason="BaselineFailed", message=message)
    return None


def half_missing(case: Case) -> Finding | None:
    """Whether arms that were to change places were compared before only: whatever was found may follow the node."""
    if not case.halves or case.halves[1].evidence.pairs:
        return None
    message = f"The arms were to change places halfway: {case.evidence.pairs} pairs were counted before, none after."
    return Finding(group="Void", reason="HalfMissing", message=message)


def noisy_baseline(case: Case) -> Finding | None:
    """Whether the control, equal to the baseline, nevertheless differs from it; `noise` says by how much it may."""
    found = noise(case.rules, case.evidence, case.facts)
    return Finding(group="Void", reason="NoisyBaseline", message=found) if found else None


def dropped_hard(case: Case) -> Finding | None:
    """Whether the candidate got rid of the long requests by failing them; `hard_drops` says when."""
    found = hard_drop_by_halves(case.rules, case.evidence, case.funnel, case.halves)
    if found is None or not found.proven:
        return None
    return Finding(group="Refuted", reason="DroppedHardRequests", message=found.message)


def failed_long(case: Case) -> Finding | None:
    """Whether the candidate failed too much of the tokens in long requests, chance or not. It takes no Fail away."""
    found = hard_drop_by_halves(case.rules, case.evidence, case.funnel, case.halves)
    if found is None or found.proven:
        return None
    return Finding(group="Open", reason="LongRequestsFailed", message=found.message)


def unequal_caches(case: Case) -> Finding | None:
    """Whether the control's cache shows that it is no equal of the baseline."""
    found = cache_bias(case.rules, case.evidence)
    return Finding(group="Void", reason="NoisyBaseline", message=found) if found else None


def send_order(case: Case) -> Finding | None:
    """Whether the arms took turns in being sent to first. It never takes a Fail away."""
    found = order_bias(case.rules, case.evidence)
    return Finding(group="Open", reason="SendOrderBiased", message=found) if found else None


def criterion_failed(case: Case) -> Finding | None:
    """Whether a gating criterion is refuted; critical ones are named first."""
    failed = sorted((r for r in case.gating if r.outcome == "Fail"), key=lambda r: not r.critical)
    if not failed:
        return None
    message = criterion_sentence(failed[0]) + names(failed[1:], "Also violated")
    return Finding(group="Refuted", reason="CriterionFailed", message=message)


def evidence_lost(case: Case) -> Finding | None:
    """Whether more of what was selected was lost than can be overlooked, or capture counted less than arrived."""
    lost = sum(
        (case.funnel.dropped.get(r.value, Count()) for r in (DropReason.MIRROR_LOST, DropReason.LOST_IN_TRANSIT)),
        Count(),
    )
    missed, selected = case.funnel.uncounted, case.funnel.selected
    gone = lost + missed
    if gone.requests <= LOST_SHARE * selected.requests and gone.tokens <= LOST_SHARE * selected.tokens:
        return None
    uncounted = f"; capture missed {missed.requests} that did" if missed.requests else ""
    message = (
        f"{lost.requests} of {selected.requests} selected requests ({percent(lost.requests, selected.requests)},"
        f" {percent(lost.tokens, selected.tokens)} of the tokens) never became results: lost between capture and"
        f" mirror or with a mirror{uncounted}; {LOST_SHARE:.0%} is allowed."
    )
    return Finding(group="Open", reason="EvidenceLost", message=message)


def low_coverage(case: Case) -> Finding | None:
    """Whether enough became pairs, in the run and in every class the verdict speaks of; `coverage` has the rule."""
    found = lacking_coverage(case.rules, case.evidence, case.facts, case.funnel)
    return Finding(group="Open", reason="LowCoverage", message=found) if found else None


def tpot_missing(case: Case) -> Finding | None:
    """Whether the candidate left answers out of its TPOT. It never takes a Fail away."""
    found = without_tpot(case.rules, case.evidence)
    return Finding(group="Open", reason="TPOTMissing", message=found) if found else None


def lengths_differ(case: Case) -> Finding | None:
    """Whether the arms report too different numbers of tokens to compare TPOT. It never takes a Fail away."""
    found = unlike_lengths(case.rules, case.evidence)
    return Finding(group="Open", reason="AnswerLengthsDiffer", message=found) if found else None


def too_flagged(reason: FlagReason, limit: float, word: str, sentence: str) -> Rule:
    """The rule for a flag that too large a share of the pairs carries, in the run or in a class that gates.

    It never takes a Fail away, so a candidate that brings the flag about gains nothing by it.
    """

    def rule(case: Case) -> Finding | None:
        named = {c.traffic_class for c in case.rules.gating}
        wanted = {"", *named} if reason in _OF_ALL else set(judged_by_tpot(case.rules))
        scopes = [
            ("the run", "", case.funnel.pairs),
            *((f'class "{c.name}"', c.name, c.pairs) for c in case.funnel.classes),
        ]
        for said, name, pairs in scopes:
            flagged = flagged_pairs(case.evidence, reason, name) if name in wanted else 0
            if flagged > limit * pairs.requests:
                message = (
                    f"{flagged} of {pairs.requests} pairs of {said} ({percent(flagged, pairs.requests)}) {sentence};"
                    f" {limit:.0%} is allowed."
                )
                return Finding(group="Open", reason=word, message=message)
        return None

    return each_half(rule)


def each_half(rule: Rule) -> Rule:
    """The rule asked of the whole and, where the arms change places, of each half too: the first objection counts.

    For rules of the group Open only: an objection of the group Void to one half would take Fails away.
    """

    def of_all(case: Case) -> Finding | None:
        found = rule(case)
        for half in case.halves if found is None else ():
            of_half = rule(msgspec.structs.replace(case, evidence=half.evidence, funnel=half.funnel))
            if of_half is not None:
                return msgspec.structs.replace(of_half, message=f"In the {half.name} half alone: {of_half.message}")
        return found

    return of_all


def open_criterion(gap: Gap) -> Rule:
    """The rule for gating criteria that are open because of `gap`."""

    def rule(case: Case) -> Finding | None:
        found = [r for r in case.gating if r.outcome == "Inconclusive" and r.gap == gap]
        if not found:
            return None
        message = criterion_sentence(found[0]) + names(found[1:], "Open for the same reason")
        return Finding(group="Open", reason=gap, message=message)

    return rule


_RULES: tuple[Rule, ...] = (
    hardware_mismatch,
    no_evidence,
    evidence_missing,
    evidence_inconsistent,
    clocks_apart,
    baseline_failed,
    half_missing,
    noisy_baseline,
    unequal_caches,
    dropped_hard,
    criterion_failed,
    each_half(evidence_lost),
    each_half(low_coverage),
    failed_long,
    too_flagged(
        FlagReason.LAGGED,
        FLAGGED_SHARE,
        "MirrorOverloaded",
        "were measured while the mirror was too busy to stamp exactly, which adds to every arm's latencies alike and so"
        " makes them look more equal than they are",
    ),
    too_flagged(
        FlagReason.DISPATCH_SKEW,
        FLAGGED_SHARE,
        "ArmsOutOfStep",
        "reached the arms too far apart to have met the same moment",
    ),
    each_half(send_order),
    too_flagged(
        FlagReason.TOKEN_SOURCES_DIFFER,
        LOST_SHARE,
        "TokenSourcesDiffer",
        "have no equal time per token, because only one of the arms reported a number of tokens that can be believed,"
        " and an arm must not choose the answers it is judged by",
    ),
    each_half(tpot_missing),
    each_half(lengths_differ),
    open_criterion("HalvesDisagree"),
    open_criterion("TooFewPairs"),
    open_criterion("NoThreshold"),
    open_criterion("ThresholdDrifted"),
    open_criterion("Undecided"),
)


def gravest(found: Iterable[Finding]) -> Finding | None:
    """The finding that decides the verdict, if there is any."""
    return min(found, key=lambda f: GROUPS.index(f.group), default=None)
