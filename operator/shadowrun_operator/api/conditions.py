"""The words of the status: condition types, reasons and end reasons, each with a sentence; and `set_condition`.

Pure: `now` is an argument. This module must not decide which condition holds.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

from shadowrun_operator.api.status import CONDITION_LENGTH, Condition, ConditionStatus, shortened


class _Word(StrEnum):
    """A machine word with a sentence for people."""

    sentence: str

    def __new__(cls, value: str, sentence: str) -> Self:
        word = str.__new__(cls, value)
        word._value_ = value
        word.sentence = sentence
        return word


class ConditionType(_Word):
    """The conditions of a ShadowRun, in the order they are listed."""

    ACCEPTED = "Accepted", "The spec is valid, supported, and its references exist; nothing is created before."
    CAPTURE_READY = "CaptureReady", "Capture stands in the customers' path, or the Service for copies takes them."
    ARMS_READY = "ArmsReady", "Every pod of every arm is ready, and the mirror too."
    HARDWARE_MATCHED = "HardwareMatched", "The nodes of all arms agree on every label of hardware.matchLabelKeys."
    LIVE_PATH_HEALTHY = (
        "LivePathHealthy",
        "Customers' requests reach the primary, and copying costs them no more than allowed.",
    )
    COMPLETE = "Complete", "The run has ended, in whatever way; the verdict is final."
    SUCCEEDED = "Succeeded", "The run has ended with the verdict Pass."


class Reason(_Word):
    """Reasons of conditions, beside the end reasons and verdicts that `Complete` and `Succeeded` carry."""

    ACCEPTED = "Accepted", "The spec is accepted."
    INVALID_SPEC = "InvalidSpec", "The spec contradicts itself or cannot be read."
    NOT_IMPLEMENTED = "NotImplemented", "The spec asks for something this version does not do yet."
    PRIMARY_NOT_FOUND = "PrimaryNotFound", "The primary's Service, or the port named, does not exist."
    DEPLOYMENT_NOT_FOUND = "DeploymentNotFound", "The Deployment that the arms are copied from does not exist."
    STATEFUL_SET_NOT_FOUND = "StatefulSetNotFound", "The StatefulSet that the arms are copied from does not exist."
    LEADER_WORKER_SET_NOT_FOUND = (
        "LeaderWorkerSetNotFound",
        "The LeaderWorkerSet that the arms are copied from, or its whole kind, does not exist.",
    )
    TEMPLATE_UNSUITABLE = "TemplateUnsuitable", "Two arms cannot have what the arms' template asks for."
    SECRET_NOT_FOUND = "SecretNotFound", "The Secret with the arms' credential, or its key, does not exist."
    PORT_NOT_FOUND = "PortNotFound", "No container of the arms' template has the port that the arms serve on."
    PATCH_INVALID = "PatchInvalid", "The candidate's change cannot work, or the API server refused it."
    PRIMARY_UNSUITABLE = (
        "PrimaryUnsuitable",
        "Capture cannot stand before the primary's Service without changing what clients meet.",
    )
    ROUTE_NOT_FOUND = "RouteNotFound", "The HTTPRoute, or the rule named, does not exist or may not be read."
    ROUTE_UNSUITABLE = "RouteUnsuitable", "The HTTPRoute's gateway cannot copy the rule's requests, or says so."
    SERVICE_NAME_TAKEN = "ServiceNameTaken", "A Service of the capture Service's name exists and no run made it."
    NAME_IN_USE = "NameInUse", "An object of a name the run needs exists and does not belong to it."
    CAPTURE_IN_USE = "CaptureInUse", "Another active run captures the same primary, or has the same rule copied."
    PENDING = "Pending", "Not looked at yet."
    NOT_STARTED = "NotStarted", "The run ended before anything was created."
    WAITING = "Waiting", "Created and not ready yet."
    NO_ROOM = "NoRoom", "No node that the arms may go to has room for them now."
    READY = "Ready", "All pods are ready."
    DEGRADED = "Degraded", "It was ready and some of its pods are not any more."
    MATCHED = "Matched", "The nodes of all arms agree."
    MISMATCH = "Mismatch", "The nodes of the arms differ, or a label is missing."
    NOT_VERIFIED = "NotVerified", "The arms stand behind URLs: nobody sees what they run on."
    NOT_REQUIRED = "NotRequired", "hardware.matchLabelKeys names no label."
    HEALTHY = "Healthy", "Customers' requests pass through capture."
    HARMED = "Harmed", "Customers fared worse with copying than spec.livePathGuard allows."
    EXTERNAL = "External", "Copies come from a proxy that is not ours: customers are not seen here."
    ACTIVE = "Active", "The run has not ended."
    SCHEDULED = "Scheduled", "The run waits for spec.schedule; nothing is created before."
    SUSPENDED = "Suspended", "Copying is paused by spec.suspend."
    CHANGING_PLACES = "ChangingPlaces", "Copying is paused while the arms change nodes, as hardware.crossover says."
    OUTSIDE_WINDOW = "OutsideWindow", "Copying is paused outside spec.schedule.dailyWindow."
    REMOVED = "Removed", "Taken down at the end of the run."


class EndReason(_Word):
    """Why a run ended. The first group is judged; any other end is inconclusive."""

    DURATION_REACHED = "DurationReached", "The time since the first counted pair has reached spec.duration."
    PAIRS_REACHED = "PairsReached", "The counted pairs have reached endConditions.pairs."
    TOKENS_REACHED = "TokensReached", "The counted tokens have reached endConditions.tokens."
    GPU_HOURS_REACHED = "GPUHoursReached", "The accelerator hours of all arms have reached endConditions.gpuHours."
    MATCH_RATE_REACHED = "MatchRateReached", "The share of matches is proven to be endConditions.matchRate or more."
    DECIDED = "Decided", "Every criterion that gates is decided, and nothing stands against a verdict."
    FAILURE_PROVEN = "FailureProven", "A criterion that gates is refuted: the run could only fail."
    START_DEADLINE_EXCEEDED = "StartDeadlineExceeded", "No pair was counted before spec.startDeadline."
    HARDWARE_MISMATCH = "HardwareMismatch", "The arms ran on unequal nodes."
    NODE_LOST = "NodeLost", "The cluster lost a node that an arm was on."
    CROSSOVER_FAILED = "CrossoverFailed", "The arms did not stand where hardware.crossover has them stand."
    STOPPED = "Stopped", "Somebody set spec.stop.reason."
    EXPIRED = "Expired", "The absolute expiry ended the run before any end condition did."
    SPEC_CHANGED = "SpecChanged", "A part of the spec that decides the evidence changed after the start."
    ARM_CHANGED = "ArmChanged", "An arm was changed or replaced by somebody else."
    EVIDENCE_LOST = "EvidenceLost", "Counted evidence was lost and cannot be recovered."
    LIVE_PATH_HARMED = "LivePathHarmed", "Customers fared worse with copying than spec.livePathGuard allows."

    @property
    def judged(self) -> bool:
        """Whether the evidence may lead to Pass or Fail after this end."""
        return self in _JUDGED


_JUDGED = frozenset(
    {
        EndReason.DURATION_REACHED,
        EndReason.PAIRS_REACHED,
        EndReason.TOKENS_REACHED,
        EndReason.GPU_HOURS_REACHED,
        EndReason.MATCH_RATE_REACHED,
        EndReason.DECIDED,
        EndReason.FAILURE_PROVEN,
    }
)


def timestamp(now: datetime) -> str:
    """An instant as the API server writes it: UTC, whole seconds. Raises `ValueError` for a time without a zone."""
    if now.tzinfo is None:
        raise ValueError("an instant needs a time zone")
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def set_condition(
    conditions: Sequence[Condition],
    kind: ConditionType,
    status: ConditionStatus,
    reason: str,
    message: str,
    *,
    generation: int,
    now: datetime,
) -> tuple[Condition, ...]:
    """The conditions with one set, in the order of `ConditionType`.

    `lastTransitionTime` becomes `now` only where the status differs from before. A message too long for the status is
    cut at its bound, with an ellipsis.
    """
    before = condition(conditions, kind)
    unchanged = before is not None and before.status == status
    after = Condition(
        type=kind.value,
        status=status,
        reason=str(reason),
        message=shortened(message, CONDITION_LENGTH),
        observed_generation=generation,
        last_transition_time=before.last_transition_time if before is not None and unchanged else timestamp(now),
    )
    kept = {c.type: c for c in conditions} | {after.type: after}
    order = {word.value: place for place, word in enumerate(ConditionType)}
    return tuple(sorted(kept.values(), key=lambda c: order.get(c.type, len(order))))


def condition(conditions: Sequence[Condition], kind: ConditionType) -> Condition | None:
    """The condition of a type, if it has been set."""
    return next((c for c in conditions if c.type == kind.value), None)
