"""Runs made of synthetic pairs, counted as a mirror and a capture pod would count them. For tests of the judge only."""

import math
import random
from collections.abc import Callable, Sequence

from shadowrun_mirror.blocks import BlockSeries, weight_of
from shadowrun_mirror.config import WARM_UP, Indicator
from shadowrun_mirror.evidence import (
    Amount,
    ArmEvidence,
    CaptureEvidence,
    CaptureWindow,
    ClassEvidence,
    Evidence,
    Source,
    Window,
    added,
)
from shadowrun_operator.judge.facts import Facts, Hardware
from shadowrun_operator.judge.merge import Merged, merged
from shadowrun_operator.judge.report import Report
from shadowrun_operator.judge.rules import Criterion, Rules
from shadowrun_operator.judge.thresholds import indicators
from shadowrun_operator.judge.verdict import judge

SLO_TTFT_S = 2.0
TOKENS_PER_BYTE = 0.25

NOTHING = Amount()


def source(pod: str = "mirror-0", sequence: int = 1) -> Source:
    return Source(pod=pod, pod_uid=f"uid-{pod}", epoch="e", sequence=sequence, time=0.0)


def z_of(indicator: Indicator, baseline_s: float, challenger_s: float) -> int | None:
    """The indicator as `shadowrun_mirror.config.Indicator` defines it, from the times to first token."""
    if indicator.metric == "Failures":
        return int(math.isinf(baseline_s)) - int(math.isinf(challenger_s))
    if indicator.metric == "WithinSLO":
        return int(challenger_s <= SLO_TTFT_S) - int(baseline_s <= SLO_TTFT_S)
    if indicator.baseline_limit_s is None or indicator.challenger_limit_s is None:
        return None
    return int(challenger_s <= indicator.challenger_limit_s) - int(baseline_s <= indicator.baseline_limit_s)


class Recorder:
    """Counts pairs into windows. Every latency of an arm is its time to first token; infinity is a timeout."""

    def __init__(self) -> None:
        self.windows = {0: Window(id=0), 1: Window(id=1)}
        self.indicators: tuple[Indicator, ...] = ()

    def pair(self, number: int, second: int, ttft: dict[str, float], size: int = 4000, name: str = "default") -> None:
        window = self.windows[number]
        evidence = window.classes.setdefault(name, ClassEvidence())
        amount = Amount(requests=1, bytes=size)
        evidence.received += amount
        evidence.admitted += amount
        for arm, seconds in ttft.items():
            self._result(evidence.arms.setdefault(arm, ArmEvidence()), seconds, amount)
        baseline = next(iter(ttft.values()))
        for indicator in self.indicators if number else ():
            if indicator.traffic_class not in ("", name):
                continue
            for arm, seconds in list(ttft.items())[1:]:
                z = z_of(indicator, baseline, seconds)
                if z is None:
                    continue
                series = window.pairs.setdefault(arm, {}).setdefault(indicator.criterion, BlockSeries())
                if indicator.heaviest is None:
                    series.add(second, z)
                else:
                    even = z_of(indicator, baseline, baseline) or 0
                    series.add_weighed(second, z, weight_of(size, indicator.heaviest), even)
        if not number:
            return
        for arm, seconds in list(ttft.items())[1:]:
            more = int(math.isinf(seconds)) - int(math.isinf(baseline))
            if more:
                evidence.failing.setdefault(arm, BlockSeries()).add(second, size, more)
        window.first_pair = min(second, second if window.first_pair is None else window.first_pair)
        window.last_pair = max(second, second if window.last_pair is None else window.last_pair)

    def drop(self, number: int, reason: str, requests: int, size: int = 4000, name: str = "default") -> None:
        evidence = self.windows[number].classes.setdefault(name, ClassEvidence())
        amount = Amount(requests=requests, bytes=requests * size)
        evidence.received += amount
        evidence.dropped = added(evidence.dropped, {reason: amount})

    def evidence(self, pod: str = "mirror-0") -> Evidence:
        return Evidence(
            run_uid="run", source=source(pod), config_version=1, copying=False, expired=False, windows=self.windows
        )

    def capture(
        self, *, sampled: Amount = NOTHING, oversized: Amount = NOTHING, plain: Amount = NOTHING
    ) -> CaptureEvidence:
        """Capture as it saw it if nothing was lost; the arguments add to window 1."""
        windows: dict[int, CaptureWindow] = {}
        for number, window in self.windows.items():
            received = sum((c.received for c in window.classes.values()), Amount())
            windows[number] = CaptureWindow(sampled=received, plain=Amount(requests=1000, bytes=4_000_000))
        windows[1] = windows[1].merged(CaptureWindow(sampled=sampled, oversized=oversized, plain=plain))
        return CaptureEvidence(
            run_uid="run",
            source=source("capture-0"),
            directive_version=1,
            copying=False,
            active_requests=0,
            windows=windows,
        )

    def merged(self, **more: Amount) -> Merged:
        return merged([self.evidence()], [self.capture(**more)], warmed=Window(id=WARM_UP), final=True)

    @staticmethod
    def _result(arm: ArmEvidence, seconds: float, amount: Amount) -> None:
        for histogram in (arm.ttft, arm.tpot, arm.e2e):
            histogram.add(seconds)
        if math.isinf(seconds):
            arm.failed = added(arm.failed, {"Timeout": amount})
            return
        arm.completed += amount
        if seconds <= SLO_TTFT_S:
            arm.within_slo += amount
        arm.usage.answers += 1
        arm.usage.body_bytes += amount.bytes
        arm.usage.prompt_tokens += round(amount.bytes * TOKENS_PER_BYTE)


BETTER = Criterion(name="faster", metric="TTFT", quantile=0.5, require="Better")
NOT_SLOWER = Criterion(name="not-slower", metric="TTFT", quantile=0.5, require="NotWorse", margin=0.1)
SLO_KEPT = Criterion(name="slo", metric="WithinSLO", require="NotWorse", margin=0.05)
NO_ERRORS = Criterion(name="errors", metric="Failures", require="NotWorse", margin=0.02, critical=True)
DEFAULT_RULES = Rules(criteria=(BETTER, NOT_SLOWER, SLO_KEPT, NO_ERRORS))

Answer = Callable[[random.Random, float], float]


def lognormal(draw: random.Random, sigma: float = 0.5) -> float:
    return 0.5 * math.exp(draw.gauss(0.0, sigma))


def equal(_draw: random.Random, baseline_s: float) -> float:
    return baseline_s


def faster(_draw: random.Random, baseline_s: float) -> float:
    return 0.6 * baseline_s


def slower(_draw: random.Random, baseline_s: float) -> float:
    return 1.6 * baseline_s


def recorded(
    rules: Rules = DEFAULT_RULES,
    candidate: Answer = faster,
    *,
    pairs: int = 600,
    warm_up: int = 400,
    seed: int = 1,
    control: Answer | None = None,
    names: Sequence[str] = ("default",),
) -> Recorder:
    """A run: a warm-up, limits frozen from it, and `pairs` counted pairs, two a second, spread over the classes."""
    draw = random.Random(seed)
    recorder = Recorder()
    for number, count in ((0, warm_up), (1, pairs)):
        recorder.indicators = indicators(rules, recorder.windows[0]) if number else ()
        for i in range(count):
            baseline = lognormal(draw)
            ttft = {"baseline": baseline, "candidate": candidate(draw, baseline)}
            if control is not None:
                ttft["control"] = control(draw, baseline)
            recorder.pair(number, 1_000_000 + i // 2, ttft, name=names[i % len(names)])
    return recorder


def facts(recorder: Recorder, end_reason: str = "DurationReached", matched: bool | None = True) -> Facts:
    return Facts(
        run="x",
        run_uid="run",
        end_reason=end_reason,
        indicators=recorder.indicators,
        hardware=Hardware(matched=matched),
    )


def judged(recorder: Recorder, rules: Rules = DEFAULT_RULES, **more: Amount) -> Report:
    return judge(rules, recorder.merged(**more), facts(recorder))
