"""What of the spec was changed while the run was active, and when: rates, limits, the duration, pauses by hand. Pure.

The first entries say how it was when copying began. A run that is changed without end keeps those and the latest.
"""

from collections.abc import Iterator
from typing import Any

from shadowrun_operator.api.spec import Spec
from shadowrun_operator.judge.facts import SpecChange

MOST = 200
_FIELDS = (
    "suspend",
    "duration",
    "sampling.rate",
    "sampling.targetPairsPerSecond",
    "admission.maxInFlight",
    "admission.timeout",
    "admission.queue.maxLength",
    "admission.queue.maxWait",
)


def noted(known: tuple[SpecChange, ...], spec: Spec, now: float) -> tuple[SpecChange, ...]:
    """The history after another look at `now` (UTC seconds); the same one where nothing has changed."""
    latest = {change.field: change.value for change in known}
    new = tuple(
        SpecChange(at=now, field=field, value=value) for field, value in _values(spec) if value != latest.get(field)
    )
    if len(known) + len(new) <= MOST:
        return known + new if new else known
    began = sum(1 for change in known if change.at == known[0].at)
    return known[:began] + (known[began:] + new)[-(MOST - began) :]


def _values(spec: Spec) -> Iterator[tuple[str, str]]:
    whole = spec.to_json()
    for field in _FIELDS:
        found: Any = whole
        for step in field.split("."):
            found = found.get(step) if isinstance(found, dict) else None
        yield f"spec.{field}", "" if found is None else str(found).lower()
