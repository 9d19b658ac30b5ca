"""Count: the evidence of this replica. It knows numbers, names from the configuration, and nothing else.

Everything runs on one event loop and each method updates all it has to without awaiting, so a snapshot taken at any
instant adds up: a pair appears once when it is admitted and once when its last arm has ended. What the primary made of
the same request is added whenever both are known.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from shadowrun_mirror.blocks import BlockSeries, weight_of
from shadowrun_mirror.config import WARM_UP, Indicator
from shadowrun_mirror.evidence import (
    Amount,
    ArmEvidence,
    ClassEvidence,
    Evidence,
    Lineage,
    Matches,
    Source,
    Window,
    Wins,
)
from shadowrun_mirror.histogram import Histogram
from shadowrun_mirror.join import Outcome, OutcomeJoin
from shadowrun_mirror.measure import ArmResult, comparable, pair_indicator, sooner, token_sources_differ
from shadowrun_mirror.reasons import UNCOMPARED, DropReason, ExcludeReason, FlagReason, Likeness

SKEW_LIMIT_S = 0.010
"""Arms written to further apart than this are flagged. Inside a cluster both connect within a millisecond; ten are
enough for a queue in one engine to look different to the arm that came later."""

_DOZEN = 16


def flags_of(results: Mapping[str, ArmResult]) -> list[FlagReason]:
    """What is to be known about an ended pair by its results alone. The first arm is the baseline."""
    flags: list[FlagReason] = []
    written = [result.written_at for result in results.values() if result.written_at is not None]
    if written and max(written) - min(written) > SKEW_LIMIT_S:
        flags.append(FlagReason.DISPATCH_SKEW)
    if token_sources_differ(results.values()):
        flags.append(FlagReason.TOKEN_SOURCES_DIFFER)
    return flags


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
    flags: tuple[FlagReason, ...] = ()  # what was known when it was admitted
    request_mark: int = 0  # `join.request_mark` of its request id; 0 without one


class Counts:
    """Cumulative since the process started; `epoch` names that start. `lag` is the histogram of the event loop's lag.

    `late_at(stamps)` says whether the process is too busy to stamp exactly, or was at one of these (monotonic).
    """

    def __init__(
        self,
        run_uid: str,
        pod: str,
        pod_uid: str,
        epoch: str,
        lag: Histogram | None = None,
        late_at: Callable[[Sequence[float]], bool] = lambda _: False,
    ) -> None:
        self._run_uid = run_uid
        self._identity = (pod, pod_uid, epoch)
        self._sequence = 0
        self._windows: dict[int, Window] = {}
        self._lag = lag or Histogram()
        self._late_at = late_at
        self._primary: OutcomeJoin[Pair] = OutcomeJoin()
        self._ended: list[tuple[Pair, Mapping[str, ArmResult], set[FlagReason], float]] = []

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
            if arm not in counted.arms:
                counted.arms[arm] = ArmEvidence()
        if pair.request_mark:
            outcome = self._primary.pair(pair.request_mark, pair)
            if outcome is not None:
                self._count_primary(pair, outcome)

    def primary_ended(self, mark: int, outcome: Outcome) -> bool:
        """What the primary made of the request marked `mark`; whether a pair for it is known already.

        Log lines come before or after their copy: whichever is second is counted. One without a pair is forgotten.
        """
        pair = self._primary.outcome(mark, outcome)
        if pair is not None:
            self._count_primary(pair, outcome)
        return pair is not None

    def traced(self, window: int, seen: Lineage) -> None:
        """Add what is known of the lineage of one selected copy."""
        counted = self._window(window)
        counted.lineage = counted.lineage.merged(seen)

    def ended(self, pair: Pair, results: Mapping[str, ArmResult], utc: float) -> set[FlagReason]:
        """All arms' results of a pair at once; `utc` is now. Returns what the pair was flagged with.

        They are counted by the dozen, or when the next snapshot is taken: one at a time, each on cold caches, costs
        three times as much. Until then the pair is in flight.
        """
        flags = {*pair.flags, *flags_of(results)}
        if self._late_at([stamp for result in results.values() for stamp in result.stamps]):
            flags.add(FlagReason.LAGGED)
        self._ended.append((pair, results, flags, utc))
        if len(self._ended) >= _DOZEN:
            self._catch_up()
        return flags

    def _catch_up(self) -> None:
        while self._ended:  # one by one: what breaks on a pair takes no other with it
            self._count_ended(*self._ended.pop(0))

    def _count_ended(self, pair: Pair, results: Mapping[str, ArmResult], flags: set[FlagReason], utc: float) -> None:
        """First all that follows from the results, then all additions: what breaks on a pair leaves it in flight."""
        window, counted = self._window(pair.window), self._class(pair.window, pair.traffic_class)
        one = Amount(requests=1, bytes=pair.size)
        baseline, *challengers = pair.arms
        per_arm = comparable(results)
        arms = [(counted.arms[arm], per_arm[arm]) for arm in pair.arms]
        wins = [(challenger, sooner(results[baseline], results[challenger])) for challenger in challengers]
        likenesses = [(arm, found) for arm in challengers if (found := results[arm].likeness) is not None]
        written = {arm: at for arm in pair.arms if (at := results[arm].written_at) is not None}
        block = math.floor(pair.admitted_utc / pair.block_s)
        judged = pair.window != WARM_UP
        indicators = _indicators(pair, results) if judged else []
        failing = _failing(pair, results) if judged else []
        counted.in_flight -= one
        for arm_counted, result in arms:
            _count_arm(arm_counted, result, one)
        if written:
            counted.arms[min(written, key=written.__getitem__)].sent_first += 1
            counted.forward.add(max(written.values()) - pair.admitted_at)
        for challenger, z in wins:
            _count_win(counted, challenger, z)
        for challenger, found in likenesses:
            _count_likeness(counted, window, challenger, found, block)
        for flag in flags:
            counted.flagged[flag.value] = counted.flagged.get(flag.value, Amount()) + one
        window.first_pair = utc if window.first_pair is None else min(window.first_pair, utc)
        window.last_pair = utc if window.last_pair is None else max(window.last_pair, utc)
        for series, z, weight, even in indicators:
            _count_indicator(_series(window, *series), block, z, weight, even)
        for challenger, more in failing:
            counted.failing.setdefault(challenger, BlockSeries()).add(block, pair.size, more)

    def snapshot(self, utc: float, config_version: int, copying: bool, expired: bool) -> Evidence:
        """All that was counted. It shares the live counters: encode it before anything else runs."""
        self._catch_up()
        self._sequence += 1
        pod, pod_uid, epoch = self._identity
        return Evidence(
            run_uid=self._run_uid,
            source=Source(pod=pod, pod_uid=pod_uid, epoch=epoch, sequence=self._sequence, time=utc),
            config_version=config_version,
            copying=copying,
            expired=expired,
            windows=self._windows,
            lag=self._lag,
        )

    def _window(self, number: int) -> Window:
        if number not in self._windows:
            self._windows[number] = Window(id=number)
        return self._windows[number]

    def _class(self, window: int, traffic_class: str) -> ClassEvidence:
        classes = self._window(window).classes
        counted = classes.get(traffic_class)
        if counted is None:
            counted = classes[traffic_class] = ClassEvidence()
        return counted

    def _count_primary(self, pair: Pair, outcome: Outcome) -> None:
        primary = self._class(pair.window, pair.traffic_class).primary
        one = Amount(requests=1, bytes=pair.size)
        setattr(primary, outcome.kind, getattr(primary, outcome.kind) + one)
        if outcome.first_byte_s is not None:
            primary.first_byte.add(outcome.first_byte_s)


def _count_arm(counted: ArmEvidence, result: ArmResult, one: Amount) -> None:
    if result.failure is not None:
        counted.failed[result.failure.value] = counted.failed.get(result.failure.value, Amount()) + one
    else:
        counted.completed += one
    if result.within_slo:
        counted.within_slo += one
    for name in ("ttft", "tpot", "e2e", "gap", "per_token"):
        value: float | None = getattr(result, name)
        if value is not None:
            histogram: Histogram = getattr(counted, name)
            histogram.add(value)
    if result.tokens is not None:
        usage = counted.usage
        usage.answers += 1
        usage.body_bytes += one.bytes
        usage.prompt_tokens += result.tokens.prompt
        usage.cached_tokens += result.tokens.cached
        usage.output_tokens += result.tokens.output or 0


def _count_win(counted: ClassEvidence, challenger: str, z: int) -> None:
    wins = counted.wins.get(challenger)
    if wins is None:
        wins = counted.wins[challenger] = Wins()
    wins.pairs += 1
    wins.won += z > 0
    wins.lost += z < 0


def _count_likeness(counted: ClassEvidence, window: Window, challenger: str, found: Likeness, block: int) -> None:
    counted.matches.setdefault(challenger, Matches()).add(found)
    if found not in UNCOMPARED:
        window.differing.setdefault(challenger, BlockSeries()).add(block, 0 if found is Likeness.MATCH else -1)


def _indicators(pair: Pair, results: Mapping[str, ArmResult]) -> list[tuple[tuple[str, str], int, int, int]]:
    """Challenger and criterion, z, weight (0: not weighed) and z of an equal challenger, of each that says anything."""
    found: list[tuple[tuple[str, str], int, int, int]] = []
    baseline, *challengers = pair.arms
    weighed_by, weight = 0, 1
    for indicator in pair.indicators:
        if indicator.traffic_class not in ("", pair.traffic_class):
            continue
        by_tokens, heaviest = indicator.weight == "Tokens", indicator.heaviest
        if by_tokens and not heaviest:
            continue  # nothing to weigh it by yet
        if by_tokens and heaviest and heaviest != weighed_by:  # mostly the same for all
            weighed_by, weight = heaviest, weight_of(pair.size, heaviest)
        even = 0  # also what a share always has
        if by_tokens and indicator.baseline_limit_s is not None and len(challengers) > 1:  # asked of a control only
            even = pair_indicator(indicator, results[baseline], results[baseline]) or 0
        for challenger in challengers:
            z = pair_indicator(indicator, results[baseline], results[challenger])
            if z is not None:
                found.append(((challenger, indicator.criterion), z, weight if by_tokens else 0, even))
    return found


def _count_indicator(series: BlockSeries, block: int, z: int, weight: int, even: int) -> None:
    if weight:
        series.add_weighed(block, z, weight, even)
    else:
        series.add(block, z)


def _series(window: Window, challenger: str, criterion: str) -> BlockSeries:
    of_challenger = window.pairs.get(challenger)
    if of_challenger is None:
        of_challenger = window.pairs[challenger] = {}
    series = of_challenger.get(criterion)
    if series is None:
        series = of_challenger[criterion] = BlockSeries()
    return series


def _failing(pair: Pair, results: Mapping[str, ArmResult]) -> list[tuple[str, int]]:
    """Challengers of which, but for the baseline, one alone has failed: 1, or -1 where that is the baseline."""
    baseline, *challengers = pair.arms
    failed = results[baseline].failure is not None
    return [
        (challenger, more) for challenger in challengers if (more := (results[challenger].failure is not None) - failed)
    ]
