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
"""Window number of the warm-up. Windows 1, 2, … have thresholds, each its own, frozen for its whole life."""

Metric = Literal["TTFT", "TPOT", "E2E", "WithinSLO", "Failures"]
SamplingUnit = Literal["Request", "Conversation", "Key"]
MissingKey = Literal["Random", "Skip", "Lineage"]
CopySource = Literal["Proxy", "External"]
Weight = Literal["Requests", "Tokens"]

REQUEST_ID = "x-request-id"

CREDENTIAL_HEADERS = (
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "proxy-authorization",
    "x-auth-token",
    "x-access-token",
    "cookie",
)
"""Headers that say who calls, in the order in which they are asked where the caller is the key."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Who is in: `xxh64(key, seed) % MODULO >= threshold`, the rule Envoy's consistent-hashing matcher applies.

    `threshold` is `MODULO - rate`; lowering it only adds keys. `class_thresholds` holds those of the classes that have
    a rate of their own. The key is the first of `key_headers` (lower case) that is not empty, else the top-level body
    field `key_field`; for the unit Request it is `x-request-id`. Without a key, Random draws by `x-request-id`, Skip
    leaves the request out, and Lineage takes the opening of the conversation.
    """

    unit: SamplingUnit
    threshold: int
    seed: int
    key_headers: tuple[str, ...] = (REQUEST_ID,)
    key_field: str = ""
    on_missing_key: MissingKey = "Random"
    class_thresholds: dict[str, int] = {}

    @property
    def needs_body(self) -> bool:
        """Whether a request without any of `key_headers` can only be decided by its body: capture copies all those."""
        return bool(self.key_field) or self.on_missing_key == "Lineage"

    @property
    def lowest_threshold(self) -> int:
        """What capture goes by: it cannot know the class, so it copies as much as the class with the highest rate."""
        return min((self.threshold, *self.class_thresholds.values()))


class Pauses(msgspec.Struct, frozen=True, kw_only=True):
    """Slots of time in which nothing is copied, drawn at random, so that customers can be compared with themselves.

    Slot k = floor(UTC seconds / slot_s) is paused iff `xxh64(str(k), seed) % MODULO < share`: every capture pod pauses
    at the same time. `share` MODULO pauses always; requests in scope are then counted as paused.
    """

    share: int
    slot_s: int


class CaptureRules(msgspec.Struct, frozen=True, kw_only=True):
    """What capture copies. Paths are exact; only POST is ever copied."""

    paths: tuple[str, ...]
    max_body_bytes: int
    sampling: Sampling
    pauses: Pauses | None = None


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of this replica (the operator has already divided the run's limits by the number of replicas)."""

    max_in_flight: int
    timeout_s: float
    max_queued: int = 0  # pairs over the cap that may wait; 0 sheds at once
    max_wait_s: float = 0.0  # longest such wait
    max_answer_bytes: int = 16 * 1024 * 1024
    max_kept_bytes: int = 16 * 1024 * 1024  # of that, what must be kept: an answer in one piece, an event of a stream


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One receiver of every admitted copy. `model` empty keeps the model of the copy."""

    name: str
    host: str
    port: int
    model: str = ""
    credential_file: str = ""
    http2: bool = False  # HTTP/2 with prior knowledge, without TLS
    keyed: bool = False  # its name has an address for each of its pods: what is drawn together keeps to one of them


class TrafficClass(msgspec.Struct, frozen=True, kw_only=True):
    """A class of requests, decided before the answer is known; the first that matches wins, the rest is "default".

    `min_prompt_tokens`/`max_prompt_tokens` compare with the estimate `prompt bytes / 4`, `min_turns`/`max_turns` with
    the number of user messages; all inclusive.
    """

    name: str
    min_prompt_tokens: int | None = None
    max_prompt_tokens: int | None = None
    min_turns: int | None = None
    max_turns: int | None = None
    stream: bool | None = None
    tools: bool | None = None
    schema: bool | None = None
    images: bool | None = None


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
    "" means every class together. With the weight Tokens a pair weighs as much as its request has bytes, up to
    `heaviest` bytes (`blocks.weight_of`); without that number it is not counted either.
    """

    criterion: str
    metric: Metric
    traffic_class: str = ""
    baseline_limit_s: float | None = None
    challenger_limit_s: float | None = None
    weight: Weight = "Requests"
    heaviest: int | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The arms' answers are compared, but for `ignored` fields (dotted paths, see `compare.paths`).

    `ordered`: the order inside lists matters.
    """

    ignored: tuple[str, ...] = ()
    ordered: bool = True


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
    source: CopySource = "Proxy"  # External: copies of any proxy, without our marks; they belong to `window`
    lag_limit_s: float = 0.005  # a pair with a stamp of a time when the event loop was later is flagged
    lease_s: float = 10.0  # capture stops copying when it has not heard from a mirror for this long
    comparison: Comparison | None = None  # None: answers are measured only
    copy_until: float | None = None  # UTC seconds; from then on `copying` counts as false, whoever is left to say so


def wants_copies(config: MirrorConfig, now: float) -> bool:
    """Whether a configuration asks for copies at `now` (UTC seconds). The expiry is looked at elsewhere."""
    return config.copying and (config.copy_until is None or now < config.copy_until)


def encode(value: msgspec.Struct) -> bytes:
    """Any contract type as JSON."""
    return msgspec.json.encode(value)


def decode_config(raw: bytes | str) -> MirrorConfig:
    """Parse a `MirrorConfig`; raises `msgspec.ValidationError` naming the field that is wrong."""
    return msgspec.json.decode(raw, type=MirrorConfig)
