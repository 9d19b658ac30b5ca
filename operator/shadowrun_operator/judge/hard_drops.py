"""Whether a candidate got rid of the hard (long) requests by failing them: survivors look fast. Nothing else.

First it must matter. Then either that is beyond chance, or it forbids a Pass: long requests that come together, a
nightly batch, fail in too few blocks of time for any test, and what was failed is failed all the same. The test, on
failures by blocks of time, is valid at every look, beside the criteria's levels and not among them. Two things must be
shown, at levels shared among the classes and the whole run: at `MORE_ALPHA` that the candidate fails more than the
baseline, so that arms which fail alike meet a false Fail with that probability at most; and at `LONGER_ALPHA` that what
it fails more is longer than the average request. If only that is false, the Fail has the wrong name: a candidate that
fails so many more requests, long or not, is worse.
"""

import math
from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.evidence import Amount, ClassEvidence

from shadowrun_operator.judge.figures import percent
from shadowrun_operator.judge.funnel import ArmCounts, Count, Funnel
from shadowrun_operator.judge.halves import Half
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
"""Of the time with pairs: failures of one wave, shorter than a sixty-fourth of it, count as one or two."""

_Scope = tuple[str, ClassEvidence, Count, dict[str, ArmCounts]]


class HardDrop(msgspec.Struct, frozen=True, kw_only=True):
    """What matters about the candidate's failures, in a sentence with the numbers; `proven` if it is beyond chance."""

    proven: bool
    message: str


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """Of the blocks in which the arms failed unlike: how clear it is that the candidate fails more, and longer ones.

    What each score must exceed is infinite below `HARD_BLOCKS`: as few say nothing.
    """

    blocks: int = 0
    more: float = 0.0
    more_needed: float = math.inf
    longer: float = 0.0
    longer_needed: float = math.inf

    @property
    def are_beyond_chance(self) -> bool:
        """Whether neither is chance."""
        return self.more > self.more_needed and self.longer > self.longer_needed

    @property
    def sentence(self) -> str:
        """Why they are not."""
        if self.blocks < HARD_BLOCKS:
            found = f"the arms failed unlike in {self.blocks} blocks of time, and {HARD_BLOCKS} are needed"
        else:
            found = (
                f"over {self.blocks} blocks of time the candidate fails more by a score of {self.more:.1f} (needed"
                f" {self.more_needed:.1f}), and longer ones by {self.longer:.1f} (needed {self.longer_needed:.1f})"
            )
        return f"Whether that is chance can't be told: {found}."


def hard_drop(rules: Rules, evidence: Merged, funnel: Funnel) -> HardDrop | None:
    """What is proven, in a class or over all of them; else the first that matters without being proven; else None.

    With requests r and tokens t of failures F (candidate), G (baseline), admitted A, completed C (candidate), and the
    excess X = F - G, it matters if all of these hold:

    * X_r >= 10 and X_t / A_t > 5 %.
    * min(F_t / F_r, X_t / X_r) >= 1.25 * C_t / C_r: what it fails is longer than what it completes.

    It is proven if `scores` say so. Thus its coverage in tokens is far below its coverage in requests, and the
    baseline's is not. Where it completes nothing, nothing was singled out; its failures count in every criterion as the
    worst result there is anyway.
    """
    scopes = _scopes(evidence, funnel)
    found: list[HardDrop] = []
    level: int | None = None
    for name, counted, admitted, arms in scopes:
        ours = arms.get(rules.candidate, ArmCounts())
        base = arms.get(rules.baseline, ArmCounts())
        if not matters(admitted, ours, base):
            continue
        failing = counted.failing.get(rules.candidate, BlockSeries())
        level = _level(rules, evidence) if level is None else level
        said = scores(failing, counted.admitted - counted.in_flight, level, len(scopes))
        message = _sentence(admitted, ours, base)
        if said.are_beyond_chance:
            return HardDrop(proven=True, message=f"The candidate failed the long requests of {name}: {message}")
        message = f"The candidate failed long requests of {name}: {message} {said.sentence}"
        found.append(HardDrop(proven=False, message=message))
    return found[0] if found else None


def hard_drop_by_halves(rules: Rules, evidence: Merged, funnel: Funnel, halves: tuple[Half, ...]) -> HardDrop | None:
    """The same where arms may change places: then it is proven only if it is in the whole and in each half.

    A node may have done what only one half shows, and not the arm. But what matters in one half is never silence: the
    other half, in which nothing failed, must not hide it.
    """
    found = hard_drop(rules, evidence, funnel)
    if not halves:
        return found
    of_halves = [(half.name, hard_drop(rules, half.evidence, half.funnel)) for half in halves]
    if found is None:
        messages = [f"In the {name} half alone: {drop.message}" for name, drop in of_halves if drop is not None]
        return HardDrop(proven=False, message=messages[0]) if messages else None
    if found.proven and not all(drop is not None and drop.proven for _, drop in of_halves):
        return HardDrop(proven=False, message=f"{found.message} It isn't proven in each half by itself.")
    return found


def matters(admitted: Count, ours: ArmCounts, base: ArmCounts) -> bool:
    """Whether, chance aside, the candidate fails enough more, enough of the tokens, and long enough requests."""
    failed, completed = ours.failures, ours.completed
    excess = failed - base.failures
    if not completed.requests or not admitted.tokens or excess.requests < HARD_FAILURES:
        return False
    length = min(failed.tokens / failed.requests, excess.tokens / excess.requests)
    long = length >= HARD_RATIO * completed.tokens / completed.requests
    return long and excess.tokens / admitted.tokens > HARD_TOKEN_SHARE


def block_level(counted: Iterable[BlockSeries]) -> int:
    """The finest level at which all of these together have pairs in `MOST_BLOCKS` blocks at most.

    Only blocks with pairs are counted: hours between daily windows, or of a suspended run, are no part of it.
    """
    known = list(counted)
    level = max((series.level for series in known), default=0)
    ids = {key >> level - series.level for series in known for key in series.sums}
    while len(ids) > MOST_BLOCKS:
        level, ids = level + 1, {key >> 1 for key in ids}
    return level


def _level(rules: Rules, evidence: Merged) -> int:
    """`block_level` of the run, by all that was counted of the candidate in blocks."""
    found = list(evidence.counted.pairs.get(rules.candidate, {}).values())
    found += [c.failing[rules.candidate] for c in evidence.counted.classes.values() if rules.candidate in c.failing]
    return block_level(found)


def scores(failing: BlockSeries, ended: Amount, level: int, scopes: int = 1) -> Scores:
    """Whether the candidate fails more than the baseline, and more of the long requests, at every look.

    `failing` has by block the requests d and bytes b that only the candidate failed, less those that only the baseline
    failed; it is taken at `level`; `scopes` share the levels of the test. With m the mean size of all ended pairs, two
    sums over J blocks are held against their own size,

        sum(d) / sqrt(sum(d^2))    and    sum(b - m d) / sqrt(sum((b - m d)^2)),

    both of mean 0 where arms fail alike, and where failing has nothing to do with length. Their bound is in `sequence`.
    Failures of the same block count as one, so those that come together prove no more than they do.
    """
    if not ended.requests:
        return Scores()
    sums = np.array(list(failing.at_level(level).sums.values()), np.float64).reshape(-1, 2)
    more, longer = _score(sums[:, 0]), _score(sums[:, 1] - ended.bytes / ended.requests * sums[:, 0])
    if len(sums) < HARD_BLOCKS:
        return Scores(blocks=len(sums), more=more, longer=longer)
    return Scores(
        blocks=len(sums),
        more=more,
        more_needed=least_score(len(sums), MORE_ALPHA / scopes),
        longer=longer,
        longer_needed=least_score(len(sums), LONGER_ALPHA / scopes),
    )


def _score(values: NDArray[np.float64]) -> float:
    size = math.sqrt(float(values @ values))
    return float(values.sum()) / size if size else 0.0


def _sentence(admitted: Count, ours: ArmCounts, base: ArmCounts) -> str:
    failed, completed = ours.failures, ours.completed
    return (
        f"{failed.requests} of {admitted.requests} requests ({percent(failed.requests, admitted.requests)}) but"
        f" {percent(failed.tokens, admitted.tokens)} of the tokens; the baseline failed"
        f" {percent(base.failures.requests, admitted.requests)} and {percent(base.failures.tokens, admitted.tokens)}."
        f" Failed requests had {failed.tokens / failed.requests:.0f} tokens on average, completed ones"
        f" {completed.tokens / completed.requests:.0f}."
    )


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
