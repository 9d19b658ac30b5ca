"""The end by what the run has cost in accelerators.

Counted are the accelerators that all pods of all arms ask for by their templates, times the hours since copying began.
That is a lower bound of what was held: the arms stand before copying begins and until they are removed, and
accelerators given by other means than `resources.limits` (dynamic resource allocation) do not show there.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.api.quantities import kubernetes_quantity
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.workload import parts_of
from shadowrun_operator.reconcile.endings.floor import long_enough
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress

ACCELERATORS = frozenset(
    {
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
        "google.com/tpu",
        "aws.amazon.com/neuron",
        "huawei.com/Ascend310",
        "huawei.com/Ascend310P",
        "huawei.com/Ascend910",
    }
)
"""What device plugins offer accelerators under, by whole names: beside them stand amounts of memory and of cores."""
PARTITIONS = "nvidia.com/mig-"
"""How the names of partitions begin. A shared or partitioned accelerator counts as one."""


class GPUHoursReached:
    """Enough spent."""

    reason: ClassVar = EndReason.GPU_HOURS_REACHED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """`endConditions.gpuHours` are used up and minDuration has passed."""
        wanted = seen.run.spec.end_conditions.gpu_hours
        if wanted is None or not long_enough(seen, done):
            return None
        used = gpu_hours(seen)
        if used < wanted:
            return None
        return f"At least {used:.1f} of {wanted} accelerator hours were used; {done.pairs} pairs were counted."


def gpu_hours(seen: Observation) -> float:
    """Accelerator hours of all arms since copying began; 0 before, and where no template asks for an accelerator."""
    if seen.record is None or not seen.record.copying_since:
        return 0.0
    return accelerators(seen) * (seen.now - seen.record.copying_since) / 3600


def gpu_hours_due(seen: Observation) -> float | None:
    """UTC seconds at which `endConditions.gpuHours` are used up; None where they never are."""
    wanted = seen.run.spec.end_conditions.gpu_hours
    if wanted is None or seen.record is None or not seen.record.copying_since:
        return None
    count = accelerators(seen)
    return seen.record.copying_since + 3600 * wanted / count if count else None


def accelerators(seen: Observation) -> int:
    """Accelerators that all arms hold together, by their workloads."""
    return sum(_of_workload(found) for arm in seen.run.spec.made_arms if (found := seen.arm(arm)) is not None)


def _of_workload(workload: Manifest) -> int:
    each = sum(part.count * _of_template(part.template) for part in parts_of(workload))
    return int(workload["spec"].get("replicas", 1)) * each


def _of_template(template: Manifest) -> int:
    """Of one pod, as the scheduler counts: all that run side by side, or the largest that runs before them."""
    spec = template.get("spec", {})
    before = spec.get("initContainers", [])
    beside = [c for c in before if c.get("restartPolicy") == "Always"]
    together = sum(_of_container(c) for c in [*beside, *spec.get("containers", [])])
    return max([together, *(_of_container(c) for c in before)])


def _of_container(container: Mapping[str, Any]) -> int:
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    return sum(_whole(amount) for key, amount in limits.items() if key in ACCELERATORS or key.startswith(PARTITIONS))


def _whole(amount: object) -> int:
    """A whole number of accelerators; one that can't be read counts as none."""
    found = kubernetes_quantity(amount)
    return 0 if found is None else max(0, int(found))
