"""A cluster of one ShadowRun that answers what a test says, in turn."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from shadowrun_operator.api.conditions import ConditionType, set_condition
from shadowrun_operator.api.status import ConditionStatus, Status
from shadowrun_operator.cli.exits import CommandError

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
Answer = dict[str, Any] | CommandError


def run(status: Status | None = None, *, generation: int = 1, uid: str = "u") -> dict[str, Any]:
    """A ShadowRun as the API server gives it, without a spec: the command must not need it."""
    metadata = {"name": "x", "namespace": "ns", "uid": uid, "generation": generation}
    return {"metadata": metadata} | ({} if status is None else {"status": status.to_json()})


def status(
    kind: ConditionType, value: ConditionStatus, *, why: str = "Why", generation: int = 1, **fields: Any
) -> Status:
    """A status with one condition."""
    conditions = set_condition((), kind, value, why, "because", generation=generation, now=NOW)
    return Status(conditions=conditions, observed_generation=generation, **fields)


def complete(generation: int = 1, **fields: Any) -> Status:
    """A status of a run that has ended."""
    return status(ConditionType.COMPLETE, "True", generation=generation, phase="Complete", **fields)


class FakeReader:
    """Gives its answers in turn, the last one for ever; an answer that is an error is raised."""

    namespace = "ns"

    def __init__(self, answers: Sequence[Answer], config_maps: dict[str, dict[str, str]] | None = None) -> None:
        self._answers = list(answers)
        self._config_maps = config_maps or {}
        self.asked = 0

    def run(self, name: str) -> dict[str, Any]:
        """The next answer."""
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        if isinstance(answer, CommandError):
            raise answer
        return answer

    def config_map(self, name: str) -> dict[str, str]:
        """The data of a ConfigMap."""
        if name not in self._config_maps:
            raise CommandError(f"ConfigMap {name} in namespace ns was not found")
        return self._config_maps[name]
