"""Objects of the customers' path whose run is gone: give the Service back first, remove Envoy on a later look. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.given_back import given_back, is_given_back
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile.plan import Apply, Delete, Step


@dataclass(frozen=True)
class OrphanPlan:
    """Steps within one namespace."""

    namespace: str
    steps: tuple[Step, ...]


def orphan_plans(path_objects: Iterable[Manifest], live_runs: set[tuple[str, str]], now: float) -> list[OrphanPlan]:
    """What to do about capture objects of runs that do not live; `live_runs` holds (namespace, name).

    A Service that still selects capture is given back, and nothing else of its run is touched before the next look, by
    when customers' connections have moved. The Service itself is never deleted.
    """
    orphans: dict[tuple[str, str], list[Manifest]] = {}
    for item in path_objects:
        meta = item["metadata"]
        key = (meta["namespace"], meta.get("labels", {}).get(names.RUN_LABEL, ""))
        if key not in live_runs:
            orphans.setdefault(key, []).append(item)
    plans = (OrphanPlan(namespace, _steps(found, now)) for (namespace, _), found in sorted(orphans.items()))
    return [plan for plan in plans if plan.steps]


def _steps(found: list[Manifest], now: float) -> tuple[Step, ...]:
    services = [item for item in found if item["kind"] == "Service" and not is_given_back(item)]
    if services:
        return tuple(Apply(manifest) for service in services if (manifest := given_back(service, now)) is not None)
    rest = [item for item in found if item["kind"] != "Service"]
    return tuple(Delete(item["kind"], item["metadata"]["name"]) for item in rest)
