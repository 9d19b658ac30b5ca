"""What the command's exit status means, and the error that ends it with a sentence."""

from enum import IntEnum

from shadowrun_operator.api.status import Verdict


class Exit(IntEnum):
    """Exit status of `shadowrun`: a verdict, or 3 for anything that kept the command from having one."""

    PASS = 0
    FAIL = 1
    INCONCLUSIVE = 2
    ERROR = 3


OF_VERDICT: dict[Verdict, Exit] = {"Pass": Exit.PASS, "Fail": Exit.FAIL, "Inconclusive": Exit.INCONCLUSIVE}


class CommandError(Exception):
    """The command cannot do what it was asked; the message says why."""


class UnreachableError(CommandError):
    """The API server did not answer, or not in time; asking again may help."""
