"""What a run left that can't be read or is gone: arms go, the Service goes back, Envoy goes on a later look. Pure.

Works by names and labels alone; a run that can be read is taken down by `removal`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.given_back import given_back, is_given_back
from shadowrun_operator.manifests.names import Manifest, of_version
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
    plans = (OrphanPlan(namespace, abandoned_steps(found, now)) for (namespace, _), found in sorted(orphans.items()))
    return [plan for plan in plans if plan.steps]


def abandoned_steps(found: Iterable[Manifest], now: float) -> tuple[Step, ...]:
    """What may be removed now of the objects of one run. A Service that can't be given back keeps its Envoy.

    A filter in a route is not among it (`route.unclaimed_steps`): it may be refused, and must hold up nothing else.
    """
    items = list(found)
    path = [item for item in items if item["metadata"]["labels"].get(names.COMPONENT_LABEL) == names.CAPTURE]
    for_copies = [item for item in items if _is_for_copies(item)]
    steps = _deletes([item for item in items if item not in path and item not in for_copies])
    services = [item for item in path if item["kind"] == "Service" and not is_given_back(item)]
    if services:
        return (
            *steps,
            *(Apply(of_version(back, service)) for service in services if (back := given_back(service, now))),
        )
    return (*steps, *_deletes([item for item in path if item["kind"] != "Service"]))


def _is_for_copies(item: Manifest) -> bool:
    """The Service that another proxy sends copies to: it stays, and has no endpoints once the mirror is gone."""
    labels: dict[str, str] = item["metadata"]["labels"]
    return bool(item["kind"] == "Service") and labels.get(names.COMPONENT_LABEL) in (names.COPIES, names.ROUTED)


def _deletes(items: list[Manifest]) -> list[Step]:
    """Evidence and report stay."""
    return [Delete(item["kind"], item["metadata"]["name"]) for item in items if item["kind"] != "ConfigMap"]
