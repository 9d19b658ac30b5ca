"""`MirrorConfig`: all a mirror replica needs to know, as the operator writes it.

It arrives as a boot file and, while running, over `PUT /config`; the higher `version` wins. This module holds types
and their JSON form only: no I/O, no decisions. Unknown fields are ignored, so that versions may differ. Times are UTC
seconds since the epoch, durations are seconds, sizes are bytes.
"""

from typing import Literal

import msgspec

MODULO = 1_000_000
"""Rates have at most four decimals of a percent, so a millionth is the finest share there is."""

WARM_UP = 0
"""Window number of the warm-up. Windows 1, 2, … are counted; each has thresholds frozen for its whole life."""

Metric = Literal["TTFT", "TPOT", "E2E", "WithinSLO", "Failures"]
SamplingUnit = Literal["Request", "Conversation", "Key"]
MissingKey = Literal["Random", "Skip"]


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Who is in: `xxh64(key, seed) % MODULO >= threshold`, the rule Envoy's consistent-hashing matcher applies.

    `threshold` is `MODULO - rate`; lowering it only adds keys. `key_header` is lower case; for the unit Request it
    is `x-request-id`. An empty header value counts as missing. `on_missing_key` Random falls back to the hash of
    `x-request-id`; Skip leaves the request out.
    """

    unit: SamplingUnit
    threshold: int
    seed: int
    key_header: str = "x-request-id"
    on_missing_key: MissingKey = "Random"


class CaptureRules(msgspec.Struct, frozen=True, kw_only=True):
    """What capture copies. Paths are exact; only POST is ever copied."""

    paths: tuple[str, ...]
    max_body_bytes: int
    sampling: Sampling


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of this replica (the operator has already divided the run's limits by the number of replicas)."""

    max_in_flight: int
    timeout_s: float
    max_answer_bytes: int = 16 * 1024 * 1024


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One receiver of every admitted copy. `model` empty keeps the model of the copy."""

    name: str
    host: str
    port: int
    model: str = ""
    credential_file: str = ""


class TrafficClass(msgspec.Struct, frozen=True, kw_only=True):
    """A class of requests, decided before the answer is known; the first that matches wins, the rest is "default".

    `min_prompt_tokens`/`max_prompt_tokens` compare with the estimate `prompt bytes / 4`; both inclusive.
    """

    name: str
    min_prompt_tokens: int | None = None
    max_prompt_tokens: int | None = None
    stream: bool | None = None
    tools: bool | None = None


class SLO(msgspec.Struct, frozen=True, kw_only=True):
    """Limits a completed answer must all meet to be within SLO. None = no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


class Indicator(msgspec.Struct, frozen=True, kw_only=True):
    """How a pair counts for one criterion: z in {-1, 0, 1}, positive where the challenger did better.

    * TTFT, TPOT, E2E: z = 1{challenger <= challenger_limit_s} - 1{baseline <= baseline_limit_s}
    * WithinSLO:       z = 1{challenger within SLO} - 1{baseline within SLO}
    * Failures:        z = 1{baseline failed} - 1{challenger failed}

    A failed arm's latency is +infinity. A latency indicator without limits (warm-up) is not counted. `traffic_class`
    "" means every class together.
    """

    criterion: str
    metric: Metric
    traffic_class: str = ""
    baseline_limit_s: float | None = None
    challenger_limit_s: float | None = None


class MirrorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration. The first arm is the baseline; every other arm is a challenger."""

    version: int
    run: str  # name of the ShadowRun, for logs and baggage
    run_uid: str
    window: int
    copying: bool
    expiry: float
    capture: CaptureRules
    admission: Admission
    arms: tuple[Arm, ...]
    models: tuple[str, ...] = ()
    classes: tuple[TrafficClass, ...] = ()
    slo: SLO = SLO()
    class_slos: dict[str, SLO] = {}
    indicators: tuple[Indicator, ...] = ()
    block_s: int = 1  # T0: length of the finest block
    lease_s: float = 10.0  # capture stops copying when it has not heard from a mirror for this long


def encode(value: msgspec.Struct) -> bytes:
    """Any contract type as JSON."""
    return msgspec.json.encode(value)


def decode_config(raw: bytes | str) -> MirrorConfig:
    """Parse a `MirrorConfig`; raises `msgspec.ValidationError` naming the field that is wrong."""
    return msgspec.json.decode(raw, type=MirrorConfig)
