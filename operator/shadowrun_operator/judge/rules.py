"""`Rules`: everything of the spec that the judge goes by, as plain numbers; and `rules_of`, which reads them.

The rules are part of the report, so that a stored report can be judged again. This module must not decide anything.
"""

import math
from typing import Literal

import msgspec
from shadowrun_mirror.config import Metric, Weight

from shadowrun_operator.api.quantities import MILLION, Percent
from shadowrun_operator.api.spec import DEFAULT_CLASS, ClassCondition, Spec

Require = Literal["Better", "NotWorse"]
LATENCIES = ("TTFT", "TPOT", "E2E")
MIN_ANSWERS = 20


class Criterion(msgspec.Struct, frozen=True, kw_only=True):
    """One statement about the candidate against the baseline.

    `traffic_class` "" means all classes together. `quantile` is in (0, 1), for latencies only. `margin` is a share:
    0.1 is a ratio of 10 % for latencies and 10 percentage points for shares.
    """

    name: str
    metric: Metric
    require: Require
    weight: Weight = "Requests"
    traffic_class: str = ""
    quantile: float | None = None
    margin: float = 0.0
    min_pairs: int = 200
    critical: bool = False
    informational: bool = False

    @property
    def ratio(self) -> float:
        """What the baseline's limit is multiplied with for a challenger; the margin of a latency lives here."""
        return 1.0 - self.margin if self.require == "Better" else 1.0 + self.margin

    @property
    def answers(self) -> int:
        """Fewest answers from which the quantile can be read at all: one beyond it must be expected."""
        return MIN_ANSWERS if self.quantile is None else max(MIN_ANSWERS, math.ceil(1 / (1 - self.quantile) - 1e-9))


class CoverageFloor(msgspec.Struct, frozen=True, kw_only=True):
    """Least shares of the selected requests and tokens that must have become pairs, each in [0, 1]."""

    requests: float = 0.9
    tokens: float = 0.8


class LivePathLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much worse customers may fare with copying on: shares (0.2 is 20 %, or 20 points of errors); None is any.

    They are compared in blocks of `block_s` seconds.
    """

    latency: float | None = None
    errors: float | None = None
    block_s: float = 50.0


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the verdict is judged by.

    `oversized_classes` are the classes that a request too large to be copied may have belonged to; such requests count
    as selected in each of them. `pass_alpha` bounds the probability of a false Pass of one criterion, `fail_alpha` that
    of any criterion's false Fail in the run. `external`: copies come from a proxy of the user's own. `superset`:
    capture can't tell which requests are selected and copies more. `class_rates`: share of each class that is copied,
    where they differ.
    `min_duration_s`: the shortest counted time the spec asks for, in seconds. `daily_window`: the only hours of a day
    that it asks for, in words; "" asks for all. `tpot_limits`: the classes whose SLO
    limits the time per output token. `crossover`: the arms change places halfway, and each half is judged by itself.
    `match_rate`: the share of answers that match which ends the run once it is proven; no part of the verdict.
    """

    criteria: tuple[Criterion, ...]
    floor: CoverageFloor = CoverageFloor()
    class_floors: dict[str, CoverageFloor] = {}
    oversized_classes: tuple[str, ...] = ()
    baseline: str = "baseline"
    candidate: str = "candidate"
    control: str | None = None
    hardware_required: bool = False
    warm_up_requests: int = 200
    block_s: int = 1
    pass_alpha: float = 0.05
    fail_alpha: float = 0.01
    external: bool = False
    superset: bool = False
    class_rates: dict[str, float] = {}
    live_path: LivePathLimits | None = None
    min_duration_s: int = 86_400
    daily_window: str = ""
    tpot_limits: tuple[str, ...] = ()
    crossover: bool = False
    match_rate: float | None = None

    @property
    def arms(self) -> tuple[str, ...]:
        """All arms, the baseline first."""
        return (self.baseline, self.candidate, *([self.control] if self.control else []))

    @property
    def gating(self) -> tuple[Criterion, ...]:
        """The criteria that take part in the verdict."""
        return tuple(c for c in self.criteria if not c.informational)

    def floor_of(self, traffic_class: str) -> CoverageFloor:
        """The floor of a class; "" is the whole run."""
        return self.class_floors.get(traffic_class, self.floor)


def rules_of(spec: Spec, *, block_s: int = 1) -> Rules:
    """The rules a spec states; `block_s` is the length of the finest block, as in `MirrorConfig`."""
    criteria = tuple(
        Criterion(
            name=c.name,
            metric=c.metric,
            require=c.require,
            weight=c.weight,
            traffic_class=c.traffic_class,
            quantile=int(c.quantile[1:]) / 100 if c.quantile else None,
            margin=_share(c.margin),
            min_pairs=c.min_pairs,
            critical=c.critical,
            informational=c.informational,
        )
        for c in spec.criteria
    )
    floor = CoverageFloor(requests=_share(spec.coverage.min_requests), tokens=_share(spec.coverage.min_tokens))
    class_floors = {
        k.name: CoverageFloor(
            requests=floor.requests if k.coverage.min_requests is None else _share(k.coverage.min_requests),
            tokens=floor.tokens if k.coverage.min_tokens is None else _share(k.coverage.min_tokens),
        )
        for k in spec.classes
    }
    return Rules(
        criteria=criteria,
        floor=floor,
        class_floors=class_floors,
        oversized_classes=_oversized_classes(spec),
        control="control" if spec.arms.control == "Enabled" else None,
        hardware_required=spec.hardware.policy == "Require" and bool(spec.hardware.match_label_keys),
        warm_up_requests=spec.arms.warmup.requests,
        block_s=block_s,
        external=spec.capture.made_elsewhere,
        superset=_superset(spec),
        class_rates=_class_rates(spec),
        live_path=_live_path(spec),
        min_duration_s=spec.end_conditions.min_duration.seconds,
        daily_window=_daily_window(spec),
        tpot_limits=_tpot_limits(spec),
        crossover=spec.hardware.changes_places,
        match_rate=None if spec.end_conditions.match_rate is None else _share(spec.end_conditions.match_rate),
    )


def _daily_window(spec: Spec) -> str:
    window = spec.schedule.daily_window if spec.schedule else None
    return "" if window is None else f"{window.begins} to {window.ends}, {window.time_zone}"


def _share(percent: Percent) -> float:
    return percent.millionths / MILLION


def _tpot_limits(spec: Spec) -> tuple[str, ...]:
    own = {k.name: k.slo for k in spec.classes if k.slo is not None}
    slos = {name: own.get(name, spec.slo) for name in spec.class_names}
    return tuple(name for name, slo in slos.items() if slo is not None and slo.tpot is not None)


def _superset(spec: Spec) -> bool:
    """Whether only the mirror can tell what is selected: by the body, the conversation's opening, or the class."""
    key = spec.sampling.key
    by_body = key is not None and key.body_field is not None
    return by_body or spec.sampling.follows_openings or bool(spec.sampling.class_rates)


def _class_rates(spec: Spec) -> dict[str, float]:
    own = {r.traffic_class: _share(r.rate) for r in spec.sampling.class_rates}
    return {name: own.get(name, _share(spec.sampling.rate)) for name in spec.class_names} if own else {}


def _live_path(spec: Spec) -> LivePathLimits | None:
    guard = spec.live_path_guard
    if guard is None or spec.capture.made_elsewhere:
        return None
    latency, errors = guard.max_latency_increase, guard.max_error_increase
    return LivePathLimits(
        latency=None if latency is None else _share(latency),
        errors=None if errors is None else _share(errors),
        block_s=block_length(_share(guard.pause_share), guard.pause_slot.seconds),
    )


def block_length(pause_share: float, slot_s: float) -> float:
    """Seconds of a block in which half a paused slot is expected; `live_path` says why."""
    return max(slot_s, 0.5 * slot_s / pause_share)


def _other_conditions(when: ClassCondition) -> tuple[object, ...]:
    return when.turns, when.stream, when.tools, when.structured, when.images


def _oversized_classes(spec: Spec) -> tuple[str, ...]:
    """Classes that a body above `maxBodyBytes` may belong to, in the order in which classes are tried."""
    smallest = spec.capture.max_body_bytes.bytes // 4  # the estimate classes are decided by: four bytes a token
    found: list[str] = []
    for k in spec.classes:
        tokens = k.when.prompt_tokens
        if tokens is not None and tokens.max is not None and tokens.max < smallest:
            continue
        found.append(k.name)
        bounded = tokens is not None and (tokens.max is not None or (tokens.min or 0) > smallest)
        if not bounded and all(c is None for c in _other_conditions(k.when)):
            return tuple(found)  # takes every oversized request, so no later class sees one
    return (*found, DEFAULT_CLASS)
