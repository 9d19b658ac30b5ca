"""Whether the arms' times per output token can be held against each other: an engine counts its own tokens. No verdict.

A candidate's time per token is as short as it likes if it reports more tokens than it made, and it has none at all if
an answer comes in one piece or is said to be one token long. Pairs without one say nothing, so the rest would decide;
and an answer of one token meets any limit on it. So this concerns criteria on TPOT, and those on WithinSLO in classes
whose SLO limits it.
"""

from collections.abc import Iterator

from shadowrun_mirror.evidence import ArmEvidence, Usage

from shadowrun_operator.judge.figures import percent
from shadowrun_operator.judge.merge import Merged, together
from shadowrun_operator.judge.rules import Rules

MISSING_SHARE = 0.01
LENGTH_RATIOS = (0.8, 1.25)
"""Beyond these, what a limit on the time per token says is no longer about speed: margins are of that size."""

_Arms = tuple[str, ArmEvidence, ArmEvidence]  # what is spoken of, the candidate, the baseline


def without_tpot(rules: Rules, evidence: Merged) -> str:
    """A sentence where the candidate has a TPOT for too few answers, in a class where one gates; else "".

    Failed answers have one (+infinity), so this is no objection to failing.
    """
    for said, ours, base in _judged_by_tpot(rules, evidence):
        have, whole = ours.tpot.count, base.tpot.count
        if have < (1 - MISSING_SHARE) * whole:
            return (
                f"The candidate has a TPOT for {have} answers of {said} and the baseline for {whole},"
                f" {percent(whole - have, whole)} more than it; {MISSING_SHARE:.0%} is allowed. The others came in one"
                " piece or with a single token, and an arm must not choose the answers it is judged by."
            )
    return ""


def unlike_lengths(rules: Rules, evidence: Merged) -> str:
    """A sentence where the output tokens per answer are another number with the candidate, in such a class; else ""."""
    least, most = LENGTH_RATIOS
    for said, ours, base in _judged_by_tpot(rules, evidence):
        mean, theirs = _per_answer(ours.usage), _per_answer(base.usage)
        if mean is None or not theirs or least <= mean / theirs <= most:
            continue
        return (
            f"Tokens per answer are not comparable: the candidate reports {mean:.1f} output tokens for an answer of"
            f" {said} and the baseline {theirs:.1f}, {mean / theirs:.2f} times as many; from {least} to {most} is"
            " allowed. TPOT, or a limit on it, is about the time over that number: it says as much of the count as of"
            " the speed."
        )
    return ""


def judged_by_tpot(rules: Rules) -> tuple[str, ...]:
    """The classes ("" is all together) for which a gating criterion rests on times per token."""
    found: dict[str, None] = {}
    for c in rules.gating:
        if c.metric == "TPOT":
            found[c.traffic_class] = None
        if c.metric == "WithinSLO":
            found |= dict.fromkeys(name for name in rules.tpot_limits if c.traffic_class in ("", name))
    return tuple(found)


def _judged_by_tpot(rules: Rules, evidence: Merged) -> Iterator[_Arms]:
    for name in judged_by_tpot(rules):
        arms = together(evidence.counted, name).arms
        said = f'class "{name}"' if name else "all classes together"
        yield said, arms.get(rules.candidate, ArmEvidence()), arms.get(rules.baseline, ArmEvidence())


def _per_answer(usage: Usage) -> float | None:
    return usage.output_tokens / usage.answers if usage.answers else None
