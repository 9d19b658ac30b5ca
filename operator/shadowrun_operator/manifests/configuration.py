"""`MirrorConfig` from a spec: one vocabulary into the other. Pure; when to copy is not decided here."""

from shadowrun_mirror.config import (
    MODULO,
    REQUEST_ID,
    SLO,
    Admission,
    Arm,
    CaptureRules,
    Indicator,
    MirrorConfig,
    Sampling,
    TrafficClass,
)

from shadowrun_operator.api import spec as api
from shadowrun_operator.api.quantities import Latency
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.mirror import CREDENTIAL_FILE
from shadowrun_operator.manifests.names import RunRef


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
) -> MirrorConfig:
    """All a mirror needs to know. `expiry` is UTC seconds."""
    return MirrorConfig(
        version=version,
        run=run.name,
        run_uid=run.uid,
        window=window,
        copying=copying,
        expiry=expiry,
        capture=capture_rules(spec, seed),
        admission=Admission(
            max_in_flight=max(1, spec.admission.max_in_flight // spec.mirror.replicas),
            timeout_s=float(spec.admission.timeout.seconds),
        ),
        arms=tuple(_arm(run, spec, arm) for arm in spec.arm_names),
        models=spec.capture.models,
        classes=_classes(spec),
        slo=_slo(spec.slo),
        class_slos={c.name: _slo(c.slo) for c in spec.classes if c.slo is not None},
        indicators=indicators,
    )


def capture_rules(spec: Spec, seed: int) -> CaptureRules:
    """What Envoy copies: the paths, the largest body, and the share of keys."""
    header = spec.sampling.key.header if spec.sampling.key is not None else None
    return CaptureRules(
        paths=spec.capture.paths,
        max_body_bytes=spec.capture.max_body_bytes.bytes,
        sampling=Sampling(
            unit=spec.sampling.unit,
            threshold=MODULO - spec.sampling.rate.millionths,
            seed=seed,
            key_headers=(header or REQUEST_ID,),
            on_missing_key="Skip" if spec.sampling.on_missing_key == "Skip" else "Random",
        ),
    )


def _arm(run: RunRef, spec: Spec, arm: str) -> Arm:
    model = spec.arms.candidate.model if arm == names.CANDIDATE and spec.arms.candidate.model else spec.arms.model
    return Arm(
        name=arm,
        host=f"{names.object_name(run.name, arm)}.{run.namespace}.svc",
        port=spec.primary.service.port,
        model=model,
        credential_file=CREDENTIAL_FILE if spec.arms.credentials_secret_ref else "",
    )


def _classes(spec: Spec) -> tuple[TrafficClass, ...]:
    return tuple(
        TrafficClass(
            name=c.name,
            min_prompt_tokens=c.when.prompt_tokens.min if c.when.prompt_tokens else None,
            max_prompt_tokens=c.when.prompt_tokens.max if c.when.prompt_tokens else None,
            stream=c.when.stream,
            tools=c.when.tools,
        )
        for c in spec.classes
    )


def _slo(slo: api.SLO) -> SLO:
    return SLO(ttft_s=_seconds(slo.ttft), tpot_s=_seconds(slo.tpot), e2e_s=_seconds(slo.e2e))


def _seconds(limit: Latency | None) -> float | None:
    return None if limit is None else limit.seconds
