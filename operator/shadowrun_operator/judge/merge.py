"""`Merged`: the snapshots of all replicas as one body of evidence, warm-up and counted windows apart.

Takes the latest snapshot of each identity and adds different identities up, so the order and repetition of snapshots do
not matter. This module must not judge: it only adds and says what is missing.
"""

from collections.abc import Collection, Iterable
from functools import reduce
from typing import TypeVar

import msgspec
from shadowrun_mirror.config import WARM_UP
from shadowrun_mirror.evidence import (
    Amount,
    ArmEvidence,
    CaptureEvidence,
    CaptureWindow,
    ClassEvidence,
    Evidence,
    LivePath,
    Source,
    Window,
    added,
)
from shadowrun_mirror.histogram import Histogram

COUNTED, SECOND_WARM_UP, SECOND_HALF = 1, 2, 3
"""Windows after the warm-up; the last two only where arms change places halfway. The second warm-up isn't counted."""

_Snapshot = TypeVar("_Snapshot", Evidence, CaptureEvidence)


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a run. Fields without `warm_up` in their name are about the counted windows.

    `stranded[class]` is the part of `in_flight` that will never end: that of dead replicas and, once `final`, of all.
    `missing` names the pods whose evidence was expected and could not be had. `calibration` is the later part of the
    warm-up, from which limits are taken (see `calibration_of`). `on` and `off` are customers' requests with copying on
    and in pauses, over all windows, as `lag` is that of the mirrors. Where arms change places halfway and some of the
    second half is counted, `halves` has both apart, and `captures_of_halves` and `stranded_of_halves` what is `capture`
    and `stranded` of each; `warm_again` is when the first pair of the warm-up between them was complete.
    """

    final: bool
    warm_up: Window
    calibration: Window
    counted: Window
    capture: CaptureWindow
    stranded: dict[str, Amount] = {}
    mirrors: int = 0
    captures: int = 0
    missing: tuple[str, ...] = ()
    on: LivePath = msgspec.field(default_factory=LivePath)
    off: LivePath = msgspec.field(default_factory=LivePath)
    lag: Histogram = msgspec.field(default_factory=Histogram)
    halves: tuple[Window, ...] = ()
    captures_of_halves: tuple[CaptureWindow, ...] = ()
    stranded_of_halves: tuple[dict[str, Amount], ...] = ()
    warm_again: float | None = None

    @property
    def received(self) -> Amount:
        """Complete copies that the mirrors counted."""
        return sum((c.received for c in self.counted.classes.values()), Amount())

    @property
    def pairs(self) -> int:
        """Counted pairs whose last arm has ended."""
        return sum(c.admitted.requests - c.in_flight.requests for c in self.counted.classes.values())


def identity(source: Source) -> str:
    """The identity that counters belong to: pod uid and epoch."""
    return f"{source.pod_uid}/{source.epoch}"


def latest(snapshots: Iterable[_Snapshot]) -> dict[str, _Snapshot]:
    """The snapshot of the highest sequence for each identity, in the order of identities."""
    found: dict[str, _Snapshot] = {}
    for snapshot in snapshots:
        key = identity(snapshot.source)
        if key not in found or found[key].source.sequence < snapshot.source.sequence:
            found[key] = snapshot
    return dict(sorted(found.items()))


def merged(
    mirrors: Iterable[Evidence],
    captures: Iterable[CaptureEvidence],
    *,
    dead: Collection[str] = (),
    missing: Collection[str] = (),
    warmed: Window | None = None,
    final: bool = False,
) -> Merged:
    """All snapshots as one.

    `dead` holds identities (see `identity`) whose process is gone: what they had in flight is stranded. `missing` names
    pods that should have been read and were not. `warmed` is `calibration_mark` of the warm-up when the arms were warm,
    None before. `final` says that nothing more will come. Raises `ValueError` where
    snapshots belong to different runs.
    """
    by_mirror, by_capture = latest(mirrors), latest(captures)
    runs = {s.run_uid for s in by_mirror.values()} | {s.run_uid for s in by_capture.values()}
    if len(runs) > 1:
        raise ValueError(f"evidence of {len(runs)} different runs cannot be merged")
    warm_up, first, second = Window(id=WARM_UP), Window(id=COUNTED), Window(id=SECOND_HALF)
    captured, captured_again = CaptureWindow(), CaptureWindow()
    stranded: tuple[dict[str, Amount], dict[str, Amount]] = ({}, {})
    again: list[float] = []
    on, off, lag = LivePath(), LivePath(), Histogram()
    for key, snapshot in by_mirror.items():
        lag = lag.merged(snapshot.lag)
        for number, window in sorted(snapshot.windows.items()):
            if number == WARM_UP:
                warm_up = warm_up.merged(window)
                continue
            if number == SECOND_WARM_UP:
                again += [] if window.first_pair is None else [window.first_pair]
                continue
            if number == SECOND_HALF:
                second = second.merged(window)
            else:
                first = first.merged(window)
            if final or key in dead:
                of_half = stranded[number == SECOND_HALF]
                for name, of_class in window.classes.items():
                    of_half[name] = of_half.get(name, Amount()) + of_class.in_flight
    for copies in by_capture.values():
        for number, routed in sorted(copies.windows.items()):
            on, off = on.merged(routed.on), off.merged(routed.off)
            if number == SECOND_HALF:
                captured_again = captured_again.merged(routed)
            elif number not in (WARM_UP, SECOND_WARM_UP):
                captured = captured.merged(routed)
    return Merged(
        final=final,
        warm_up=warm_up,
        calibration=Window(id=WARM_UP) if warmed is None else calibration_of(warm_up, warmed),
        counted=first.merged(second) if second.classes else first,
        capture=captured.merged(captured_again),
        stranded=dict(sorted(added(*stranded).items())),
        mirrors=len(by_mirror),
        captures=len(by_capture),
        missing=tuple(sorted(missing)),
        on=on,
        off=off,
        lag=lag,
        halves=(first, second) if second.classes else (),
        captures_of_halves=(captured, captured_again) if second.classes else (),
        stranded_of_halves=stranded if second.classes else (),
        warm_again=min(again, default=None),
    )


def calibration_mark(warm_up: Window) -> Window:
    """What `calibration_of` needs to know of the warm-up so far: pairs and latencies, nothing else."""
    classes = {
        name: ClassEvidence(
            admitted=c.admitted,
            in_flight=c.in_flight,
            arms={arm: _since(result, ArmEvidence()) for arm, result in c.arms.items()},
        )
        for name, c in warm_up.classes.items()
    }
    return Window(id=warm_up.id, first_pair=warm_up.first_pair, last_pair=warm_up.last_pair, classes=classes)


def calibration_of(warm_up: Window, mark: Window) -> Window:
    """What the warm-up has counted since the mark: pairs that have ended since, all as admitted, and their latencies.

    Engines that have just started are slow: limits taken from those answers would be no quantile of the warm engine.
    """
    classes: dict[str, ClassEvidence] = {}
    for name, now in warm_up.classes.items():
        then = mark.classes.get(name, ClassEvidence())
        arms = {arm: _since(result, then.arms.get(arm, ArmEvidence())) for arm, result in now.arms.items()}
        classes[name] = ClassEvidence(
            admitted=(now.admitted - now.in_flight) - (then.admitted - then.in_flight), arms=arms
        )
    return Window(id=warm_up.id, first_pair=mark.last_pair, last_pair=warm_up.last_pair, classes=classes)


def _since(now: ArmEvidence, then: ArmEvidence) -> ArmEvidence:
    return ArmEvidence(ttft=now.ttft.since(then.ttft), tpot=now.tpot.since(then.tpot), e2e=now.e2e.since(then.e2e))


def together(window: Window, traffic_class: str) -> ClassEvidence:
    """The evidence of one class, or of all of them where `traffic_class` is ""."""
    if traffic_class:
        return window.classes.get(traffic_class, ClassEvidence())
    every = tuple(window.classes.values())
    return reduce(ClassEvidence.merged, every) if every else ClassEvidence()


def scopes(window: Window) -> dict[str, ClassEvidence]:
    """All classes together as "", then each of them in the order of their names."""
    return {name: together(window, name) for name in ("", *sorted(window.classes))}


def inconsistencies(evidence: Merged, arms: Collection[str]) -> tuple[str, ...]:
    """Sentences about counters that contradict each other; empty for evidence that adds up.

    The equations are those of `shadowrun_mirror.evidence`, in requests and in bytes, for each class and each arm.
    """
    found: list[str] = []
    for name, of_class in sorted(evidence.counted.classes.items()):
        left = sum((*of_class.excluded.values(), *of_class.dropped.values()), of_class.admitted)
        if left != of_class.received:
            found.append(f"class {name}: received {_said(of_class.received)}, accounted for {_said(left)}")
        for arm in arms:
            result = of_class.arms.get(arm)
            ended = Amount() if result is None else sum(result.failed.values(), result.completed)
            if ended + of_class.in_flight != of_class.admitted:
                found.append(
                    f"class {name}: admitted {_said(of_class.admitted)},"
                    f" {arm} accounts for {_said(ended + of_class.in_flight)}"
                )
    return tuple(found)


def _said(amount: Amount) -> str:
    return f"{amount.requests} requests of {amount.bytes} bytes"
