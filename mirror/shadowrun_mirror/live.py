"""The configuration in force, and which new one may replace it. No I/O, no clock.

What decides the evidence cannot change under it: the run, the arms' names, and all that the pairs of a counted window
are judged by. The expiry can only come earlier. A replica remembers what holds in the windows it has been told about,
so that a copy that arrives late is judged by the rules of its own window.
"""

import msgspec

from shadowrun_mirror.config import MODULO, WARM_UP, MirrorConfig
from shadowrun_mirror.expiry import Expiry

_REMEMBERED_WINDOWS = 8
_FROZEN = ("indicators", "classes", "slo", "class_slos", "block_s")


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a configuration is not taken: HTTP status, the field, and a sentence."""

    status: int
    field: str
    message: str


def wrong_value(config: MirrorConfig) -> Refusal | None:
    """The first field whose value makes no sense, or None. Types have been checked by the decoder already."""
    sampling, admission = config.capture.sampling, config.admission
    names = [arm.name for arm in config.arms]
    checks = (
        (config.window >= WARM_UP, "window", "must not be negative"),
        (len(names) >= 2, "arms", "a baseline and at least one challenger are needed"),
        (len(set(names)) == len(names), "arms", "names must differ"),
        (all(0 < arm.port < 65536 for arm in config.arms), "arms.port", "must be a port number"),
        (0 <= sampling.threshold <= MODULO, "capture.sampling.threshold", f"must be between 0 and {MODULO}"),
        (0 <= sampling.seed < 2**64, "capture.sampling.seed", "must fit in 64 bits"),
        (config.capture.max_body_bytes > 0, "capture.max_body_bytes", "must be positive"),
        (admission.max_in_flight >= 0, "admission.max_in_flight", "must not be negative"),
        (admission.timeout_s > 0, "admission.timeout_s", "must be positive"),
        (admission.max_answer_bytes > 0, "admission.max_answer_bytes", "must be positive"),
        (config.block_s >= 1, "block_s", "must be at least 1"),
    )
    for fine, field, message in checks:
        if not fine:
            return Refusal(status=422, field=field, message=message)
    return None


class LiveConfig:
    """Holds the configuration in force; `offer` is the only way to change it."""

    def __init__(self, config: MirrorConfig, wall: float, mono: float) -> None:
        self.config = config
        self._expiry = Expiry(config.expiry, wall, mono)
        # The warm-up has no thresholds, so every replica knows all there is to know about it.
        self._of: dict[int, MirrorConfig] = {WARM_UP: msgspec.structs.replace(config, indicators=())}
        self._remember(config)

    def offer(self, new: MirrorConfig, wall: float, mono: float) -> Refusal | None:
        """Take `new` or say why not. The same version with the same content is fine and changes nothing."""
        refusal = wrong_value(new) or self._conflict(new)
        if refusal is not None or new.version == self.config.version:
            return refusal
        self._expiry.brought_forward(new.expiry, wall, mono)
        self.config = new
        self._remember(new)
        return None

    def expired(self, wall: float, mono: float) -> bool:
        """Whether the run's absolute end has passed. Stays true."""
        return self._expiry.passed(wall, mono)

    def of_window(self, window: int) -> MirrorConfig | None:
        """What the pairs of a window are judged by: classes, SLOs, blocks, and indicators (none in the warm-up).

        None for a window this replica was not told about.
        """
        return self._of.get(window)

    def _remember(self, config: MirrorConfig) -> None:
        known = config if config.window != WARM_UP else msgspec.structs.replace(config, indicators=())
        self._of[config.window] = known
        for window in sorted(self._of)[1:-_REMEMBERED_WINDOWS]:
            del self._of[window]

    def _conflict(self, new: MirrorConfig) -> Refusal | None:
        old = self.config
        counted = new if new.window == WARM_UP else self._of.get(new.window, new)
        checks = (
            (new.version >= old.version, "version", f"{new.version} is older than {old.version}, which is in force"),
            (new.version > old.version or new == old, "version", f"{new.version} is in force with other content"),
            (new.run_uid == old.run_uid, "run_uid", "another run"),
            (_arm_names(new) == _arm_names(old), "arms", "their names and order are fixed for a run"),
            (new.window >= old.window, "window", "never goes back"),
            *((getattr(new, f) == getattr(counted, f), f, f"frozen for window {new.window}") for f in _FROZEN),
            (new.expiry <= self._expiry.at, "expiry", "can only be brought forward"),
        )
        for fine, field, message in checks:
            if not fine:
                return Refusal(status=409, field=field, message=message)
        return None


def _arm_names(config: MirrorConfig) -> list[str]:
    return [arm.name for arm in config.arms]
