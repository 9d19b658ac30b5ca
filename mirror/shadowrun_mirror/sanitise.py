"""Sanitise: what of a live request's head may reach an arm, and the mark that says it is a copy. Pure.

Credentials, identities, tenancy, routing and hop-by-hop headers never pass, in whatever spelling; there is no switch
for it. Nor does the query: no engine reads one on these paths, and some gateways take a credential there. Every other
header is forwarded in its order. The arm gets its own credential, never the customer's. What is in the body is
`rewrite`'s.
"""

from collections.abc import Iterable

from shadowrun_mirror.baggage import KEYS, claims_ours
from shadowrun_mirror.copied import Headers

_CREDENTIALS = (
    "authorization x-api-key api-key x-goog-api-key cookie set-cookie proxy-authorization x-auth-token x-access-token"
)
_USERS = "anthropic-user-profile-id x-continuum-resolved-user-profile-id"
_TENANCY = "x-user-id x-tenant x-org-id"
_ROUTING = "x-backend x-real-ip forwarded x-vllm-priority"
# What an endpoint picker chose for the original: an arm's sidecar that obeyed would send work to the primary's pods.
_PICKED = (
    "x-prefiller-host-port x-prefiller-url x-encoder-hosts-ports x-data-parallel-host-port x-kv-cache-source-host-port "
    "x-session-token"
)
# `expect` asks something of this hop only: the whole body is already here.
_HOP = (
    "host connection keep-alive transfer-encoding content-length content-type accept-encoding upgrade te trailer "
    "proxy-connection proxy-authenticate expect"
)
STRIPPED = frozenset(f"{_CREDENTIALS} {_USERS} {_TENANCY} {_ROUTING} {_PICKED} {_HOP}".encode().split())
"""Names that never pass, lower case, with "-"."""

STRIPPED_PREFIXES = (
    b"x-continuum-",
    b"x-shadowrun-",
    b"x-envoy-",
    b"x-forwarded-",  # who asked and from where; some authenticating proxies add the user and the token
    b"x-auth-request-",
    b"x-amzn-oidc-",
    b"x-original-authorization",
    b"x-gateway-",  # an inference gateway's: the endpoint it picked, its model, objective and fairness id
    b"x-llm-d-",  # the same endpoints by their newer names
)

_BAGGAGE = b"baggage"
# What receivers are known to accept. Beyond it some ignore the whole header, and our mark would be lost with it.
_MAX_BAGGAGE_BYTES = 8192
_MAX_BAGGAGE_ENTRIES = 180


def without_query(target: bytes) -> bytes:
    """The path of a request target."""
    return target.partition(b"?")[0]


def sanitised(headers: Headers, run: str, customer_keys: Iterable[bytes] = ()) -> Headers:
    """The headers all arms get: those that may pass, then baggage marked with `shadow=true,shadow.run=<run>`.

    Headers named by a `connection` header are hop-by-hop too and stay here, and so do those named by `customer_keys`.
    """
    staying = _named_by_connection(headers).union(map(_plain, customer_keys))
    kept: list[tuple[bytes, bytes]] = []
    baggage: list[bytes] = []
    for name, value in headers:
        plain = _plain(name)
        if plain == _BAGGAGE:
            baggage.append(value)
        elif not _stays(plain) and plain not in staying:
            kept.append((name, value))
    kept.append((_BAGGAGE, marked_baggage(baggage, run)))
    return tuple(kept)


def marked_baggage(lines: list[bytes], run: str) -> bytes:
    """One baggage value: the entries of `lines` byte for byte, less any that claim to be ours, then ours.

    Entries that would push the value over 8192 bytes or 180 entries are left out from the end: the mark must arrive.
    """
    ours = b"shadow=true,shadow.run=" + run.encode()
    entries = [entry for line in lines for entry in line.split(b",") if entry.strip(b" \t") and not claims_ours(entry)]
    kept: list[bytes] = []
    room = _MAX_BAGGAGE_BYTES - len(ours)
    for entry in entries[: _MAX_BAGGAGE_ENTRIES - len(KEYS)]:
        room -= len(entry) + 1
        if room < 0:
            break
        kept.append(entry)
    return b",".join([*kept, ours])


def arm_headers(common: Headers, credential: str | None) -> Headers:
    """Headers for one arm: the common ones, what is true of our own body, and the arm's own credential.

    `host` and `content-length` are the client's to write: it knows both.
    """
    own = ((b"content-type", b"application/json"), (b"accept-encoding", b"identity"))
    if credential is None:
        return common + own
    return (*common, *own, (b"authorization", b"Bearer " + credential.encode()))


def _stays(plain: bytes) -> bool:
    return plain in STRIPPED or plain.startswith(STRIPPED_PREFIXES)


def _plain(name: bytes) -> bytes:
    return name.strip(b" \t").lower().replace(b"_", b"-")


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    lists = [value for name, value in headers if _plain(name) == b"connection"]
    return frozenset(_plain(name) for value in lists for name in value.split(b","))
