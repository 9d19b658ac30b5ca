"""When a run ends: one small class per reason, any one of which is enough. Pure."""

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.reconcile.crossover import change_due, place_deadline
from shadowrun_operator.reconcile.endings.arm_changed import ArmChanged
from shadowrun_operator.reconcile.endings.crossover_failed import CrossoverFailed
from shadowrun_operator.reconcile.endings.decided import Decided
from shadowrun_operator.reconcile.endings.duration_reached import DurationReached
from shadowrun_operator.reconcile.endings.evidence_lost import EvidenceLost
from shadowrun_operator.reconcile.endings.expired import Expired
from shadowrun_operator.reconcile.endings.failure_proven import FailureProven
from shadowrun_operator.reconcile.endings.gpu_hours_reached import GPUHoursReached, gpu_hours_due
from shadowrun_operator.reconcile.endings.hardware_mismatch import HardwareMismatch
from shadowrun_operator.reconcile.endings.live_path_harmed import LivePathHarmed
from shadowrun_operator.reconcile.endings.match_rate_reached import MatchRateReached
from shadowrun_operator.reconcile.endings.node_lost import NodeLost
from shadowrun_operator.reconcile.endings.pairs_reached import PairsReached
from shadowrun_operator.reconcile.endings.protocol import Ending
from shadowrun_operator.reconcile.endings.spec_changed import SpecChanged
from shadowrun_operator.reconcile.endings.start_deadline_exceeded import StartDeadlineExceeded
from shadowrun_operator.reconcile.endings.stopped import Stopped
from shadowrun_operator.reconcile.endings.tokens_reached import TokensReached
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress
from shadowrun_operator.reconcile.schedule import start_deadline

ENDINGS: tuple[Ending, ...] = (
    LivePathHarmed(),
    Stopped(),
    SpecChanged(),
    ArmChanged(),
    EvidenceLost(),
    Expired(),
    StartDeadlineExceeded(),
    NodeLost(),
    HardwareMismatch(),
    CrossoverFailed(),
    FailureProven(),
    DurationReached(),
    Decided(),
    MatchRateReached(),
    PairsReached(),
    TokensReached(),
    GPUHoursReached(),
)
"""The first that is met gives the reason: customers come first, then what makes evidence worthless, then its end."""


def ending(seen: Observation, done: Progress) -> tuple[EndReason, str] | None:
    """Why the run must end now, if it must."""
    for candidate in ENDINGS:
        message = candidate.met(seen, done)
        if message is not None:
            return candidate.reason, message
    return None


def deadlines(seen: Observation, done: Progress) -> list[float]:
    """Every instant at which an ending may become due by time alone."""
    spec, used_up = seen.run.spec, gpu_hours_due(seen)
    due = [start_deadline(seen)] if done.first_counted is None else []
    if seen.record is not None:
        due.append(seen.record.expiry)
    due += [at for at in (used_up, change_due(seen, done), place_deadline(seen, done)) if at is not None]
    if done.first_counted is not None:
        due += [
            done.first_counted + spec.duration.seconds,
            done.first_counted + spec.end_conditions.min_duration.seconds,
        ]
    return due


__all__ = ["ENDINGS", "Ending", "deadlines", "ending"]
