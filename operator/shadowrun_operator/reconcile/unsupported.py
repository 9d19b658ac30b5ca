"""What the resource can say and this version does not do yet: one line per field, each refused by name. Pure."""

from collections.abc import Callable

from shadowrun_operator.api.spec import Spec

CHECKS: tuple[tuple[str, Callable[[Spec], bool]], ...] = (
    ("spec.capture.mode", lambda s: s.capture.mode != "Proxy"),
    (
        "spec.capture.proxy.port other than the primary's",
        lambda s: s.capture.proxy is not None and s.capture.proxy.port not in (None, s.primary.service.port),
    ),
    ("spec.sampling.key.bodyField", lambda s: s.sampling.key is not None and s.sampling.key.body_field is not None),
    ("spec.sampling.key.credential", lambda s: s.sampling.key is not None and s.sampling.key.credential is not None),
    (
        "spec.sampling.unit without spec.sampling.key.header",
        lambda s: s.sampling.unit != "Request" and not s.sampling.key,
    ),
    ("spec.sampling.onMissingKey: Lineage", lambda s: s.sampling.on_missing_key == "Lineage"),
    ("spec.sampling.classRates", lambda s: bool(s.sampling.class_rates)),
    ("spec.admission.queue.maxLength", lambda s: s.admission.queue.max_length > 0),
    ("spec.mirror.replicas above 1", lambda s: s.mirror.replicas > 1),
    (
        "spec.comparison",
        lambda s: s.comparison is not None and (s.comparison.output != "None" or bool(s.comparison.checks)),
    ),
    ("spec.endConditions.gpuHours", lambda s: s.end_conditions.gpu_hours is not None),
    ("spec.endConditions.decided", lambda s: s.end_conditions.decided),
    ("spec.endConditions.matchRate", lambda s: s.end_conditions.match_rate is not None),
    ("spec.livePathGuard", lambda s: s.live_path_guard is not None),
)


def unsupported_field(spec: Spec) -> str | None:
    """The first field that asks for something this version does not do."""
    return next((field for field, asked in CHECKS if asked(spec)), None)
