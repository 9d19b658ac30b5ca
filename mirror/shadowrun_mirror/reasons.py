"""Why a request left the funnel: the one list of words for it, used in evidence, metrics, status and docs.

Nothing here decides; the step that loses a request picks its reason.
"""

from enum import StrEnum


class ExcludeReason(StrEnum):
    """The copy arrived, but the run never wanted it: it counts as not selected."""

    NOT_SELECTED = "NotSelected"  # the mirror's own hash says no (for instance right after the rate fell)
    MODEL_NOT_LISTED = "ModelNotListed"
    NOT_COPYING = "NotCopying"  # copying had just been switched off, and capture did not know yet


class DropReason(StrEnum):
    """Selected, but no arm got it. A drop is always joint: one request, all arms or none."""

    TOO_LARGE = "TooLarge"
    UNPARSABLE = "Unparsable"
    SHED = "Shed"  # the cap on pairs in flight was reached
    QUEUE_TIMEOUT = "QueueTimeout"  # waited for a slot longer than the queue allows
    CONVERSATION_JOINED_LATE = "ConversationJoinedLate"  # its beginning was not seen: the arms would lack its history
    DUPLICATE = "Duplicate"  # same request id seen before
    DISABLED = "Disabled"  # this mirror was shutting down, or copying was switched off while it waited for a slot
    EXPIRED = "Expired"
    CONFIG_BEHIND = "ConfigBehind"  # the copy belongs to a window this replica has not been told about
    LOST_IN_TRANSIT = "LostInTransit"  # left capture, never arrived complete; computed by the operator
    MIRROR_LOST = "MirrorLost"  # was in flight when a mirror replica died; computed by the operator


class FailureReason(StrEnum):
    """Admitted, sent, and this arm did not answer properly: latency is +infinity, the SLO is missed."""

    TIMEOUT = "Timeout"
    CONNECT = "Connect"
    HTTP_4XX = "HTTP4xx"
    HTTP_5XX = "HTTP5xx"
    STREAM_CUT = "StreamCut"  # the connection ended before the answer did
    STREAM_ERROR = "StreamError"  # an error event inside a 200
    EMPTY = "Empty"  # ended properly, but without any content
    MALFORMED = "Malformed"  # not the protocol it claims to be
    TOO_LONG = "TooLong"  # more bytes than an answer may have
    BREAKER_OPEN = "BreakerOpen"  # not sent: this arm had just left many in a row without an answer, or with a 5xx


class FlagReason(StrEnum):
    """A pair that counts, with something to know about it. A pair may have several flags."""

    LAGGED = "Lagged"  # too busy to stamp exactly when it was sent, when an answer began or ended
    DISPATCH_SKEW = "DispatchSkew"  # the arms were written to too far apart
    QUEUED = "Queued"  # it waited for a slot: both arms met it later than the primary did
    AFTER_GAP = "AfterGap"  # an earlier turn of its conversation was dropped, or came during a pause
    BROKEN_LINEAGE = (
        "BrokenLineage"  # its conversation goes on from a history that was edited or cut; without pauses only
    )
    TOKEN_SOURCES_DIFFER = "TokenSourcesDiffer"  # noqa: S105  of one arm no usage is known, or none to believe


class Likeness(StrEnum):
    """What comparing a challenger's answer with the baseline's came to."""

    MATCH = "Match"
    FAILED = "Failed"  # exactly one of the two did not answer properly
    FIELD_MISSING = "FieldMissing"  # the challenger lacks a field
    FIELD_EXTRA = "FieldExtra"  # the challenger has a field that the baseline lacks
    TYPE = "Type"
    LENGTH = "Length"  # of a text or a list; also: only one of the two is too long to be compared
    ORDER = "Order"  # of a list: the same members in another order
    VALUE = "Value"
    BOTH_FAILED = "BothFailed"
    TOO_LONG = "TooLong"  # both are longer than what is compared
    UNREADABLE = "Unreadable"  # neither could be taken apart


UNCOMPARED = (Likeness.BOTH_FAILED, Likeness.TOO_LONG, Likeness.UNREADABLE)
DIFFERENCES = tuple(kind for kind in Likeness if kind is not Likeness.MATCH and kind not in UNCOMPARED)
"""In this order: of a pair that differs in several ways the first counts."""
