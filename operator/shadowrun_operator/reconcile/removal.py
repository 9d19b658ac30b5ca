"""What is taken down at the end of a run, and in which order; the same for every end, deletion included. Pure.

The order never changes: arms go before the path is touched, the capture Service goes back to the primary's pods before
Envoy goes, and Envoy is asked to go only when new customers can't reach it any more. A Service that cannot be given
back keeps its Envoy: customers come before a tidy end.
"""

from shadowrun_operator.manifests import groups, names
from shadowrun_operator.manifests.given_back import given_back, is_given_back
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.plan import Apply, Delete, Step
from shadowrun_operator.reconcile.route import holds_claim, removal_steps, route_is_free

SETTLE_S = 10.0
"""After the Service was given back: until no client is sent to Envoy any more. Customers who still are with it keep
their connections: its pod asks them to leave before it ends, and has the time of the longest answer for that."""
LAST_PODS_S = 600.0
"""How long the arms' network policy waits for their last pods: one on a node that is gone never ends."""

_ARMS = (names.CANDIDATE, names.CONTROL, names.BASELINE)
_MIRROR_KINDS = ("Deployment", "PodDisruptionBudget", "Service", "NetworkPolicy", "Secret")
_CAPTURE_KINDS = ("Deployment", "PodDisruptionBudget", "Secret")


def removal(seen: Observation, *, keep_arms: bool = False) -> tuple[Step, ...]:
    """What may be removed now: arms (unless they are kept), then the Service is given back, then capture and mirror.

    The Service for copies of another proxy needs no giving back: without the mirror it has no endpoints. A filter of
    ours in a route goes before the mirror does.
    A mirror without a readable Secret cannot be told to stop, so it goes with the arms.
    """
    steps: list[Step] = [] if keep_arms else [*arm_removal(seen)]
    service, free = _captured(seen), _captured(seen) is None and drained(seen)
    manifest = None if service is None else _returned(seen, service)
    if manifest is not None:
        steps.append(Apply(manifest))
    if free:
        steps += _deletes(seen, _CAPTURE_KINDS, names.CAPTURE)
    if free or stuck(seen) or seen.config is None:
        steps += _deletes(seen, _MIRROR_KINDS, names.MIRROR)
        steps += _deletes(seen, ("Service",), names.MIRROR_PODS)
    return (*steps, *removal_steps(seen))


def remaining(seen: Observation, steps: tuple[Step, ...] = (), *, keep_arms: bool = False) -> tuple[str, ...]:
    """What will be left of the run once these steps are done, beside what stays: Service, evidence, report."""
    gone = {(step.kind, step.name) for step in steps if isinstance(step, Delete)}
    stays = {("ConfigMap", names.object_name(seen.run.name, part)) for part in (names.EVIDENCE, names.REPORT)}
    stays |= arms_left(seen) if keep_arms else set()
    if stuck(seen):
        stays |= {(kind, names.object_name(seen.run.name, names.CAPTURE)) for kind in _CAPTURE_KINDS}
    if not holds_claim(seen):
        stays.add(("Service", seen.run.spec.capture.service_name))
    return tuple(f"{kind} '{name}'" for kind, name in sorted(seen.objects.keys() - gone - stays))


def drained(seen: Observation) -> bool:
    """Whether Envoy may be asked to go: the Service has led elsewhere for long enough, or there is no Envoy.

    In mode HTTPRoute it is the mirror that may go, once no gateway sends it copies.
    """
    if seen.object("Deployment", names.CAPTURE) is None:
        return route_is_free(seen)
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


def arms_left(seen: Observation) -> set[tuple[str, str]]:
    """Kind and name of what there is of the arms, their network policy included."""
    wanted = {(kind, names.object_name(seen.run.name, part)) for arm in _ARMS for kind, part in groups.objects_of(arm)}
    return {*wanted, ("NetworkPolicy", names.object_name(seen.run.name, names.ARMS))} & seen.objects.keys()


def arm_removal(seen: Observation) -> tuple[Delete, ...]:
    """The arms; their network policy once none of their pods runs or could still be started."""
    steps = [step for arm in _ARMS for kind, part in groups.objects_of(arm) for step in _deletes(seen, (kind,), part)]
    workloads = [found for arm in _ARMS if (found := seen.arm(arm)) is not None]
    runs = any(pod.component in _ARMS for pod in seen.pods) or any(w["spec"].get("replicas", 1) for w in workloads)
    waited = 0 < _removed_since(seen) < seen.now - LAST_PODS_S
    return tuple(steps if runs and not waited else [*steps, *_deletes(seen, ("NetworkPolicy",), names.ARMS)])


def _removed_since(seen: Observation) -> float:
    """Since when the arms are being removed, in UTC seconds; 0 before the end."""
    ended, kept = seen.record.ended_at if seen.record is not None else 0.0, seen.run.status.arms_kept_until
    return ended if kept is None else max(ended, times.seconds(kept))


def _deletes(seen: Observation, kinds: tuple[str, ...], component: str) -> list[Delete]:
    name = names.object_name(seen.run.name, component)
    return [Delete(kind, name) for kind in kinds if seen.object(kind, component) is not None]
