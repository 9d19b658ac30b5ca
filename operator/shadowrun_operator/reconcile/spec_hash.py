"""The part of a spec that decides the evidence, and its hash: what must not change once a run is accepted. Pure."""

from typing import Any

from shadowrun_operator.api.spec import Spec
from shadowrun_operator.manifests.names import content_hash

MUTABLE = ("suspend", "stop", "duration", "admission")
"""Fields of the spec that may change while a run is active; of `sampling` the rate may, too."""


def frozen_spec(spec: Spec) -> dict[str, Any]:
    """The spec as JSON without what may change."""
    kept = {key: value for key, value in spec.to_json().items() if key not in MUTABLE}
    kept["sampling"] = {key: value for key, value in kept["sampling"].items() if key != "rate"}
    return kept


def spec_hash(spec: Spec) -> str:
    """Hash of the frozen part."""
    return content_hash(frozen_spec(spec))


def changed_fields(before: dict[str, Any], spec: Spec) -> list[str]:
    """Which fields of the frozen part differ from a snapshot of it, as paths of at most two steps."""
    now = frozen_spec(spec)
    paths = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            paths += [f"spec.{key}.{k}" for k in sorted(old.keys() | new.keys()) if old.get(k) != new.get(k)]
        else:
            paths.append(f"spec.{key}")
    return paths
