"""`Facts`: what the operator knows of a run beside its evidence, as it goes into verdict and report. Types only."""

import msgspec
from shadowrun_mirror.config import Indicator

from shadowrun_operator.judge.live_path import Watch


class ArmFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one arm ran, and where."""

    name: str
    images: tuple[str, ...] = ()  # with digests
    nodes: tuple[str, ...] = ()
    first_nodes: tuple[str, ...] = ()  # where it stood in the first half, if the arms change places
    labels: dict[str, str] = {}  # matched node labels, and those that name a driver; several values joined by ", "
    model: str = ""
    url: str = ""  # of an arm that others run


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """What was found on the arms' nodes; `matched` None means never verified. `message` names labels and values."""

    matched: bool | None = None
    message: str = ""


class RateChange(msgspec.Struct, frozen=True, kw_only=True):
    """From `at` (UTC seconds) on, `share` millionths of the spec's rates were copied.

    `rate` is `sampling.rate` as the spec then had it, in millionths; 0 where that is not known.
    """

    at: float
    share: int
    rate: int = 0


class SpecChange(msgspec.Struct, frozen=True, kw_only=True):
    """From `at` (UTC seconds) on, a field of the spec that may change while the run is active had this value."""

    at: float
    field: str
    value: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything else the verdict or its reader needs.

    `indicators` are those the counted windows were counted by, as in `MirrorConfig`. Instants are UTC seconds.
    `patch` is the difference between the pod templates of baseline and candidate, as text. `end_message` explains the
    end, for instance the reason somebody gave for stopping. `rates` says what the sampling rates were when copying
    began, and when they changed since; `watch` what was seen of customers; `changes` the history of the fields that may
    change. `clocks`: of the two mirror pods that were furthest apart in one look, how many seconds each one's clock was
    ahead of the operator's then; {} where none were apart.
    """

    run: str
    run_uid: str
    end_reason: str
    end_message: str = ""
    indicators: tuple[Indicator, ...] = ()
    hardware: Hardware = Hardware()
    attempt: int = 1
    started: float | None = None
    ended: float | None = None
    spec_hash: str = ""
    seed_fingerprint: str = ""
    arms: tuple[ArmFacts, ...] = ()
    patch: str = ""
    versions: dict[str, str] = {}
    rates: tuple[RateChange, ...] = ()
    watch: Watch | None = None
    changes: tuple[SpecChange, ...] = ()
    clocks: dict[str, float] = {}

    def indicator(self, criterion: str) -> Indicator | None:
        """The indicator a criterion was counted by."""
        return next((i for i in self.indicators if i.criterion == criterion), None)
