"""The part of a spec that decides the evidence: what must not change once a run is accepted. Pure."""

from typing import Any

from pydantic import ValidationError

from shadowrun_operator.api.spec import Spec

MUTABLE = ("suspend", "stop", "duration", "admission", "keepArms", "ttlAfterFinished")
"""Fields of the spec that may change while a run is active."""

MUTABLE_SAMPLING = ("rate", "targetPairsPerSecond")
"""Of `sampling`, too."""


def frozen_spec(spec: Spec) -> dict[str, Any]:
    """The spec as JSON without what may change, and without the day: repeated tomorrow it is the same experiment."""
    kept = {key: value for key, value in spec.to_json().items() if key not in MUTABLE}
    kept["sampling"] = {key: value for key, value in kept["sampling"].items() if key not in MUTABLE_SAMPLING}
    hours = {key: value for key, value in kept.pop("schedule", {}).items() if key != "startTime"}
    return {**kept, "schedule": hours} if hours else kept


def changed_fields(snapshot: dict[str, Any], spec: Spec) -> list[str]:
    """Which fields of the frozen part differ from a snapshot of it, as paths of at most two steps.

    The snapshot may be an older operator's: it is read by today's model, so that a field or a default which that one
    did not know is no change. One that today's model cannot read is a change of the whole.
    """
    now = frozen_spec(spec)
    if now == snapshot:
        return []
    whole = spec.to_json()
    sampling = {**whole["sampling"], **snapshot.get("sampling", {})}
    kept = {key: whole[key] for key in MUTABLE if key in whole}
    try:
        before = frozen_spec(Spec.model_validate({**snapshot, **kept, "sampling": sampling}))
    except ValidationError:
        return ["spec"]
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
