"""What counting a pair and judging a run cost, in CPU time of one process, in the round that was disturbed least.

The pairs are of three arms. The report judged has 50 criteria, 20 classes and a control, more than a spec may have.
"""

import math
import random
import time
from collections.abc import Callable

import msgspec
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.config import Indicator, Metric, Weight
from shadowrun_mirror.count import Counts, Pair
from shadowrun_mirror.evidence import Amount, ArmEvidence, ClassEvidence, Evidence, Source, Window
from shadowrun_mirror.measure import ArmResult
from shadowrun_mirror.shapes import Tokens
from shadowrun_operator.judge.facts import Facts
from shadowrun_operator.judge.merge import merged
from shadowrun_operator.judge.rules import Criterion, Rules
from shadowrun_operator.judge.thresholds import HEAVIEST
from shadowrun_operator.judge.verdict import judge

ARMS = ("baseline", "candidate", "control")
CRITERIA, CLASSES, PER_SPEC = 50, 20, 10
_KINDS: tuple[tuple[Metric, float | None], ...] = (
    ("TTFT", 0.5),
    ("TTFT", 0.95),
    ("E2E", 0.5),
    ("WithinSLO", None),
    ("Failures", None),
)
_BYTES = 4000


def counting_us(weight: Weight, pairs: int) -> float:
    """Microseconds for a pair and arm, with as many criteria as a spec may have; the least of seven rounds."""
    criteria = tuple(
        Indicator(
            criterion=f"c{i}",
            metric=_KINDS[i % len(_KINDS)][0],
            baseline_limit_s=0.5 if _KINDS[i % len(_KINDS)][1] else None,
            challenger_limit_s=0.55 if _KINDS[i % len(_KINDS)][1] else None,
            weight=weight,
            heaviest=HEAVIEST * _BYTES if weight == "Tokens" else None,
        )
        for i in range(PER_SPEC)
    )
    draw = random.Random(1)
    results = [{arm: _result(draw) for arm in ARMS} for _ in range(64)]

    def once() -> None:
        counted = Counts("uid", "pod", "pod-uid", "epoch")
        for i in range(pairs):
            pair = _pair(criteria, i)
            counted.admitted(pair)
            counted.ended(pair, results[i % 64], 1000.0 + i)

    return 1e6 * _least_s(once, 7) / pairs / len(ARMS)


def evidence_bytes(weight: Weight, pairs: int) -> float:
    """Bytes of JSON of one criterion's series of a challenger, after so many pairs in ten seconds each."""
    found = BlockSeries()
    draw = random.Random(2)
    for i in range(pairs):
        if weight == "Tokens":
            found.add_weighed(10 * i, draw.randint(-1, 1), draw.randint(1, 1000), 0)
        else:
            found.add(10 * i, draw.randint(-1, 1))
    return float(len(msgspec.json.encode(found)))


def judging_ms(criteria: int, rounds: int) -> float:
    """Milliseconds of CPU to judge a report; the least of the rounds."""
    rules, one, facts = _run(criteria)
    evidence = merged([one], [], final=True)
    return 1e3 * _least_s(lambda: judge(rules, evidence, facts), rounds)


def _least_s(once: Callable[[], object], rounds: int) -> float:
    found = []
    for _ in range(rounds):
        started = time.process_time()
        once()
        found.append(time.process_time() - started)
    return min(found)


def _pair(criteria: tuple[Indicator, ...], i: int) -> Pair:
    at = 1000.0 + i / 10
    return Pair(
        window=1,
        traffic_class="default",
        size=_BYTES,
        arms=ARMS,
        indicators=criteria,
        complete_at=at,
        admitted_at=at,
        admitted_utc=at,
        block_s=1,
    )


def _result(draw: random.Random) -> ArmResult:
    ttft = 0.5 * draw.lognormvariate(0, 0.5)
    return ArmResult(
        failure=None,
        ttft=ttft,
        tpot=0.02,
        e2e=3 * ttft,
        within_slo=ttft < 1,
        tokens=Tokens(prompt=1000, cached=0, output=100),
        written_at=1.0,
        gap=0.03,
        per_token=0.03,
    )


def _run(criteria: int) -> tuple[Rules, Evidence, Facts]:
    """Two pairs a second for an hour, spread over the classes; every other criterion is over all of them."""
    draw, names = random.Random(3), [f"class-{i}" for i in range(CLASSES)]
    kinds = [_KINDS[i % len(_KINDS)] for i in range(criteria)]
    known = tuple(
        Criterion(
            name=f"c{i}",
            metric=metric,
            quantile=quantile,
            require="NotWorse",
            margin=0.1,
            traffic_class=names[i % CLASSES] if i % 2 else "",
        )
        for i, (metric, quantile) in enumerate(kinds)
    )
    classes = {name: _class(draw) for name in names}
    pairs: dict[str, dict[str, BlockSeries]] = {arm: {} for arm in ARMS[1:]}
    for arm in ARMS[1:]:
        for criterion in known:
            series = pairs[arm][criterion.name] = BlockSeries()
            for at in range(0, 3600, 10 if criterion.traffic_class else 1):
                series.add(1_000_000 + at, draw.choice((-1, 0, 0, 1)))
    window = Window(id=1, first_pair=1e6, last_pair=1e6 + 3600, classes=classes, pairs=pairs)
    evidence = Evidence(
        run_uid="u",
        source=Source(pod="m", pod_uid="m", epoch="e", sequence=1, time=0.0),
        config_version=1,
        copying=False,
        expired=False,
        windows={1: window},
    )
    indicators = tuple(
        Indicator(
            criterion=c.name,
            metric=c.metric,
            traffic_class=c.traffic_class,
            baseline_limit_s=0.5,
            challenger_limit_s=0.55,
        )
        for c in known
    )
    return (
        Rules(criteria=known, control="control", external=True),
        evidence,
        Facts(run="x", run_uid="u", end_reason="DurationReached", indicators=indicators),
    )


def _class(draw: random.Random, pairs: int = 360) -> ClassEvidence:
    whole = Amount(requests=pairs, bytes=_BYTES * pairs)
    found = ClassEvidence(received=whole, admitted=whole)
    for arm in ARMS:
        results = found.arms[arm] = ArmEvidence(completed=whole, within_slo=whole)
        for _ in range(pairs):
            value = 0.5 * math.exp(draw.gauss(0, 0.8))
            for histogram in (results.ttft, results.tpot, results.e2e, results.gap, results.per_token):
                histogram.add(value)
    return found
