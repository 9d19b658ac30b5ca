"""Whether a candidate got rid of the hard (long) requests by failing them: survivors look fast. Nothing else.

A fixed test on counts, beside the criteria's levels and not among them: it takes requests as independent, and allows
neither for failures that come in waves nor for many looks or classes. Failures are counted without their times.
"""

import math

from shadowrun_operator.judge.figures import percent
from shadowrun_operator.judge.funnel import ArmCounts, Count, Funnel
from shadowrun_operator.judge.rules import Rules

HARD_FAILURES = 10
HARD_SCORE = 2.33
HARD_TOKEN_SHARE = 0.05
HARD_RATIO = 1.25
HARD_SPREAD = 2.0


def hard_drop(rules: Rules, funnel: Funnel) -> str:
    """A sentence with the numbers where it did, in a class or over all of them; else "".

    With requests r and tokens t of failures F (candidate), G (baseline), admitted A, completed C (candidate), and the
    excess X = F - G, all of these must hold:

    * X_r >= 10 and X_r >= 2.33 sqrt(F_r + G_r): the candidate fails more (1 % one-sided for independent requests at one
      look; pairs failed by both are included, which makes it stricter).
    * X_t / A_t > 5 %: it matters in tokens.
    * min(F_t / F_r, X_t / X_r) >= max(1.25, 1 + 2.33 * 2 / sqrt(F_r)) * C_t / C_r: what it fails is longer than what it
      completes, by more than chance if lengths vary with a standard deviation of up to twice their mean.

    Thus its coverage in tokens is far below its coverage in requests, and the baseline's is not. Where it completes
    nothing, nothing was singled out; its failures count in every criterion as the worst result there is anyway.
    """
    scopes = [(f'class "{c.name}"', c.admitted, c.arms) for c in funnel.classes]
    scopes.append(("all classes together", funnel.admitted, funnel.arms))
    for name, admitted, arms in scopes:
        ours = arms.get(rules.candidate, ArmCounts())
        base = arms.get(rules.baseline, ArmCounts())
        if _is_hard_drop(admitted, ours, base):
            return (
                f"The candidate failed the long requests of {name}: {ours.failures.requests} of"
                f" {admitted.requests} requests ({percent(ours.failures.requests, admitted.requests)}) but"
                f" {percent(ours.failures.tokens, admitted.tokens)} of the tokens; the baseline failed"
                f" {percent(base.failures.requests, admitted.requests)} and"
                f" {percent(base.failures.tokens, admitted.tokens)}. Failed requests had"
                f" {ours.failures.tokens / ours.failures.requests:.0f} tokens on average, completed ones"
                f" {ours.completed.tokens / ours.completed.requests:.0f}."
            )
    return ""


def _is_hard_drop(admitted: Count, ours: ArmCounts, base: ArmCounts) -> bool:
    failed, completed = ours.failures, ours.completed
    excess = failed - base.failures
    if not completed.requests or not admitted.tokens:
        return False
    if excess.requests < max(HARD_FAILURES, HARD_SCORE * math.sqrt(failed.requests + base.failures.requests)):
        return False
    ratio = max(HARD_RATIO, 1 + HARD_SCORE * HARD_SPREAD / math.sqrt(failed.requests))
    length = min(failed.tokens / failed.requests, excess.tokens / excess.requests)
    matters = excess.tokens / admitted.tokens > HARD_TOKEN_SHARE
    return matters and length >= ratio * completed.tokens / completed.requests
