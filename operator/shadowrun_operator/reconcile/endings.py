"""When a run ends, one small class per reason: `met` says in a sentence that it does, or None. Pure."""

from typing import ClassVar, Protocol

from shadowrun_operator.api.conditions import EndReason
from shadowrun_operator.manifests import names
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.hardware import hardware_matches
from shadowrun_operator.reconcile.objects import arm_identities
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.progress import Progress
from shadowrun_operator.reconcile.spec_hash import changed_fields


class Ending(Protocol):
    """A reason to end, and how to tell."""

    reason: ClassVar[EndReason]

    def met(self, seen: Observation, done: Progress) -> str | None:
        """A sentence with the numbers when the run must end now."""
        ...


class LivePathHarmed:
    """Copying costs customers more than it may."""

    reason: ClassVar = EndReason.LIVE_PATH_HARMED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """Errors or first bytes with copying on are worse than `spec.livePathGuard` allows, beyond chance."""
        return None if done.harm is None else f"{done.harm} {done.pairs} pairs had been counted."


class Stopped:
    """Somebody asked for it."""

    reason: ClassVar = EndReason.STOPPED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """`spec.stop.reason` is set."""
        reason = seen.run.spec.stop.reason
        return f"Stopped by hand after {done.pairs} pairs: {reason}" if reason else None


class SpecChanged:
    """What decides the evidence is not what the run was accepted with."""

    reason: ClassVar = EndReason.SPEC_CHANGED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """The frozen part differs from what it was at acceptance."""
        changed = changed_fields(seen.record.spec, seen.run.spec) if seen.record is not None else []
        if not changed:
            return None
        return f"{', '.join(changed)} changed after the run was accepted: create a new run for another experiment."


class ArmChanged:
    """What was measured is not what is there now."""

    reason: ClassVar = EndReason.ARM_CHANGED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """A Deployment of an arm is gone, another one, or was edited since copying began."""
        before, now = (seen.record.arms if seen.record is not None else {}), arm_identities(seen)
        changed = [arm for arm in before if now.get(arm) != before[arm]]
        if not changed:
            return None
        said = "; ".join(f"{arm} {_what_happened(before[arm], now.get(arm))}" for arm in changed)
        return f"The arms are not those that were measured: {said}. {done.pairs} pairs had been counted."


class EvidenceLost:
    """The replicas can neither be read nor told anything."""

    reason: ClassVar = EndReason.EVIDENCE_LOST

    def met(self, seen: Observation, done: Progress) -> str | None:
        """Copying has begun, and the mirror's Secret with token, seed and configuration is gone or unreadable."""
        if seen.record is None or not seen.record.copying_since or seen.config is not None:
            return None
        secret = names.object_name(seen.run.name, names.MIRROR)
        return f"Secret '{secret}' is gone or unreadable, and with it the way to what was counted: {done.pairs} pairs."


class Expired:
    """The absolute safety net."""

    reason: ClassVar = EndReason.EXPIRED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """`status.expiryTime` has come and nothing else has ended the run."""
        if seen.record is None or seen.now < seen.record.expiry:
            return None
        return (
            f"The expiry {times.written(seen.record.expiry)} came before any end condition; {done.pairs} pairs counted."
        )


class StartDeadlineExceeded:
    """Nothing was counted in time."""

    reason: ClassVar = EndReason.START_DEADLINE_EXCEEDED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """No counted pair `spec.startDeadline` after creation."""
        if done.first_counted is not None or seen.now < start_deadline(seen):
            return None
        spec = seen.run.spec
        waiting = _unready(seen)
        hint = "" if spec.arms.egress else " Arms reach nothing on the network unless spec.arms.egress allows it."
        why = f"not ready: {'; '.join(waiting)}.{hint}" if waiting else done.warm_up_state
        return f"No pair was counted within startDeadline {spec.start_deadline}; {why}"


class HardwareMismatch:
    """The arms cannot be compared."""

    reason: ClassVar = EndReason.HARDWARE_MISMATCH

    def met(self, seen: Observation, done: Progress) -> str | None:
        """Nodes differ and `spec.hardware.policy` is Require."""
        if seen.run.spec.hardware.policy != "Require":
            return None
        finding = hardware_matches(seen)
        return finding.message if finding.matched is False else None


class DurationReached:
    """The normal end."""

    reason: ClassVar = EndReason.DURATION_REACHED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """`spec.duration` has passed since the first counted pair."""
        length = seen.run.spec.duration.seconds
        if done.first_counted is None or seen.now < done.first_counted + length:
            return None
        return f"{done.pairs} pairs were counted over {seen.run.spec.duration}."


class PairsReached:
    """Enough pairs."""

    reason: ClassVar = EndReason.PAIRS_REACHED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """`endConditions.pairs` are counted and minDuration has passed."""
        wanted = seen.run.spec.end_conditions.pairs
        if wanted is None or done.pairs < wanted or not _long_enough(seen, done):
            return None
        return f"{done.pairs} of {wanted} pairs were counted."


class TokensReached:
    """Enough tokens."""

    reason: ClassVar = EndReason.TOKENS_REACHED

    def met(self, seen: Observation, done: Progress) -> str | None:
        """`endConditions.tokens` are counted and minDuration has passed."""
        wanted = seen.run.spec.end_conditions.tokens
        if wanted is None or done.tokens < wanted or not _long_enough(seen, done):
            return None
        return f"{done.tokens} of {wanted} prompt tokens (estimated) were counted."


ENDINGS: tuple[Ending, ...] = (
    LivePathHarmed(),
    Stopped(),
    SpecChanged(),
    ArmChanged(),
    EvidenceLost(),
    Expired(),
    StartDeadlineExceeded(),
    HardwareMismatch(),
    DurationReached(),
    PairsReached(),
    TokensReached(),
)
"""The first that is met gives the reason: customers come first, then what makes evidence worthless, then its end."""


def ending(seen: Observation, done: Progress) -> tuple[EndReason, str] | None:
    """Why the run must end now, if it must."""
    for candidate in ENDINGS:
        message = candidate.met(seen, done)
        if message is not None:
            return candidate.reason, message
    return None


def start_deadline(seen: Observation) -> float:
    """UTC seconds until which a first pair must be counted."""
    created = seen.run.metadata.creation_timestamp
    return (times.seconds(created) if created else seen.now) + seen.run.spec.start_deadline.seconds


def deadlines(seen: Observation, done: Progress) -> list[float]:
    """Every instant at which an ending may become due by time alone."""
    spec = seen.run.spec
    due = [start_deadline(seen)] if done.first_counted is None else []
    if seen.record is not None:
        due.append(seen.record.expiry)
    if done.first_counted is not None:
        due += [
            done.first_counted + spec.duration.seconds,
            done.first_counted + spec.end_conditions.min_duration.seconds,
        ]
    return due


def _what_happened(before: str, now: str | None) -> str:
    if now is None:
        return "was deleted"
    return "was edited" if now.split("/")[0] == before.split("/")[0] else "was replaced"


def _long_enough(seen: Observation, done: Progress) -> bool:
    least = seen.run.spec.end_conditions.min_duration.seconds
    return done.first_counted is not None and seen.now >= done.first_counted + least


def _unready(seen: Observation) -> list[str]:
    parts = []
    for component in seen.components:
        if seen.all_ready(component):
            continue
        why = next((pod.waiting for pod in seen.pods_of(component) if pod.waiting), "")
        parts.append(f"{component} ({why})" if why else component)
    return parts
