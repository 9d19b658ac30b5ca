"""Which objects a run should have beside its arms, and the steps that bring the cluster there. Pure."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec
from shadowrun_mirror.config import WARM_UP, Indicator, MirrorConfig
from shadowrun_mirror.directive import directive_of

from shadowrun_operator.judge.rules import rules_of
from shadowrun_operator.judge.thresholds import indicators as open_indicators
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.capture import (
    CaptureInputs,
    PrimaryService,
    capture_deployment,
    capture_pdb,
    capture_secret,
    capture_service,
)
from shadowrun_operator.manifests.configuration import before_s, mirror_config
from shadowrun_operator.manifests.mirror import (
    copies_service,
    mirror_deployment,
    mirror_network_policy,
    mirror_pdb,
    mirror_pods_service,
    mirror_secret,
    mirror_service,
)
from shadowrun_operator.manifests.names import Manifest, RunRef
from shadowrun_operator.manifests.pulling import pulled
from shadowrun_operator.reconcile.observation import Observation, Settings
from shadowrun_operator.reconcile.plan import Apply, Step
from shadowrun_operator.reconcile.primary import PrimaryPort, primary_port, service_port, speaks_h2c
from shadowrun_operator.reconcile.record import RunRecord
from shadowrun_operator.reconcile.route import wanted_service
from shadowrun_operator.reconcile.schedule import copy_until

Side = Literal["primary", "capture"]

_REMEMBERED = 256
"""So many runs' objects are not made anew at every look, as long as all that they follow from is the same."""


def resolved_port(seen: Observation, record: RunRecord) -> PrimaryPort | None:
    """The primary's port; None where its Service has gone or lost the port."""
    if seen.primary is None:
        return None
    return primary_port(seen.primary, record.source, seen.run.spec.primary.service.port)


def next_config(
    seen: Observation, record: RunRecord, *, copying: bool, indicators: tuple[Indicator, ...] = ()
) -> MirrorConfig:
    """The configuration that should hold now: the stored one if it says the same, else one of a higher version.

    Before anything is copied customers are watched for a while, where the spec guards their path.
    """
    known = seen.config
    version = 1 if known is None else known.version
    seed = seen.fresh.seed if known is None else known.capture.sampling.seed
    wanted = mirror_config(
        seen.ref,
        seen.run.spec,
        seed=seed,
        expiry=record.expiry,
        version=version,
        window=record.window,
        copying=copying,
        copy_until=copy_until(seen.run.spec, seen.now) if copying else None,
        indicators=indicators or open_indicators(rules_of(seen.run.spec)),
        rate_share=record.rate_share,
        before=not record.copying_since or seen.now < before_until(seen, record),
        http2=_http2(seen, record),
        pod_port=_pod_port(seen, record),
    )
    if known is None or wanted == known:
        return wanted
    return msgspec.structs.replace(wanted, version=version + 1)


def before_until(seen: Observation, record: RunRecord) -> float:
    """UTC seconds until which customers are watched without copies; in the past where nothing guards their path."""
    return record.copying_since + before_s(seen.run.spec)


def config_steps(seen: Observation, config: MirrorConfig) -> list[Step]:
    """Store the configuration where a mirror that starts will find it."""
    secret = names.stamped(mirror_secret(seen.ref, config, token_of(seen)))
    return [] if names.is_current(secret, seen.object("Secret", names.MIRROR)) else [Apply(secret)]


def mirror_steps(seen: Observation, config: MirrorConfig) -> list[Step]:
    """The mirror and all it needs."""
    spec, credential = seen.run.spec, seen.run.spec.arms.credentials_secret_ref
    wanted = _mirror_objects(
        seen.ref,
        seen.settings,
        token_of(seen),
        spec.mirror.replicas,
        (credential.name, credential.key) if credential else ("", "token"),
        seen.external,
    )
    return config_steps(seen, config) + _brought_about(seen, wanted)


@lru_cache(_REMEMBERED)
def _mirror_objects(
    ref: RunRef, settings: Settings, token: str, replicas: int, credentials: tuple[str, str], external: bool
) -> tuple[Manifest, ...]:
    deployment = mirror_deployment(
        ref,
        image=settings.mirror_image,
        token=token,
        replicas=replicas,
        credentials_secret=credentials[0],
        credentials_key=credentials[1],
    )
    wanted = (
        mirror_network_policy(ref, operator_namespace=settings.namespace, external=external),
        mirror_service(ref),
        *([mirror_pods_service(ref)] if replicas > 1 and not external else []),
        *([mirror_pdb(ref)] if replicas > 1 else []),
        pulled(deployment, policy=settings.pull_policy, secrets=settings.pull_secrets),
    )
    return tuple(names.stamped(manifest) for manifest in wanted)


def capture_steps(seen: Observation, record: RunRecord, config: MirrorConfig, side: Side) -> list[Step]:
    """Capture, and its Service on the side it should be. The Service comes first: customers may call it at once.

    Where copies come from a proxy of the user's own there is nothing but the Service it sends them to.
    """
    if seen.external:
        service = wanted_service(seen) or copies_service(seen.ref, seen.run.spec.capture.service_name)
        return _copies_steps(seen, service)
    inputs = capture_inputs(seen, record, config)
    if inputs is None:
        return []
    return service_steps(seen, inputs, side) + _brought_about(seen, _capture_objects(inputs, seen.settings))


@lru_cache(_REMEMBERED)
def _capture_objects(inputs: CaptureInputs, settings: Settings) -> tuple[Manifest, ...]:
    deployment = pulled(capture_deployment(inputs), policy=settings.pull_policy, secrets=settings.pull_secrets)
    return tuple(names.stamped(manifest) for manifest in (capture_secret(inputs), capture_pdb(inputs), deployment))


def service_steps(seen: Observation, inputs: CaptureInputs, side: Side) -> list[Step]:
    """The capture Service on one side."""
    service = _capture_service(inputs, side)
    if names.is_current(service, seen.capture_service) and selected_side(seen) == side:
        return []
    return [Apply(service)]


@lru_cache(_REMEMBERED)
def _capture_service(inputs: CaptureInputs, side: Side) -> Manifest:
    return names.stamped(capture_service(inputs, selects=side))


def selected_side(seen: Observation) -> Side | None:
    """Whose pods the capture Service picks now; None where there is no such Service."""
    if seen.capture_service is None:
        return None
    chosen = seen.capture_service["spec"].get("selector", {})
    return "capture" if chosen == names.selector(seen.ref, names.CAPTURE) else "primary"


def capture_inputs(seen: Observation, record: RunRecord, config: MirrorConfig) -> CaptureInputs | None:
    """What capture is built from; None where the primary's Service is gone, since nothing could be built then."""
    spec, primary, port = seen.run.spec, seen.primary, resolved_port(seen, record)
    if primary is None or port is None or spec.capture.proxy is None:
        return None
    boot = msgspec.structs.replace(config, version=1, window=WARM_UP, copying=False)
    return CaptureInputs(
        run=seen.ref,
        service_name=spec.capture.proxy.service_name,
        primary=_primary_service(primary, port),
        directive=directive_of(boot, seen.now),
        token=token_of(seen),
        image=seen.settings.capture_image,
        replicas=spec.capture.proxy.replicas,
        mirrors=spec.mirror.replicas,
        shadow_baggage=spec.capture.proxy.shadow_baggage,
    )


def token_of(seen: Observation) -> str:
    """The token of this run, or the one drawn for it."""
    return seen.token or seen.fresh.token


def _http2(seen: Observation, record: RunRecord) -> bool:
    """How the arms are spoken to, as the primary's port says; settled when copying begins."""
    if record.copying_since and seen.config is not None:
        return any(arm.http2 for arm in seen.config.arms)
    return seen.primary is not None and speaks_h2c(seen.primary, seen.run.spec.primary.service.port)


def _pod_port(seen: Observation, record: RunRecord) -> int | None:
    """What the arms' pods listen on; settled when copying begins, as `_http2`."""
    if record.copying_since and seen.config is not None:
        return seen.config.arms[0].port
    if seen.run.spec.arms.port is not None:
        return seen.run.spec.arms.port
    port = resolved_port(seen, record)
    return None if port is None else port.number


def _copies_steps(seen: Observation, wanted: Manifest) -> list[Step]:
    service, known = names.stamped(wanted), seen.capture_service
    if names.is_current(service, known) and known is not None and takes_copies(seen, known):
        return []
    return [Apply(service)]


def takes_copies(seen: Observation, service: Manifest) -> bool:
    """Whether what is sent to a Service reaches this run's mirror."""
    return bool(service["spec"].get("selector") == names.selector(seen.ref, names.MIRROR))


def applied(seen: Observation, manifests: Iterable[Manifest]) -> list[Step]:
    """Apply those that are not yet as they should be."""
    return _brought_about(seen, map(names.stamped, manifests))


def _brought_about(seen: Observation, stamped: Iterable[Manifest]) -> list[Step]:
    return [
        Apply(manifest)
        for manifest in stamped
        if not names.is_current(manifest, seen.objects.get((manifest["kind"], manifest["metadata"]["name"])))
    ]


def _primary_service(primary: Manifest, port: PrimaryPort) -> PrimaryService:
    spec = primary["spec"]
    entry = service_port(primary, port.port) or {}
    return PrimaryService(
        name=primary["metadata"]["name"],
        port=port.port,
        target_port=port.number,
        selector=dict(spec.get("selector") or {}),
        port_name=entry.get("name", ""),
        target_port_name=port.target if isinstance(port.target, str) else "",
        app_protocol=entry.get("appProtocol", ""),
        ip_families=tuple(spec.get("ipFamilies", ())),
        ip_family_policy=spec.get("ipFamilyPolicy", ""),
    )
