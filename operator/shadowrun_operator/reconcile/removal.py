"""What is taken down at the end of a run, and in which order; the same for every end, deletion included. Pure.

The order never changes: arms go before the path is touched, the capture Service goes back to the primary's pods before
Envoy goes, and Envoy is asked to go only when new customers can't reach it any more. A Service that cannot be given
back keeps its Envoy: customers come before a tidy end.
"""

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.given_back import given_back, is_given_back
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.plan import Apply, Delete, Step

SETTLE_S = 10.0
"""After the Service was given back: until no client is sent to Envoy any more. Customers who still are with it keep
their connections: its pod asks them to leave before it ends, and has the time of the longest answer for that."""
LAST_PODS_S = 600.0
"""How long the arms' network policy waits for their last pods: one on a node that is gone never ends."""

_ARMS = (names.CANDIDATE, names.CONTROL, names.BASELINE)
_ARM_KINDS = ("Deployment", "Service")
_MIRROR_KINDS = ("Deployment", "PodDisruptionBudget", "Service", "NetworkPolicy", "Secret")
_CAPTURE_KINDS = ("Deployment", "PodDisruptionBudget", "Secret")


def removal(seen: Observation) -> tuple[Step, ...]:
    """What may be removed now: arms, then the Service is given back, then (drained) capture and mirror.

    The Service for copies of another proxy needs no giving back: without the mirror it has no endpoints.
    A mirror without a readable Secret cannot be told to stop, so it goes with the arms.
    """
    steps: list[Step] = [*_arms(seen)]
    service, free = _captured(seen), _captured(seen) is None and drained(seen)
    manifest = None if service is None else _returned(seen, service)
    if manifest is not None:
        steps.append(Apply(manifest))
    if free:
        steps += _deletes(seen, _CAPTURE_KINDS, names.CAPTURE)
    if free or stuck(seen) or seen.config is None:
        steps += _deletes(seen, _MIRROR_KINDS, names.MIRROR)
        steps += _deletes(seen, ("Service",), names.MIRROR_PODS)
    return tuple(steps)


def remaining(seen: Observation, steps: tuple[Step, ...] = ()) -> tuple[str, ...]:
    """What will be left of the run once these steps are done, beside what stays: Service, evidence, report."""
    gone = {(step.kind, step.name) for step in steps if isinstance(step, Delete)}
    stays = {("ConfigMap", names.object_name(seen.run.name, part)) for part in (names.EVIDENCE, names.REPORT)}
    if stuck(seen):
        stays |= {(kind, names.object_name(seen.run.name, names.CAPTURE)) for kind in _CAPTURE_KINDS}
    stays.add(("Service", seen.run.spec.capture.service_name))
    return tuple(f"{kind} '{name}'" for kind, name in sorted(seen.objects.keys() - gone - stays))


def drained(seen: Observation) -> bool:
    """Whether Envoy may be asked to go: the Service has led elsewhere for long enough, or there is no Envoy."""
    if seen.object("Deployment", names.CAPTURE) is None:
        return True
    return seen.given_back_since is not None and seen.now >= seen.given_back_since + SETTLE_S


def stuck(seen: Observation) -> bool:
    """Whether the Service selects capture, and nothing says any more whose pods it stood for."""
    service = _captured(seen)
    return service is not None and _returned(seen, service) is None


def _captured(seen: Observation) -> Manifest | None:
    """The capture Service, while it is this run's and selects capture."""
    service = seen.capture_service
    if service is None or is_given_back(service):
        return None
    return service if service["metadata"].get("labels", {}).get(names.RUN_LABEL) == seen.run.name else None


def _returned(seen: Observation, service: Manifest) -> Manifest | None:
    primary = {} if seen.primary is None else seen.primary["spec"].get("selector") or {}
    return given_back(service, seen.now, fallback=primary)


def _arms(seen: Observation) -> list[Delete]:
    """The arms; their network policy once none of their pods runs or could still be started."""
    steps = [step for arm in _ARMS for step in _deletes(seen, _ARM_KINDS, arm)]
    deployments = [found for arm in _ARMS if (found := seen.object("Deployment", arm)) is not None]
    runs = any(pod.component in _ARMS for pod in seen.pods) or any(d["spec"].get("replicas", 1) for d in deployments)
    waited = seen.record is not None and 0 < seen.record.ended_at < seen.now - LAST_PODS_S
    return steps if runs and not waited else [*steps, *_deletes(seen, ("NetworkPolicy",), names.ARMS)]


def _deletes(seen: Observation, kinds: tuple[str, ...], component: str) -> list[Delete]:
    name = names.object_name(seen.run.name, component)
    return [Delete(kind, name) for kind in kinds if seen.object(kind, component) is not None]
