"""The steps that make the arms: the candidate first, for its patch may be refused, then the others. Pure.

An arm that stands is never written again: it is what was measured.
"""

from shadowrun_operator.manifests import groups, names
from shadowrun_operator.manifests.arms import arm_deployment, arm_network_policy, arm_service
from shadowrun_operator.manifests.candidate import candidate_patch, carries_patch, change_of
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.workload import Part, part_of_change, parts_of
from shadowrun_operator.reconcile.objects import applied, resolved_port
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.plan import Create, Delete, PatchCandidate, Step
from shadowrun_operator.reconcile.primary import arm_target, service_port
from shadowrun_operator.reconcile.record import RunRecord


def candidate_steps(seen: Observation, record: RunRecord) -> list[Step]:
    """The candidate, still without a pod, then its patch, and the other arms: none is made where that is refused.

    Only network policies are made before, so that they hold from the first pod on. Groups need another look: their sets
    are made of drafts as the API server has stored them.
    """
    candidate, source = seen.run.spec.arms.candidate, record.source
    replicas = 0 if seen.grouped else seen.run.spec.arms.replicas
    change, steps = change_of(candidate, source), _policy_steps(seen)
    for part in parts_of(source):
        name = groups.draft_of(names.CANDIDATE, part.field)
        if seen.object("Deployment", name) is None:
            steps.append(_creation(seen, record, name, part, replicas=0))
        own = part_of_change(change, part, source)
        body = candidate_patch(own, replicas=replicas, spec_hash=record.spec_hash)
        steps.append(PatchCandidate(names.object_name(seen.run.name, name), body))
    return steps if seen.grouped else [*steps, *_missing(seen, record)]


def is_patched(seen: Observation, record: RunRecord) -> bool:
    """Whether the candidate is there and carries the patch, or its drafts do; nothing is asked of what others run."""
    if not seen.run.spec.made_arms:
        return True
    candidate = seen.arm(names.CANDIDATE)
    found = [candidate] if candidate is not None or not seen.grouped else _drafts(seen, record, names.CANDIDATE)
    return all(item is not None and carries_patch(item, record.spec_hash) for item in found)


def arm_steps(seen: Observation, record: RunRecord) -> list[Step]:
    """Create what is missing of the arms. The candidate is patched already."""
    return [*_missing(seen, record), *arm_access_steps(seen, record)]


def arm_access_steps(seen: Observation, record: RunRecord) -> list[Step]:
    """Who may reach the arms, and under which names."""
    spec, port = seen.run.spec, resolved_port(seen, record)
    missing = [arm for arm in spec.made_arms if port is not None and seen.object("Service", arm) is None]
    entry = (service_port(seen.primary, spec.primary.service.port) if seen.primary else None) or {}
    said = entry.get("appProtocol", "")
    services: list[Step] = [
        Create(
            arm_service(
                seen.ref,
                arm,
                port=port.port,
                target_port=arm_target(spec, port),
                app_protocol=said,
                keyed=spec.keyed_arms,
                among=groups.LEADS if seen.grouped else None,
            )
        )
        for arm in missing
        if port is not None
    ]
    return [*_policy_steps(seen), *services]


def arm_identities(seen: Observation) -> dict[str, str]:
    """What tells that an arm is still the one it was: identity and generation of its workload, of those there."""
    found = ((arm, seen.arm(arm)) for arm in seen.run.spec.made_arms)
    return {
        arm: f"{item['metadata'].get('uid', '')}/{item['metadata'].get('generation', 0)}" for arm, item in found if item
    }


def _missing(seen: Observation, record: RunRecord) -> list[Step]:
    return [step for arm in seen.run.spec.made_arms for step in _steps_of(seen, record, arm)]


def _steps_of(seen: Observation, record: RunRecord, arm: str) -> list[Step]:
    if seen.grouped:
        return _set_steps(seen, record, arm)
    if seen.arm(arm) is not None or arm == names.CANDIDATE:
        return []
    (part,) = parts_of(record.source)
    return [_creation(seen, record, arm, part, replicas=seen.run.spec.arms.replicas)]


def _set_steps(seen: Observation, record: RunRecord, arm: str) -> list[Step]:
    """Drafts; from these the LeaderWorkerSet; and when that is there, no drafts any more."""
    parts, drafts = parts_of(record.source), _drafts(seen, record, arm)
    if seen.arm(arm) is not None:
        return [Delete("Deployment", draft["metadata"]["name"]) for draft in drafts if draft is not None]
    finished = {part.field: draft for part, draft in zip(parts, drafts, strict=True) if draft is not None}
    if len(finished) < len(parts):
        lacking = [part for part in parts if part.field not in finished]
        return [_creation(seen, record, groups.draft_of(arm, part.field), part, replicas=0) for part in lacking]
    patched = record.spec_hash if arm == names.CANDIDATE else ""
    replicas = seen.run.spec.arms.replicas
    return [Create(groups.arm_set(seen.ref, arm, record.source, finished, replicas=replicas, patched=patched))]


def _drafts(seen: Observation, record: RunRecord, arm: str) -> list[Manifest | None]:
    return [seen.object("Deployment", groups.draft_of(arm, part.field)) for part in parts_of(record.source)]


def _creation(seen: Observation, record: RunRecord, name: str, part: Part, *, replicas: int) -> Create:
    hardware = seen.run.spec.hardware
    deployment = arm_deployment(
        seen.ref,
        name,
        {"spec": {"template": part.template}},
        replicas=replicas,
        node_selector=dict(hardware.node_selector),
        apart_from=seen.run.spec.made_arms if hardware.changes_places else (),
        nodes=record.places.get(name, ()) if record.changed_at else (),
    )
    return Create(deployment)


def _policy_steps(seen: Observation) -> list[Step]:
    spec = seen.run.spec
    if not spec.made_arms:
        return []
    own = [groups.arm_group_policy(seen.ref, arm) for arm in spec.made_arms] if seen.grouped else []
    return applied(seen, [arm_network_policy(seen.ref, spec.made_arms, egress=list(spec.arms.egress)), *own])
