"""`shadowrun gate`: wait until a run has ended. Clock, sleep and reads are arguments; nothing is printed here."""

from collections.abc import Callable
from dataclasses import dataclass

from shadowrun_operator.cli.exits import CommandError, UnreachableError
from shadowrun_operator.cli.seen import SeenRun

POLL_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """How to wait: `read` asks the cluster once, `clock` counts seconds, `told` hears what has changed."""

    read: Callable[[], SeenRun]
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    told: Callable[[str], None]


def ended(waiting: Waiting, timeout: float) -> SeenRun:
    """The run once it is complete.

    Raises `CommandError` when that is not so within `timeout` seconds, when the run is refused for good, and when it
    was deleted or replaced by another of the same name. An API server that does not answer is asked again.
    """
    deadline = waiting.clock() + timeout
    uid, phase, trouble = "", "", ""
    while True:
        try:
            run = waiting.read()
        except UnreachableError as silent:
            trouble = f"; the last answer of the API server: {silent}"
        else:
            trouble = ""
            if uid and run.metadata.uid != uid:
                raise CommandError(f"ShadowRun {run.metadata.name} was replaced by another of the same name")
            uid = run.metadata.uid
            if run.complete:
                return run
            if run.refusal is not None:
                raise CommandError(f"the run was not accepted ({run.refusal.reason}): {run.refusal.message}")
            if run.status.phase != phase:
                phase = run.status.phase
                waiting.told(f"{phase}: {run.status.message}" if run.status.message else phase)
        if waiting.clock() + POLL_SECONDS > deadline:
            raise CommandError(f"not complete within {timeout:.0f} s (phase {phase or 'unknown'}){trouble}")
        waiting.sleep(POLL_SECONDS)
