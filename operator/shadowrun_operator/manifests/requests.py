"""What a pod asks of its node, as the scheduler counts: all that run side by side, or the largest that runs before.

Pure. Amounts are whole: CPU in thousandths of a core, memory in bytes, devices in pieces.
"""

from collections.abc import Callable
from typing import Any

from shadowrun_operator.api.quantities import kubernetes_quantity
from shadowrun_operator.manifests.names import Manifest

MILLI = 1000


def requests(pod_spec: Manifest) -> dict[str, int]:
    """By resource; what is only limited is asked for as much."""
    return _summed(pod_spec, lambda key: True)


def devices(template: Manifest) -> dict[str, int]:
    """What the pods of a template ask for of the resources that have a domain in their name: accelerators, mostly."""
    return _summed(template.get("spec", {}), lambda key: "/" in key)


def amount(resource: str, quantity: object) -> int:
    """A quantity in the units of this module; one that can't be read counts as none."""
    found = kubernetes_quantity(quantity)
    if found is None:
        return 0
    return max(0, int(found * MILLI) if resource == "cpu" else int(found))


def _summed(pod_spec: Manifest, wanted: Callable[[str], bool]) -> dict[str, int]:
    before = pod_spec.get("initContainers") or []
    beside = [c for c in before if c.get("restartPolicy") == "Always"]
    together = _total([*beside, *(pod_spec.get("containers") or [])])
    for container in before:
        for key, asked in _of_container(container).items():
            together[key] = max(together.get(key, 0), asked)
    for key, asked in (pod_spec.get("overhead") or {}).items():
        together[key] = together.get(key, 0) + amount(key, asked)
    return {key: asked for key, asked in together.items() if asked and wanted(key)}


def _total(containers: list[Any]) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in containers:
        for key, asked in _of_container(container).items():
            total[key] = total.get(key, 0) + asked
    return total


def _of_container(container: Manifest) -> dict[str, int]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {key: amount(key, quantity) for key, quantity in asked.items()}
