"""`shadowrun plan`: from a manifest to the sentences of its plan. Reads one file; asks no cluster."""

from pathlib import Path

import yaml
from pydantic import ValidationError

from shadowrun_operator.api.accept import not_implemented
from shadowrun_operator.api.quantities import Percent
from shadowrun_operator.api.run import KIND, ShadowRun
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.cli.exits import CommandError
from shadowrun_operator.cli.tables import table
from shadowrun_operator.judge.forecast import span
from shadowrun_operator.judge.plan import POWER, CriterionPlan, Length, RunPlan, Traffic, planned
from shadowrun_operator.judge.rules import rules_of

_LONGEST_S = 720 * 3600


def read_run(path: str) -> ShadowRun:
    """The only ShadowRun of a YAML file; raises `CommandError` where there is none, several, or one that is wrong."""
    try:
        documents = list(yaml.safe_load_all(Path(path).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as wrong:
        raise CommandError(f"{path} cannot be read: {wrong}") from wrong
    runs = [d for d in documents if isinstance(d, dict) and d.get("kind") == KIND]
    if len(runs) != 1:
        raise CommandError(f"{path} holds {len(runs)} objects of kind {KIND}; one is needed")
    try:
        run = ShadowRun.parse(runs[0])
    except ValidationError as wrong:
        found = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in wrong.errors())
        raise CommandError(f"{path}: {found}") from wrong
    refused = not_implemented(run.spec)
    if refused:
        raise CommandError(f"{path}: {' '.join(refused)}")
    return run


def traffic_of(
    spec: Spec,
    pairs_per_second: float,
    shares: list[tuple[str, Percent]],
    discordance: Percent | None,
    effect: Percent | None,
    spread: float,
) -> Traffic:
    """What is expected of the traffic; raises `CommandError` for what cannot be."""
    named = {name: share.millionths / 1_000_000 for name, share in shares}
    unknown = sorted(named.keys() - set(spec.class_names))
    if unknown:
        raise CommandError(f"spec.classes has no class {', '.join(unknown)}; it has {', '.join(spec.class_names)}")
    if sum(named.values()) > 1 + 1e-9:
        raise CommandError(f"the shares of classes add up to {100 * sum(named.values()):g}%")
    return Traffic(
        pairs_per_second=pairs_per_second,
        class_shares=named,
        discordance=None if discordance is None else discordance.millionths / 1_000_000,
        effect=None if effect is None else effect.millionths / 1_000_000,
        spread=spread,
    )


def plan_of(spec: Spec, traffic: Traffic) -> RunPlan:
    """The plan of a spec."""
    length = Length(
        duration_s=spec.duration.seconds,
        least_s=spec.end_conditions.min_duration.seconds,
        start_s=spec.start_deadline.seconds,
        warm_up_s=spec.arms.warmup.duration.seconds,
        pairs=spec.end_conditions.pairs,
        crossover=spec.hardware.changes_places,
    )
    return planned(rules_of(spec), traffic, length, spec.class_names)


def plan_text(name: str, spec: Spec, traffic: Traffic, plan: RunPlan) -> str:
    """The plan for a person: what can be decided, what to change, and on which assumptions."""
    head = "can decide" if plan.decidable else "cannot decide"
    parts = [
        f"{name}: {head} within {span(plan.counted_s)} at {traffic.pairs_per_second:g} pairs a second",
        _start(spec, traffic, plan),
        table(("CRITERION", "CLASS", "PAIRS TO COME", "PAIRS NEEDED", "DECIDED AFTER"), _rows(spec, plan)),
        "\n".join(_changes(spec, plan)),
        "\n".join(_notes(spec, traffic)),
    ]
    return "\n\n".join(part for part in parts if part)


def _rows(spec: Spec, plan: RunPlan) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for criterion, found in zip(spec.criteria, plan.criteria, strict=True):
        name = f"{found.name} (informational)" if found.informational else found.name
        needed = "more than can be had" if found.needed is None else f"{found.needed:,}"
        after = span(plan.counted_s * found.needed / found.coming) if found.needed and found.coming else ""
        if spec.hardware.changes_places:
            after = span(plan.counted_s)
        rows.append(
            (name, criterion.traffic_class or "all", f"{found.coming:,}", needed, after if found.decidable else "")
        )
    return rows


def _start(spec: Spec, traffic: Traffic, plan: RunPlan) -> str:
    if plan.starts:
        return ""
    when = "never" if plan.ready_s is None else f"only after {span(plan.ready_s)}"
    return (
        f"The warm-up of the rarest class has its {spec.arms.warmup.requests} pairs {when}, and startDeadline is"
        f" {spec.start_deadline}: raise sampling.rate or startDeadline, or lower arms.warmup.requests."
    )


def _changes(spec: Spec, plan: RunPlan) -> list[str]:
    open_ones = [(c, p) for c, p in zip(spec.criteria, plan.criteria, strict=True) if not p.decidable]
    return [f"{p.name}: {'; or '.join(_ways(spec, c.require, p)) or _no_way(c.require, p)}" for c, p in open_ones]


def _ways(spec: Spec, require: str, found: CriterionPlan) -> list[str]:
    ways = []
    if found.rate is not None:
        ways.append(f"{found.rate:.3g} pairs a second")
    if found.seconds is not None and found.seconds <= _LONGEST_S:
        ways.append(_longer(spec, found, found.seconds))
    if found.margin is not None and require == "NotWorse":
        ways.append(f"a margin of {100 * found.margin:.2g}%")
    if found.median:
        ways.append("quantile p50")
    return ways


def _longer(spec: Spec, found: CriterionPlan, seconds: float) -> str:
    """A longer run: by its duration, by `endConditions.pairs`, or by both."""
    pairs = "" if found.pairs is None else f"endConditions.pairs of {found.pairs:,}"
    if seconds > spec.duration.seconds or not pairs:
        return f"a duration of {span(seconds)}" + (f" with {pairs}" if pairs else "")
    return pairs


def _no_way(require: str, found: CriterionPlan) -> str:
    if not found.coming:
        return "no pair of its class comes"
    if require == "Better":
        return "its margin is not below the assumed --effect: no number of pairs would prove it"
    return "no margin below 90% is within reach of so few pairs"


def _sooner(spec: Spec) -> list[str]:
    """What of the spec may leave fewer pairs than the plan counts on."""
    ends, sampling = spec.end_conditions, spec.sampling
    found = [
        ("endConditions.tokens", ends.tokens is not None),
        ("endConditions.gpuHours", ends.gpu_hours is not None),
        ("endConditions.matchRate", ends.match_rate is not None),
        ("livePathGuard", spec.live_path_guard is not None),
        ("sampling.targetPairsPerSecond", sampling.target_pairs_per_second is not None),
        ("schedule.dailyWindow", spec.schedule is not None and spec.schedule.daily_window is not None),
    ]
    named = ", ".join(name for name, there in found if there)
    return [f"Not in this plan, and may leave fewer pairs: {named}."] if named else []


def _notes(spec: Spec, traffic: Traffic) -> list[str]:
    discordance = "the default" if traffic.discordance is None else f"{100 * traffic.discordance:g}%"
    effect = "twice the margin, 10% at least" if traffic.effect is None else f"{100 * traffic.effect:g}%"
    assumed = (
        f"Assumed: equal arms for NotWorse; for Better, better by {effect}; latencies that spread by"
        f" {traffic.spread:g} (logarithms); discordance {discordance}; independent pairs (load in waves needs"
        f" more). That many pairs decide {POWER:.0%} of such runs."
    )
    notes = [assumed, *_sooner(spec)]
    rest = [name for name in spec.class_names if name not in traffic.class_shares]
    if len(spec.class_names) > 1 and len(rest) > 1:
        notes.append(
            f"Classes {', '.join(rest)} are taken as equally frequent: say --class-share where you know better."
        )
    if spec.hardware.changes_places:
        notes.append(
            "hardware.crossover: either half has to decide. PAIRS TO COME are those of the second, after its warm-up."
        )
    if spec.arms.control == "Disabled":
        notes.append("arms.control is Disabled: nothing will show how much two equal arms differ on your hardware.")
    if (spec.sampling.key is not None and spec.sampling.key.body_field) or spec.sampling.follows_openings:
        notes.append("Only the mirror can tell what is selected: capture copies every request in scope as far as that.")
    return notes
