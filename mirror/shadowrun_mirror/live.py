"""The configuration in force, and which new one may replace it. No I/O, no clock.

What decides the evidence cannot change under it: the run, the arms' names, and all that the pairs of a counted window
are judged by. Rates may change (the hash that decides may not, so that they stay nested), and so may the limits of
admission. The expiry can only come earlier. A replica remembers what holds in the windows it has been told about,
so that a copy that arrives late is judged by the rules of its own window.
"""

import msgspec

from shadowrun_mirror.config import MODULO, WARM_UP, CaptureRules, MirrorConfig, TrafficClass
from shadowrun_mirror.expiry import Expiry
from shadowrun_mirror.facts import DEFAULT_CLASS

_REMEMBERED_WINDOWS = 8
_FROZEN = ("indicators", "classes", "slo", "class_slos", "block_s", "lag_limit_s", "comparison")
_FROZEN_SAMPLING = ("unit", "seed", "key_headers", "key_field", "on_missing_key")


_Check = tuple[bool, str, str]  # fine, the field, what is wrong otherwise


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a configuration is not taken: HTTP status, the field, and a sentence."""

    status: int
    field: str
    message: str


def wrong_value(config: MirrorConfig) -> Refusal | None:
    """The first field whose value makes no sense, or None. Types have been checked by the decoder already."""
    admission = config.admission
    names = [arm.name for arm in config.arms]
    checks = (
        (config.window >= WARM_UP, "window", "must not be negative"),
        (len(names) >= 2, "arms", "a baseline and at least one challenger are needed"),
        (len(set(names)) == len(names), "arms", "names must differ"),
        (all(0 < arm.port < 65536 for arm in config.arms), "arms.port", "must be a port number"),
        (admission.max_in_flight >= 0, "admission.max_in_flight", "must not be negative"),
        (admission.timeout_s > 0, "admission.timeout_s", "must be positive"),
        (admission.max_queued >= 0, "admission.max_queued", "must not be negative"),
        (admission.max_wait_s >= 0, "admission.max_wait_s", "must not be negative"),
        (not admission.max_queued or admission.max_wait_s > 0, "admission.max_wait_s", "a queue needs a longest wait"),
        (admission.max_answer_bytes > 0, "admission.max_answer_bytes", "must be positive"),
        (admission.max_kept_bytes > 0, "admission.max_kept_bytes", "must be positive"),
        (config.block_s >= 1, "block_s", "must be at least 1"),
        (config.lag_limit_s > 0, "lag_limit_s", "must be positive"),
        (config.lease_s > 0, "lease_s", "must be positive"),
        *_class_checks(config.classes),
        *_capture_checks(config.capture, {DEFAULT_CLASS, *(c.name for c in config.classes)}),
    )
    for fine, field, message in checks:
        if not fine:
            return Refusal(status=422, field=field, message=message)
    return None


def _class_checks(classes: tuple[TrafficClass, ...]) -> tuple[_Check, ...]:
    names = {DEFAULT_CLASS, *(c.name for c in classes)}
    ranges = (r for c in classes for r in ((c.min_prompt_tokens, c.max_prompt_tokens), (c.min_turns, c.max_turns)))
    ordered = all(low is None or high is None or low <= high for low, high in ranges)
    return (
        (len(names) == len(classes) + 1, "classes", f'names must differ, also from "{DEFAULT_CLASS}"'),
        (ordered, "classes", "a minimum is above its maximum"),
    )


def _capture_checks(capture: CaptureRules, class_names: set[str]) -> tuple[_Check, ...]:
    sampling, pauses, at = capture.sampling, capture.pauses, "capture.sampling"
    within = f"must be between 0 and {MODULO}"
    by_opening = sampling.on_missing_key == "Lineage"
    has_key = bool(sampling.key_headers or sampling.key_field)
    return (
        (capture.max_body_bytes > 0, "capture.max_body_bytes", "must be positive"),
        (0 <= sampling.threshold <= MODULO, f"{at}.threshold", within),
        (all(0 <= t <= MODULO for t in sampling.class_thresholds.values()), f"{at}.class_thresholds", within),
        (class_names.issuperset(sampling.class_thresholds), f"{at}.class_thresholds", "no such class"),
        (0 <= sampling.seed < 2**64, f"{at}.seed", "must fit in 64 bits"),
        (all(map(_is_header_name, sampling.key_headers)), f"{at}.key_headers", "must be names in lower case"),
        (has_key or sampling.on_missing_key != "Skip", f"{at}.on_missing_key", "without any key, all would be skipped"),
        (
            not by_opening or sampling.unit == "Conversation",
            f"{at}.on_missing_key",
            "only a Conversation has an opening",
        ),
        (pauses is None or 0 <= pauses.share <= MODULO, "capture.pauses.share", within),
        (pauses is None or pauses.slot_s >= 1, "capture.pauses.slot_s", "must be at least 1"),
    )


def _is_header_name(name: str) -> bool:
    return bool(name) and name.isascii() and name == "".join(name.split()).lower()


class LiveConfig:
    """Holds the configuration in force; `offer` is the only way to change it."""

    def __init__(self, config: MirrorConfig, wall: float, mono: float) -> None:
        self.config = config
        self._expiry = Expiry(config.expiry, wall, mono)
        # The warm-up has no thresholds, so every replica knows all there is to know about it.
        self._of: dict[int, MirrorConfig] = {WARM_UP: _warm_up(config)}
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
        """What the pairs of a window are judged by: classes, SLOs, blocks, and what counts only after the warm-up.

        None for a window this replica was not told about.
        """
        return self._of.get(window)

    def _remember(self, config: MirrorConfig) -> None:
        self._of[config.window] = config if config.window != WARM_UP else _warm_up(config)
        for window in sorted(self._of)[1:-_REMEMBERED_WINDOWS]:
            del self._of[window]

    def _conflict(self, new: MirrorConfig) -> Refusal | None:
        old = self.config
        fixed, rules, ruled = "is fixed for a run", new.capture.sampling, old.capture.sampling
        counted = new if new.window == WARM_UP else self._of.get(new.window, new)
        checks = (
            (new.version >= old.version, "version", f"{new.version} is older than {old.version}, which is in force"),
            (new.version > old.version or new == old, "version", f"{new.version} is in force with other content"),
            (new.run_uid == old.run_uid, "run_uid", "another run"),
            (_arm_names(new) == _arm_names(old), "arms", "their names and order are fixed for a run"),
            (new.window >= old.window, "window", "never goes back"),
            (new.source == old.source, "source", fixed),
            *((getattr(rules, f) == getattr(ruled, f), f"capture.sampling.{f}", fixed) for f in _FROZEN_SAMPLING),
            *((getattr(new, f) == getattr(counted, f), f, f"frozen for window {new.window}") for f in _FROZEN),
            (new.expiry <= self._expiry.at, "expiry", "can only be brought forward"),
        )
        for fine, field, message in checks:
            if not fine:
                return Refusal(status=409, field=field, message=message)
        return None


def _warm_up(config: MirrorConfig) -> MirrorConfig:
    """As pairs of the warm-up go by it: no criterion counts, and no answer is compared."""
    return msgspec.structs.replace(config, indicators=(), comparison=None)


def _arm_names(config: MirrorConfig) -> list[str]:
    return [arm.name for arm in config.arms]
