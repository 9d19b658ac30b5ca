"""Blocks of the spec about traffic: the primary, capture, sampling, and the limits of admission.

Bounds and rules only; the spec as a whole is in `spec`. This module must not decide anything.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from shadowrun_operator.api.block import (
    AS_SET,
    MAX_CLASSES,
    Block,
    FieldName,
    Label,
    ObjectName,
    Port,
    ShortName,
    map_by,
    rules,
)
from shadowrun_operator.api.quantities import Duration, Percent, PerSecond, Size

HttpPath = Annotated[str, StringConstraints(pattern="^/[-A-Za-z0-9._~/]*$", min_length=1, max_length=256)]
HeaderName = Annotated[str, StringConstraints(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=64)]


class ServicePort(Block):
    """A port of a Service in the run's namespace."""

    name: Label
    """Name of the Service."""
    port: Port
    """Number of the Service's port."""


class Primary(Block):
    """The live system that answers the customers; it is read and never modified."""

    service: ServicePort
    """The Service that customers' requests reach the primary through."""


class CaptureProxy(Block):
    """An Envoy of our own in front of the primary."""

    service_name: Label
    """Name of the Service that clients call instead of the primary's; it passes traffic through also after the run."""
    replicas: int = Field(default=2, ge=1, le=16)
    """Number of Envoy pods."""
    port: Port | None = None
    """Not implemented but for its default: port of the capture Service, which is the primary's when absent."""
    shadow_baggage: Literal["Strip", "Trust"] = "Strip"
    """What becomes of entries `shadow` and `shadow.run` that clients send in `baggage`; neither kind is ever copied."""


class CaptureExternal(Block):
    """The Service that a proxy of your own sends copies to, on port 8080."""

    service_name: Label
    """Name of that Service; after the run it stays without endpoints, so that copies are refused at once."""


class CaptureHTTPRoute(Block):
    """The rule whose requests your gateway copies, by a mirror filter that is there for the time of the run."""

    name: ObjectName
    """Name of an HTTPRoute in the run's namespace."""
    rule: ObjectName
    """Name of the rule in it; rules get names in the HTTPRoute itself."""
    service_name: Label
    """Name of the Service that the filter names; it is made for the run, and stays without endpoints after it."""


class Capture(Block):
    """Where and what to copy; deciding and copying never makes a customer wait."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            ("self.mode != 'Proxy' || has(self.proxy)", "mode Proxy needs capture.proxy with a serviceName"),
            ("self.mode == 'Proxy' || !has(self.proxy)", "capture.proxy is for mode Proxy only"),
            (
                "self.mode != 'External' || has(self.external)",
                "mode External needs capture.external with a serviceName",
            ),
            ("self.mode == 'External' || !has(self.external)", "capture.external is for mode External only"),
            (
                "self.mode != 'HTTPRoute' || has(self.httpRoute)",
                "mode HTTPRoute needs capture.httpRoute with name, rule and serviceName",
            ),
            ("self.mode == 'HTTPRoute' || !has(self.httpRoute)", "capture.httpRoute is for mode HTTPRoute only"),
        )
    )

    mode: Literal["Proxy", "HTTPRoute", "External"] = "Proxy"
    """How copies are made: by an Envoy of our own, by a mirror filter of your Gateway, or by a proxy that you run."""
    proxy: CaptureProxy | None = None
    """Settings of mode Proxy."""
    external: CaptureExternal | None = None
    """Settings of mode External."""
    http_route: CaptureHTTPRoute | None = None
    """Settings of mode HTTPRoute."""
    models: tuple[Annotated[str, StringConstraints(min_length=1, max_length=253)], ...] = Field(
        default=(), max_length=32, json_schema_extra=AS_SET
    )
    """Client-facing models to copy requests for; empty means all."""
    paths: tuple[HttpPath, ...] = Field(
        default=("/v1/chat/completions",), min_length=1, max_length=16, json_schema_extra=AS_SET
    )
    """Exact request paths to copy; only POST is ever copied."""
    max_body_bytes: Size = Size("64Ki")
    """Largest request body that is copied; a larger one is counted as dropped."""

    @property
    def service_name(self) -> str:
        """The Service that is made for clients (mode Proxy) or for copies (the other modes)."""
        given = self.proxy or self.external or self.http_route
        return "" if given is None else given.service_name

    @property
    def rule_name(self) -> str:
        """The rule of an HTTPRoute that is copied (mode HTTPRoute), as "route/rule"; else ""."""
        route = self.http_route
        return "" if route is None else f"{route.name}/{route.rule}"

    @property
    def made_elsewhere(self) -> bool:
        """Whether copies are made by a proxy that is not ours: nothing of ours stands in the customers' path then."""
        return self.mode != "Proxy"


class SamplingKey(Block):
    """What requests are kept together by: all requests with the same key are in, or none."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "(has(self.header) ? 1 : 0) + (has(self.bodyField) ? 1 : 0) + (has(self.credential) ? 1 : 0) == 1",
                "exactly one of header, bodyField and credential must be set",
            )
        )
    )

    header: HeaderName | None = None
    """Lower-case name of the request header that holds the key; an empty value counts as missing."""
    body_field: FieldName | None = None
    """Field at the top of the JSON body that holds the key; then every request is copied as far as the mirror."""
    credential: Literal[True] | None = None
    """Use the caller's credential, of which only a hash is ever kept."""


_ABOVE_ZERO = rules(("self.matches('[1-9]')", "rate must be above 0%"))


class ClassRate(Block):
    """A sampling rate of its own for one class."""

    traffic_class: ShortName = Field(alias="class")
    """Name of the class."""
    rate: Percent = Field(json_schema_extra=_ABOVE_ZERO)
    """Share of the class that is copied."""


class Sampling(Block):
    """Which share of the traffic is copied, and what is kept together."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            ("self.unit != 'Request' || !has(self.key)", "unit Request takes no key: every request is drawn by itself"),
            ("self.unit != 'Key' || has(self.key)", "unit Key needs sampling.key"),
            (
                "self.onMissingKey != 'Lineage' || self.unit == 'Conversation'",
                "onMissingKey Lineage follows conversations: it needs unit Conversation",
            ),
            (
                "self.onMissingKey != 'Skip' || self.unit != 'Conversation' || has(self.key)",
                "unit Conversation without a key goes by the conversation's opening: none is skipped for lack of a key",
            ),
        )
    )

    unit: Literal["Request", "Conversation", "Key"] = "Request"
    """What is drawn: single requests, whole conversations, or everything that has the same key."""
    rate: Percent = Field(default=Percent("1%"), json_schema_extra=_ABOVE_ZERO)
    """Share that is copied, as a percentage with at most four decimals; it may change while the run is active."""
    key: SamplingKey | None = None
    """Where the key of a conversation or of a caller is found; a conversation without one goes by its opening."""
    on_missing_key: Literal["Random", "Skip", "Lineage"] = "Random"
    """What to do without a key: draw by the request id, leave the request out, or follow the conversation's opening."""
    class_rates: tuple[ClassRate, ...] = Field(default=(), max_length=MAX_CLASSES, json_schema_extra=map_by("class"))
    """Rates of single classes, say a higher one for rare requests; every criterion then names its class. With unit
    Conversation no class may be by turns or promptTokens, which a conversation grows into."""
    target_pairs_per_second: PerSecond | None = Field(
        default=None, json_schema_extra=rules(("self.matches('[1-9]')", "targetPairsPerSecond must be above 0"))
    )
    """Selected pairs a second of the whole run above which all rates are lowered in proportion; never raised again."""

    @property
    def follows_openings(self) -> bool:
        """Whether a conversation without a key is known by its opening."""
        return self.on_missing_key == "Lineage" or (self.unit == "Conversation" and self.key is None)


class Queue(Block):
    """A short wait for pairs that find the run at its cap."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "self.maxLength == 0 || duration(self.maxWait) > duration('0s')",
                "a queue with maxLength above 0 needs a maxWait above 0s",
            )
        )
    )

    max_length: int = Field(default=0, ge=0, le=1024)
    """Most pairs that wait; 0 means that a pair over the cap is shed at once."""
    max_wait: Duration = Field(
        default=Duration("0s"),
        json_schema_extra=rules(("duration(self) <= duration('1m')", "maxWait must be at most 1m")),
    )
    """Longest wait of a pair, after which it is dropped."""


class Admission(Block):
    """Limits on the work that the arms are given, the same for every arm; they may change while the run is active."""

    max_in_flight: int = Field(default=8, ge=1, le=1024)
    """Most pairs in flight at once over the whole run."""
    timeout: Duration = Field(
        default=Duration("60s"),
        json_schema_extra=rules(
            (
                "duration(self) >= duration('1s') && duration(self) <= duration('1h')",
                "timeout must be between 1s and 1h",
            )
        ),
    )
    """Time from admission to the end of the answer, after which an arm has failed the request."""
    queue: Queue = Queue()
    """Whether pairs over the cap may wait."""


class Mirror(Block):
    """The receiver of the copies."""

    replicas: int = Field(default=1, ge=1, le=16)
    """Mirror pods; the limits of admission are divided among them."""
