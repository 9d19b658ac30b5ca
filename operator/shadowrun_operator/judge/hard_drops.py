"""Whether a candidate got rid of the hard (long) requests by failing them: survivors look fast. Nothing else.

A test on failures by blocks of time, valid at every look, beside the criteria's levels and not among them. Two things
must be shown, at levels shared among the classes and the whole run: at `MORE_ALPHA` that the candidate fails more than
the baseline, so that arms which fail alike meet a false Fail with that probability at most; and at `LONGER_ALPHA` that
what it fails more is longer than the average request. If only that is false, the Fail has the wrong name: a candidate
that fails so many more requests, long or not, is worse.
"""

import math

import numpy as np
from numpy.typing import NDArray
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.evidence import Amount, ClassEvidence

from shadowrun_operator.judge.figures import percent
from shadowrun_operator.judge.funnel import ArmCounts, Count, Funnel
from shadowrun_operator.judge.merge import Merged, together
from shadowrun_operator.judge.rules import Rules
from shadowrun_operator.judge.sequence import least_score

MORE_ALPHA = 0.01
LONGER_ALPHA = 0.05
HARD_FAILURES = 10
HARD_BLOCKS = 10
HARD_TOKEN_SHARE = 0.05
HARD_RATIO = 1.25
MOST_BLOCKS = 64
"""Of the run: failures of one wave, shorter than a sixty-fourth of it, count as one or two, whatever their number."""

_Scope = tuple[str, ClassEvidence, Count, dict[str, ArmCounts]]


def hard_drop(rules: Rules, evidence: Merged, funnel: Funnel) -> str:
    """A sentence with the numbers where it did, in a class or over all of them; else "".

    With requests r and tokens t of failures F (candidate), G (baseline), admitted A, completed C (candidate), and the
    excess X = F - G, all of these must hold:

    * X_r >= 10 and X_t / A_t > 5 %: it matters.
    * min(F_t / F_r, X_t / X_r) >= 1.25 * C_t / C_r: what it fails is longer than what it completes.
    * `is_beyond_chance`: neither that it fails more nor that this is longer is chance.

    Thus its coverage in tokens is far below its coverage in requests, and the baseline's is not. Where it completes
    nothing, nothing was singled out; its failures count in every criterion as the worst result there is anyway.
    """
    found = _scopes(evidence, funnel)
    for name, counted, admitted, arms in found:
        ours = arms.get(rules.candidate, ArmCounts())
        base = arms.get(rules.baseline, ArmCounts())
        if not matters(admitted, ours, base):
            continue
        failing = counted.failing.get(rules.candidate, BlockSeries())
        ended, span = counted.admitted - counted.in_flight, _span_s(evidence)
        if is_beyond_chance(failing, ended, span / rules.block_s, len(found)):
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


def is_beyond_chance(failing: BlockSeries, ended: Amount, span: float, scopes: int = 1) -> bool:
    """Whether the candidate fails more than the baseline, and more of the long requests, at every look.

    `failing` has by block the requests d and bytes b that only the candidate failed, less those that only the baseline
    failed; `span` is the run's length in finest blocks; `scopes` share the levels. Blocks are joined until the run has
    `MOST_BLOCKS` of them at most. With m the mean size of all ended pairs, two sums over J blocks are held against
    their own size,

        sum(d) / sqrt(sum(d^2))    and    sum(b - m d) / sqrt(sum((b - m d)^2)),

    both of mean 0 where arms fail alike, and where failing has nothing to do with length. Their bound is in `sequence`.
    Failures of the same block count as one, so those that come together prove no more than they do.
    """
    if not ended.requests or span < 0:
        return False
    level = max(0, math.ceil(math.log2(max(1.0, span / MOST_BLOCKS))) - failing.level)
    sums = np.array(list(failing.at_level(failing.level + level).sums.values()), np.float64).reshape(-1, 2)
    longer = sums[:, 1] - ended.bytes / ended.requests * sums[:, 0]
    if len(sums) < HARD_BLOCKS:
        return False
    fails_more = _score(sums[:, 0]) > least_score(len(sums), MORE_ALPHA / scopes)
    return fails_more and _score(longer) > least_score(len(sums), LONGER_ALPHA / scopes)


def _score(values: NDArray[np.float64]) -> float:
    size = math.sqrt(float(values @ values))
    return float(values.sum()) / size if size else 0.0


def _scopes(evidence: Merged, funnel: Funnel) -> list[_Scope]:
    """Every class, and all together where there are several."""
    found: list[_Scope] = [
        (f'class "{c.name}"', together(evidence.counted, c.name), c.admitted, c.arms) for c in funnel.classes
    ]
    if len(found) > 1:
        found.append(("all classes together", _pooled(evidence), funnel.admitted, funnel.arms))
    return found


def _pooled(evidence: Merged) -> ClassEvidence:
    """Of all classes only what is needed here: to add up their histograms takes long."""
    whole = ClassEvidence()
    for c in evidence.counted.classes.values():
        whole = whole.merged(ClassEvidence(admitted=c.admitted, in_flight=c.in_flight, failing=c.failing))
    return whole


def _span_s(evidence: Merged) -> float:
    first, last = evidence.counted.first_pair, evidence.counted.last_pair
    return 0.0 if first is None or last is None else last - first


def matters(admitted: Count, ours: ArmCounts, base: ArmCounts) -> bool:
    """Whether, chance aside, the candidate fails enough more, enough of the tokens, and long enough requests."""
    failed, completed = ours.failures, ours.completed
    excess = failed - base.failures
    if not completed.requests or not admitted.tokens or excess.requests < HARD_FAILURES:
        return False
    length = min(failed.tokens / failed.requests, excess.tokens / excess.requests)
    long = length >= HARD_RATIO * completed.tokens / completed.requests
    return long and excess.tokens / admitted.tokens > HARD_TOKEN_SHARE
