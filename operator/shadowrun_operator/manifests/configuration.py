"""`MirrorConfig` from a spec: one vocabulary into the other. Pure; when to copy is not decided here."""

from shadowrun_mirror.config import (
    CREDENTIAL_HEADERS,
    MODULO,
    REQUEST_ID,
    SLO,
    Admission,
    Arm,
    CaptureRules,
    Comparison,
    Indicator,
    MirrorConfig,
    Pauses,
    Sampling,
    TrafficClass,
)

from shadowrun_operator.api import spec as api
from shadowrun_operator.api.quantities import MILLION, Latency
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.arms import host_and_port
from shadowrun_operator.manifests.mirror import CREDENTIAL_FILE
from shadowrun_operator.manifests.names import RunRef
from shadowrun_operator.manifests.route import copied_share

WHOLE_RATE = MILLION
"""Share of the spec's rates that is copied while nothing has lowered them."""
BEFORE_S = 30
"""Least time for which customers are watched before anything is copied, where the spec guards their path."""
MAX_ANSWER_BYTES = 16 * 1024 * 1024
KEPT_ANSWERS_BYTES = 192 * 1024 * 1024
"""Of all answers together, kept by one mirror until their ends: twice that much while they are put together, which
with `admit.HELD_BODIES_BYTES` of requests, each there as copied and as sent, leaves room within the pod's limit."""
LEAST_LAG_S = 0.005
LAG_SHARE = 0.1


def mirror_config(
    run: RunRef,
    spec: Spec,
    *,
    seed: int,
    expiry: float,
    version: int,
    window: int,
    copying: bool,
    indicators: tuple[Indicator, ...],
    rate_share: int = WHOLE_RATE,
    before: bool = False,
    http2: bool = False,
    copy_until: float | None = None,
    pod_port: int | None = None,
) -> MirrorConfig:
    """All a mirror needs to know. `expiry` and `copy_until` are UTC seconds, `rate_share` millionths of the rates.

    `before`: customers are still being watched without copies. `http2`: the arms speak it without TLS. `pod_port`: what
    the pods of arms listen on, where the mirror chooses among them (`Spec.keyed_arms`).
    """
    return MirrorConfig(
        version=version,
        run=run.name,
        run_uid=run.uid,
        window=window,
        copying=copying,
        copy_until=copy_until,
        expiry=expiry,
        capture=capture_rules(spec, seed, rate_share=rate_share, before=before),
        admission=admission(spec),
        arms=tuple(_arm(run, spec, arm, http2=http2, pod_port=pod_port) for arm in spec.arm_names),
        models=spec.capture.models,
        classes=_classes(spec),
        slo=_slo(spec.slo),
        class_slos={c.name: _slo(c.slo) for c in spec.classes if c.slo is not None},
        indicators=indicators,
        comparison=_comparison(spec),
        lag_limit_s=lag_limit_s(spec, indicators),
        source="External" if spec.capture.made_elsewhere else "Proxy",
    )


def lag_limit_s(spec: Spec, indicators: tuple[Indicator, ...]) -> float:
    """How late a mirror may stamp before a pair is flagged: a tenth of the shortest time that anything is judged by.

    That is, of the baseline's limits and the objectives for TTFT and E2E; a lag is divided by the tokens in a TPOT. It
    is 5 ms where these say less, or nothing.
    """
    judged = [i.baseline_limit_s for i in indicators if i.metric in ("TTFT", "E2E")]
    objectives = [spec.slo, *(c.slo for c in spec.classes if c.slo is not None)]
    promised = [_seconds(limit) for slo in objectives for limit in (slo.ttft, slo.e2e)]
    limits = [limit for limit in (*judged, *promised) if limit is not None]
    return max(LEAST_LAG_S, LAG_SHARE * min(limits, default=0.0))


def capture_rules(spec: Spec, seed: int, *, rate_share: int = WHOLE_RATE, before: bool = False) -> CaptureRules:
    """What capture copies, and when: the paths, the largest body, the share of keys, the pauses."""
    return CaptureRules(
        paths=spec.capture.paths,
        max_body_bytes=spec.capture.max_body_bytes.bytes,
        sampling=_sampling(spec, seed, rate_share),
        pauses=_pauses(spec, before=before),
    )


def admission(spec: Spec) -> Admission:
    """The limits of one replica. What cannot be divided evenly is left out, so that the run stays within its own."""
    limits, replicas = spec.admission, spec.mirror.replicas
    queued = limits.queue.max_length // replicas
    in_flight = max(1, limits.max_in_flight // replicas)
    return Admission(
        max_in_flight=in_flight,
        timeout_s=float(limits.timeout.seconds),
        max_queued=queued,
        max_wait_s=float(limits.queue.max_wait.seconds) if queued else 0.0,
        max_answer_bytes=MAX_ANSWER_BYTES,
        max_kept_bytes=min(MAX_ANSWER_BYTES, KEPT_ANSWERS_BYTES // (in_flight * len(spec.arm_names))),
    )


def before_s(spec: Spec) -> int:
    """How long customers are watched without copies, in seconds: at least one slot, and nothing without a guard."""
    guard = spec.live_path_guard
    return 0 if guard is None else max(BEFORE_S, guard.pause_slot.seconds)


def _sampling(spec: Spec, seed: int, rate_share: int) -> Sampling:
    """Every rate lowered in the same proportion, so that a lower one is a part of a higher one: thresholds only rise.

    A conversation without a key goes by its opening, whatever is said of other requests without one.
    """
    sampling, copied = spec.sampling, copied_share(spec)
    return Sampling(
        unit=sampling.unit,
        threshold=_threshold(sampling.rate.millionths, rate_share, copied),
        seed=seed,
        key_headers=_key_headers(spec),
        key_field=(sampling.key.body_field or "") if sampling.key is not None else "",
        on_missing_key="Lineage" if sampling.follows_openings else sampling.on_missing_key,
        class_thresholds={
            r.traffic_class: _threshold(r.rate.millionths, rate_share, copied) for r in sampling.class_rates
        },
    )


def _threshold(rate: int, share: int, copied: int) -> int:
    """Of what a gateway drew before, at random, only as much is left out as the rate still asks for."""
    return MODULO - max(1, rate * share // copied)


def _key_headers(spec: Spec) -> tuple[str, ...]:
    """Where capture finds the key; nowhere, where only the body has one."""
    key = spec.sampling.key
    if key is None:
        return () if spec.sampling.follows_openings else (REQUEST_ID,)
    if key.header is not None:
        return (key.header,)
    return CREDENTIAL_HEADERS if key.credential else ()


def _pauses(spec: Spec, *, before: bool) -> Pauses | None:
    guard = spec.live_path_guard
    if guard is None:
        return None
    return Pauses(share=MODULO if before else guard.pause_share.millionths, slot_s=guard.pause_slot.seconds)


def _arm(run: RunRef, spec: Spec, arm: str, *, http2: bool, pod_port: int | None) -> Arm:
    host, port = _address(run, spec, arm, pod_port)
    model = spec.arms.candidate.model if arm == names.CANDIDATE and spec.arms.candidate.model else spec.arms.model
    return Arm(
        name=arm,
        host=host,
        port=port,
        model=model,
        credential_file=CREDENTIAL_FILE if spec.arms.credentials_secret_ref else "",
        http2=http2,
        keyed=spec.keyed_arms,
    )


def _address(run: RunRef, spec: Spec, arm: str, pod_port: int | None) -> tuple[str, int]:
    """The arm's own Service, or where the spec says that it is. The name of a keyed arm stands for its very pods."""
    url = spec.arms.template.url_of(arm)
    if url:
        return host_and_port(url)
    port = pod_port if spec.keyed_arms and pod_port is not None else spec.primary.service.port
    return f"{names.object_name(run.name, arm)}.{run.namespace}.svc", port


def _classes(spec: Spec) -> tuple[TrafficClass, ...]:
    return tuple(_class(c) for c in spec.classes)


def _class(c: api.TrafficClass) -> TrafficClass:
    tokens, turns = c.when.prompt_tokens or api.CountRange(), c.when.turns or api.CountRange()
    return TrafficClass(
        name=c.name,
        min_prompt_tokens=tokens.min,
        max_prompt_tokens=tokens.max,
        min_turns=turns.min,
        max_turns=turns.max,
        stream=c.when.stream,
        tools=c.when.tools,
        schema=c.when.structured,
        images=c.when.images,
    )


def _comparison(spec: Spec) -> Comparison | None:
    asked = spec.comparison
    if asked is None or asked.output != "Parity":
        return None
    return Comparison(ignored=asked.ignore_fields, ordered=asked.array_order == "Significant")


def _slo(slo: api.SLO) -> SLO:
    return SLO(ttft_s=_seconds(slo.ttft), tpot_s=_seconds(slo.tpot), e2e_s=_seconds(slo.e2e))


def _seconds(limit: Latency | None) -> float | None:
    return None if limit is None else limit.seconds
