"""Whether the control, a second baseline, differs from the baseline by more than half a margin. No verdict.

For shares the difference expected is 0 and the margin the criterion's. For latencies z of the control contains the
margin, so what is expected is the share of the baseline's own answers between the two limits, and half of that is
tolerated. Two-sided, `NOISE_ALPHA` shared among the gating criteria, in bounds for a single look (with the caution of
short runs): they are narrower than those of criteria, so that noise is seen sooner than anything passes, and what one
look takes for noise another may still clear, for it ends no run. How often it errs is in `tests/bench/verdict`.
"""

import msgspec
from shadowrun_mirror.evidence import ArmEvidence
from shadowrun_mirror.histogram import GAMMA, Histogram

from shadowrun_operator.judge.criteria import estimate_of, series_of
from shadowrun_operator.judge.facts import Facts
from shadowrun_operator.judge.interval import Estimate
from shadowrun_operator.judge.merge import Merged
from shadowrun_operator.judge.rules import LATENCIES, Criterion, Rules
from shadowrun_operator.judge.thresholds import histogram_of

NOISE_ALPHA = 0.05


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """Mean of z between equal arms, from `least` to `most`, and how far from it an arm may be."""

    least: float = 0.0
    most: float = 0.0
    tolerated: float = 0.0

    def is_missed(self, found: Estimate, alpha: float) -> bool:
        """Whether the mean lies outside, by one look at level `alpha` on either side."""
        low, high = found.once(alpha)
        return low > self.most + self.tolerated or high < self.least - self.tolerated


def noise(rules: Rules, evidence: Merged, facts: Facts) -> str:
    """A sentence with the numbers where the control differs in a gating criterion; else ""."""
    arm = rules.control
    if arm is None or not rules.gating:
        return ""
    alpha = NOISE_ALPHA / 2 / len(rules.gating)
    known: dict[tuple[str, str], Histogram] = {}
    for criterion in rules.gating:
        found = estimate_of(rules, evidence, arm, criterion.name)
        if found is None or not found.decidable:
            continue  # the candidate's pairs are the same ones, so TooFewPairs says it
        expected = _expected(rules, evidence, facts, criterion, known)
        if expected.is_missed(found, alpha):
            low, high = found.once(alpha)
            return (
                f'The control differs from the baseline in "{criterion.name}": {_points(found.mean)} points'
                f" [{_points(low)}, {_points(high)}] over {found.pairs} pairs, expected"
                f" {_points((expected.least + expected.most) / 2)} ± {100 * expected.tolerated:.1f}."
            )
    return ""


def expected_of_latency(baseline: Histogram, limit_s: float, ratio: float) -> Expected:
    """What equal arms show at a limit, by the baseline's own answers; bins leave it open by one bin."""
    if not baseline.count or ratio == 1.0:
        return Expected()
    at = baseline.share_at_most(limit_s)
    least, most = (baseline.share_at_most(limit_s * ratio * wider) - at for wider in (1.0, GAMMA))
    return Expected(least=least, most=most, tolerated=abs(least + most) / 4)


def _expected(
    rules: Rules, evidence: Merged, facts: Facts, criterion: Criterion, known: dict[tuple[str, str], Histogram]
) -> Expected:
    """`known` has the baseline's histograms by class and metric, so that none is added up twice."""
    if criterion.metric not in LATENCIES:
        return Expected(tolerated=criterion.margin / 2)
    series = series_of(evidence, rules.control or "", criterion.name)
    if series.weighed:  # no histogram knows weights; the mirror has counted what equal arms would show
        even = series.even / series.weight
        return Expected(least=even, most=even, tolerated=abs(even) / 2)
    indicator = facts.indicator(criterion.name)
    if indicator is None or indicator.baseline_limit_s is None:
        return Expected()
    key = (criterion.traffic_class, criterion.metric)
    if key not in known:
        known[key] = _of_baseline(rules, evidence, criterion)
    return expected_of_latency(known[key], indicator.baseline_limit_s, criterion.ratio)


def _of_baseline(rules: Rules, evidence: Merged, criterion: Criterion) -> Histogram:
    whole = Histogram()
    for name, of_class in evidence.counted.classes.items():
        if criterion.traffic_class in ("", name):
            whole = whole.merged(histogram_of(of_class.arms.get(rules.baseline, ArmEvidence()), criterion.metric))
    return whole


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"
