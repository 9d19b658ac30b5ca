"""Count: the evidence of this replica. It knows numbers, names from the configuration, and nothing else.

Everything runs on one event loop and each method updates all it has to without awaiting, so a snapshot taken at any
instant adds up: a pair appears once when it is admitted and once when its last arm has ended.
"""

import math
from collections.abc import Mapping

import msgspec

from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.config import WARM_UP, Indicator
from shadowrun_mirror.evidence import Amount, ArmEvidence, ClassEvidence, Evidence, Source, Window
from shadowrun_mirror.measure import ArmResult, pair_indicator
from shadowrun_mirror.reasons import DropReason, ExcludeReason


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """An admitted pair, under the rules in force at that moment. The first arm is the baseline."""

    window: int
    traffic_class: str
    size: int  # body bytes
    arms: tuple[str, ...]
    indicators: tuple[Indicator, ...]
    complete_at: float  # monotonic seconds: the copy had been read
    admitted_at: float  # monotonic seconds
    admitted_utc: float
    block_s: int


class Counts:
    """Cumulative since the process started; `epoch` names that start."""

    def __init__(self, run_uid: str, pod: str, pod_uid: str, epoch: str) -> None:
        self._run_uid = run_uid
        self._identity = (pod, pod_uid, epoch)
        self._sequence = 0
        self._windows: dict[int, Window] = {}

    def lost(self, window: int, traffic_class: str, size: int, reason: ExcludeReason | DropReason) -> None:
        """A copy that did not become a pair."""
        counted = self._class(window, traffic_class)
        one = Amount(requests=1, bytes=size)
        counted.received += one
        by_reason = counted.excluded if isinstance(reason, ExcludeReason) else counted.dropped
        by_reason[reason.value] = by_reason.get(reason.value, Amount()) + one

    def admitted(self, pair: Pair) -> None:
        """A copy that became a pair; it is in flight until `ended`."""
        counted = self._class(pair.window, pair.traffic_class)
        one = Amount(requests=1, bytes=pair.size)
        counted.received += one
        counted.admitted += one
        counted.in_flight += one
        counted.queue.add(pair.admitted_at - pair.complete_at)
        for arm in pair.arms:
            counted.arms.setdefault(arm, ArmEvidence())

    def ended(self, pair: Pair, results: Mapping[str, ArmResult], utc: float) -> None:
        """All arms' results of a pair at once; `utc` is now."""
        window, counted = self._window(pair.window), self._class(pair.window, pair.traffic_class)
        one = Amount(requests=1, bytes=pair.size)
        counted.in_flight -= one
        for arm in pair.arms:
            _count_arm(counted.arms[arm], results[arm], one)
        self._count_writes(counted, pair, results)
        window.first_pair = utc if window.first_pair is None else min(window.first_pair, utc)
        window.last_pair = utc if window.last_pair is None else max(window.last_pair, utc)
        if pair.window != WARM_UP:
            _count_indicators(window, pair, results)

    def snapshot(self, utc: float, config_version: int, copying: bool, expired: bool) -> Evidence:
        """All that was counted. It shares the live counters: encode it before anything else runs."""
        self._sequence += 1
        pod, pod_uid, epoch = self._identity
        return Evidence(
            run_uid=self._run_uid,
            source=Source(pod=pod, pod_uid=pod_uid, epoch=epoch, sequence=self._sequence, time=utc),
            config_version=config_version,
            copying=copying,
            expired=expired,
            windows=self._windows,
        )

    def _window(self, number: int) -> Window:
        if number not in self._windows:
            self._windows[number] = Window(id=number)
        return self._windows[number]

    def _class(self, window: int, traffic_class: str) -> ClassEvidence:
        return self._window(window).classes.setdefault(traffic_class, ClassEvidence())

    @staticmethod
    def _count_writes(counted: ClassEvidence, pair: Pair, results: Mapping[str, ArmResult]) -> None:
        written = {arm: at for arm in pair.arms if (at := results[arm].written_at) is not None}
        if written:
            counted.arms[min(written, key=lambda arm: written[arm])].sent_first += 1
            counted.forward.add(max(written.values()) - pair.admitted_at)


def _count_arm(counted: ArmEvidence, result: ArmResult, one: Amount) -> None:
    if result.failure is not None:
        counted.failed[result.failure.value] = counted.failed.get(result.failure.value, Amount()) + one
    else:
        counted.completed += one
    if result.within_slo:
        counted.within_slo += one
    for histogram, value in ((counted.ttft, result.ttft), (counted.tpot, result.tpot), (counted.e2e, result.e2e)):
        if value is not None:
            histogram.add(value)
    if result.tokens is not None:
        usage = counted.usage
        usage.answers += 1
        usage.body_bytes += one.bytes
        usage.prompt_tokens += result.tokens.prompt
        usage.cached_tokens += result.tokens.cached
        usage.output_tokens += result.tokens.output


def _count_indicators(window: Window, pair: Pair, results: Mapping[str, ArmResult]) -> None:
    block = math.floor(pair.admitted_utc / pair.block_s)
    baseline, *challengers = pair.arms
    for challenger in challengers:
        series = window.pairs.setdefault(challenger, {})
        for indicator in pair.indicators:
            if indicator.traffic_class not in ("", pair.traffic_class):
                continue
            z = pair_indicator(indicator, results[baseline], results[challenger])
            if z is not None:
                series.setdefault(indicator.criterion, BlockSeries()).add(block, z)
