"""What the operator knows of a run beside its evidence, for the judge. Pure; judges nothing."""

from shadowrun_operator.judge.facts import ArmFacts, Facts, Hardware
from shadowrun_operator.manifests import names
from shadowrun_operator.reconcile.difference import difference
from shadowrun_operator.reconcile.hardware import hardware_found
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.record import RunRecord


def facts_of(seen: Observation, record: RunRecord, started: float | None) -> Facts:
    """Everything as it stands; `started` is when the first counted pair was complete, in UTC seconds."""
    finding = hardware_found(seen)
    provenance = seen.run.status.provenance
    return Facts(
        run=seen.run.name,
        run_uid=seen.run.uid,
        end_reason=record.end_reason,
        end_message=record.end_message,
        indicators=record.indicators,
        hardware=Hardware(matched=finding.matched, message=finding.message),
        attempt=record.attempt or 1,
        started=started,
        ended=record.ended_at or None,
        spec_hash=record.spec_hash,
        seed_fingerprint=provenance.seed_fingerprint,
        arms=tuple(_arm_facts(seen, record, arm) for arm in seen.run.spec.arm_names),
        patch="\n".join(difference(seen) or ()),
        versions={
            "operator": seen.settings.version,
            "kubernetes": seen.settings.kubernetes,
            "envoy": provenance.versions.envoy,
            "mirror": _running_images(seen, names.MIRROR) or seen.settings.mirror_image,
            "capture": _running_images(seen, names.CAPTURE) or seen.settings.capture_image,
        },
        rates=record.pace.changes,
        watch=record.watch,
        changes=record.changes,
        clocks=record.apart,
    )


def _running_images(seen: Observation, component: str) -> str:
    """With digests, as the nodes say what runs; "" where no pod of it is there any more."""
    return ", ".join(sorted({image for pod in seen.pods if pod.component == component for image in pod.images}))


def _arm_facts(seen: Observation, record: RunRecord, arm: str) -> ArmFacts:
    pods, spec = seen.pods_of(arm), seen.run.spec
    nodes = sorted({pod.node for pod in pods if pod.node})
    drivers = {key for node in nodes for key in seen.node_labels.get(node, {}) if "driver" in key.lower()}
    labels = {
        key: ", ".join(sorted({seen.node_labels.get(node, {}).get(key, "(missing)") for node in nodes}))
        for key in (*spec.hardware.match_label_keys, *sorted(drivers - set(spec.hardware.match_label_keys))[:8])
    }
    own = spec.arms.candidate.model if arm == names.CANDIDATE else ""
    images = tuple(sorted({image for pod in pods for image in pod.images}))
    return ArmFacts(
        name=arm,
        images=images,
        nodes=tuple(nodes),
        first_nodes=record.nodes.get(arm, ()),
        labels=labels,
        model=own or spec.arms.model,
        url=spec.arms.template.url_of(arm),
    )
