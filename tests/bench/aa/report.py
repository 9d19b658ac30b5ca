"""The tables of a series: how many decisions were right, and what every run said. No measuring here."""

import statistics
from collections.abc import Sequence

from scipy.stats import binomtest

from tests.bench.aa.experiments import Outcome, Truth, allowed_wrong

DEADLINE_S = 600
_WORDS: dict[Truth, str] = {
    "equal": "equal arms",
    "faster": "the candidate has the cache, the baseline not",
    "slower": "the baseline has the cache, the candidate not",
}


def is_met(truth: Truth, outcomes: Sequence[Outcome]) -> bool:
    """Whether these runs, all of one truth, reached the goal. A run that was not judged shows nothing."""
    judged = [outcome.judgement for outcome in outcomes]
    if truth == "equal":
        return judged.count("void") == 0 and judged.count("wrong") <= allowed_wrong(len(outcomes))
    return judged.count("right") == len(judged) and all(o.decided_s <= DEADLINE_S for o in outcomes)


def decisions(outcomes: Sequence[Outcome]) -> str:
    """One line a truth, in Markdown. The interval is Clopper and Pearson's, of the share of wrong decisions."""
    rows = [
        "| truth | runs | right | wrong | 95 % interval | undecided | not judged | median | longest | goal | met |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for truth, words in _WORDS.items():
        of_truth = [outcome for outcome in outcomes if outcome.truth == truth]
        if of_truth:
            rows.append(_decision_row(truth, words, of_truth))
    return "\n".join(rows)


def _decision_row(truth: Truth, words: str, outcomes: Sequence[Outcome]) -> str:
    judged = [outcome.judgement for outcome in outcomes]
    right, wrong, undecided, void = (judged.count(j) for j in ("right", "wrong", "undecided", "void"))
    times = sorted(outcome.decided_s for outcome in outcomes)
    goal = f"wrong ≤ {allowed_wrong(len(outcomes))}" if truth == "equal" else "all right in 10 min"
    met = "yes" if is_met(truth, outcomes) else "**no**"
    return (
        f"| {words} | {len(outcomes)} | {right} | {wrong} | {interval(wrong, len(outcomes) - void)} | {undecided} |"
        f" {void} | {minutes(statistics.median(times))} | {minutes(times[-1])} | {goal} | {met} |"
    )


def interval(hits: int, runs: int) -> str:
    """Clopper and Pearson's 95 % interval of a share; a dash without a run."""
    if not runs:
        return "–"
    low, high = binomtest(hits, runs).proportion_ci(method="exact")
    return f"{low:.0%} – {high:.0%}"


def each_run(outcomes: Sequence[Outcome]) -> str:
    """One line a run, in Markdown."""
    names = list(dict.fromkeys(name for outcome in outcomes for name in outcome.criteria))
    head = ["run", "cache", "seed", "verdict", "reason", *names, "pairs", "decided", "all gone", "judgement"]
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for o in outcomes:
        cells = [o.name, f"{o.baseline_cache} / {o.candidate_cache}", str(o.seed), o.verdict, o.reason]
        cells += [o.criteria.get(name, "–") for name in names]
        cells += [str(o.pairs), minutes(o.decided_s), minutes(o.complete_s), o.judgement]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def minutes(seconds: float) -> str:
    """As 3:07."""
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
