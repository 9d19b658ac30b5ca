"""What the command reads of a ShadowRun: identity and status. Pure types.

The spec is left out on purpose: a command older or newer than the operator must still be able to read a verdict.
"""

from typing import Any, Self

from pydantic import ValidationError

from shadowrun_operator.api.block import Block
from shadowrun_operator.api.conditions import ConditionType, Reason, condition
from shadowrun_operator.api.run import Metadata
from shadowrun_operator.api.status import Condition, Status
from shadowrun_operator.cli.exits import CommandError

HOPELESS = frozenset({Reason.INVALID_SPEC, Reason.NOT_IMPLEMENTED, Reason.PATCH_INVALID, Reason.PRIMARY_UNSUITABLE})
"""Reasons of a refusal that nothing but another spec can change, so that waiting is of no use."""


class SeenRun(Block):
    """A ShadowRun as the command sees it."""

    metadata: Metadata
    """Name and identity."""
    status: Status = Status()
    """What the operator has written."""

    @classmethod
    def parse(cls, body: Any) -> Self:
        """Read an object; raises `CommandError` naming the fields that are wrong."""
        try:
            return cls.model_validate(body)
        except ValidationError as wrong:
            found = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in wrong.errors())
            raise CommandError(f"the ShadowRun cannot be read: {found}") from wrong

    def current(self, kind: ConditionType) -> Condition | None:
        """A condition, if it is about the spec as it is now."""
        found = condition(self.status.conditions, kind)
        return found if found is not None and found.observed_generation >= self.metadata.generation else None

    @property
    def complete(self) -> bool:
        """Whether the run has ended, as far as its present spec is concerned."""
        found = self.current(ConditionType.COMPLETE)
        return found is not None and found.status == "True"

    @property
    def refusal(self) -> Condition | None:
        """Why the run will never start as it is, if so."""
        found = self.current(ConditionType.ACCEPTED)
        return found if found is not None and found.status == "False" and found.reason in HOPELESS else None
