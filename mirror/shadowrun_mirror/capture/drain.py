"""Ends an Envoy without breaking a request: stop looking ready, ask clients to reconnect elsewhere, wait, return.

Run before the container gets its signal. Every wait is bounded; an Envoy that is gone needs no draining.
"""

import http.client
import time
import urllib.error
import urllib.parse
import urllib.request

from shadowrun_mirror.capture.stats import STATS_FILTER, StatsError, active_requests, open_connections, parse_stats

_STEP_S = 0.5
_IDLE_S = 15.0
"""How long connections without a request are still waited for: by then their clients had the hint or are asleep."""


def drain(admin_url: str, *, settle_s: float, timeout_s: float) -> None:
    """Return when no request is left, or after `timeout_s` seconds at most.

    `settle_s` is how long to go on serving before looking, while the pod leaves the endpoints everywhere.
    """
    deadline = time.monotonic() + timeout_s
    try:
        _ask(f"{admin_url}/healthcheck/fail", post=True)
        _ask(f"{admin_url}/drain_listeners?graceful&skip_exit", post=True)
        time.sleep(min(settle_s, max(0.0, deadline - time.monotonic())))
        idle_since: float | None = None
        while time.monotonic() < deadline:
            requests, connections = _left(admin_url)
            now = time.monotonic()
            idle_since = None if requests else (idle_since or now)
            if not connections or (idle_since is not None and now - idle_since >= _IDLE_S):
                return
            time.sleep(_STEP_S)
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, StatsError) as error:
        print(f"drain: Envoy is gone or does not answer: {error}", flush=True)  # noqa: T201  the container's log


def _left(admin_url: str) -> tuple[int, int]:
    query = urllib.parse.urlencode({"format": "json", "filter": STATS_FILTER})
    stats = parse_stats(_ask(f"{admin_url}/stats?{query}"))
    return active_requests(stats), open_connections(stats)


def _ask(url: str, *, post: bool = False) -> bytes:
    request = urllib.request.Request(url, method="POST" if post else "GET")  # noqa: S310  our own loopback address
    with urllib.request.urlopen(request, timeout=5.0) as answer:  # noqa: S310
        return bytes(answer.read())
