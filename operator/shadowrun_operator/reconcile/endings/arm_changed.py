"""The end of a run whose arms are not what was measured."""

from typing import ClassVar

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.reconcile.arms import arm_identities
from shadowrun_operator.reconcile.difference import undeclared
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress

SHOWN = 5
"""Most paths that are named."""


class ArmChanged:
    """What was measured is not what is there now."""

    reason: ClassVar = EndReason.ARM_CHANGED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """The workload of an arm is gone, another one, or was edited since copying began; or was never as declared."""
        before, now = (seen.record.arms if seen.record is not None else {}), arm_identities(seen)
        changed = [arm for arm in before if now.get(arm) != before[arm]]
        if not changed:
            return _beyond(undeclared(seen))
        said = "; ".join(f"{arm} {_what_happened(before[arm], now.get(arm))}" for arm in changed)
        return f"The arms are not those that were measured: {said}. {done.pairs} pairs had been counted."


def _beyond(paths: tuple[str, ...]) -> str | None:
    """What tells an arm from the baseline beside the spec's own change."""
    if not paths:
        return None
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return f"The arms differ by more than spec.arms.candidate says: {', '.join(paths[:SHOWN])}{more}."


def _what_happened(before: str, now: str | None) -> str:
    if now is None:
        return "was deleted"
    return "was edited" if now.split("/")[0] == before.split("/")[0] else "was replaced"
