"""What differs between the arms, from their workloads as the API server stored them. Pure."""

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.candidate import carries_patch, change_of
from shadowrun_operator.manifests.difference import beyond, pod_spec_diff
from shadowrun_operator.reconcile.observation import Observation


def difference(seen: Observation) -> tuple[str, ...] | None:
    """Paths at which baseline and candidate differ; None while one of them is not there."""
    baseline, candidate = seen.arm(names.BASELINE), seen.arm(names.CANDIDATE)
    return tuple(pod_spec_diff(baseline, candidate)) if baseline and candidate else None


def undeclared(seen: Observation) -> tuple[str, ...]:
    """What sets an arm apart from the baseline that the spec says nothing of, as `arm: path`.

    Somebody changed one of them after it was made, or while it was: a webhook, for instance.
    """
    record, baseline = seen.record, seen.arm(names.BASELINE)
    candidate, control = seen.arm(names.CANDIDATE), seen.arm(names.CONTROL)
    if record is None or baseline is None:
        return ()
    found: list[str] = []
    if candidate is not None and carries_patch(candidate, record.spec_hash):
        change = change_of(seen.run.spec.arms.candidate, record.source)
        found += (f"{names.CANDIDATE}: {path}" for path in beyond(baseline, candidate, change))
    if control is not None:
        found += (f"{names.CONTROL}: {path}" for path in beyond(baseline, control, {}))
    return tuple(found)
