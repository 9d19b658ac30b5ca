"""The companion of an Envoy: asks a mirror what to copy, keeps the route file in step, and serves Envoy's counts.

Beside that it passes on what became of the originals (`telling`), which nothing else waits for or ends with.

It is off the customers' path. If it stops, Envoy goes on; whoever restarts it first puts the pass-through routes back
(see the command in the capture Deployment), and it starts with them itself.
"""

import asyncio
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from shadowrun_mirror.capture.lease import Instant, Lease, boot_lease
from shadowrun_mirror.capture.outcome_file import OutcomeFile
from shadowrun_mirror.capture.pauses import is_paused, seconds_to_next_slot
from shadowrun_mirror.capture.routefile import write_routes
from shadowrun_mirror.capture.routes import passing_routes, routes
from shadowrun_mirror.capture.stats import (
    STATS_QUERY,
    StatsError,
    capture_evidence,
    envoy_epoch,
    envoy_version,
    version_text,
)
from shadowrun_mirror.capture.telling import Telling
from shadowrun_mirror.config import encode
from shadowrun_mirror.directive import CaptureDirective, decode_directive
from shadowrun_mirror.evidence import CaptureEvidence, Source

POLL_S = 1.0
_ANSWER_S = 0.9  # a mirror that takes longer has not answered
_ADMIN_S = 2.0
_STALLED_S = 10.0
_PAST_THE_EDGE_S = 0.005  # of a slot, so that a clock read a little early does not miss it
_MAX_DIRECTIVE_BYTES = 1 << 20


class AnswerError(ValueError):
    """Somebody answered, but not with what was asked for. The text is ours, so it may be logged."""


_TROUBLES = (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, ValueError, RecursionError)
"""What asking a mirror or Envoy may end in."""


@dataclass(frozen=True, kw_only=True)
class CompanionSettings:
    """Where everything is. URLs without a trailing slash.

    `mirror_url` leads to any mirror, the host of `mirrors_url` has an address for each.
    """

    mirror_url: str
    mirrors_url: str
    admin_url: str
    routes_folder: Path
    outcome_log: Path
    token: str
    pod: str
    pod_uid: str


class Companion:
    """One loop and two answers. Made anew at every start, always in pass-through."""

    def __init__(self, settings: CompanionSettings, boot: CaptureDirective, http: aiohttp.ClientSession) -> None:
        self._settings = settings
        self._http = http
        self._lease: Lease = boot_lease(boot, _now())
        self._written = ""
        self._sequence = 0
        self._turned = time.monotonic()
        self._trouble = ""

    async def run(self, alive: Callable[[], None]) -> None:
        """Ask, apply, once a second, for ever. `alive` is called every turn, so that a stuck loop can be noticed."""
        self._apply()
        while True:
            started = time.monotonic()
            alive()
            await self._ask()
            self._apply()
            self._turned = time.monotonic()
            await self._rest(until=started + POLL_S)

    async def _rest(self, until: float) -> None:
        """Sleep, but be awake when a pause begins or ends."""
        while (left := until - time.monotonic()) > 0:
            edge = seconds_to_next_slot(self._lease.directive.rules.pauses, time.time())
            await asyncio.sleep(min(left, edge + _PAST_THE_EDGE_S))
            self._apply()

    async def _ask(self) -> None:
        try:
            answer = await self._get(f"{self._settings.mirror_url}/directive", _ANSWER_S, self._settings.token)
            directive = decode_directive(answer)
        except _TROUBLES as error:
            self._note(f"no directive: {_cause(error)}")
            return
        self._note("")
        self._lease = self._lease.renewed(directive, _now())

    def _apply(self) -> None:
        now = _now()
        directive, standing = self._lease.directive, self._lease.standing(now)
        rules = directive.rules
        paused = standing == "copying" and is_paused(rules.pauses, rules.sampling.seed, now.wall)
        version = version_text(directive.version, directive.window, "paused" if paused else standing)
        if version == self._written:
            return
        if standing == "expired":
            content = passing_routes(version)
        else:
            content = routes(directive, copying=standing == "copying", paused=paused, version=version)
        write_routes(self._settings.routes_folder, content)
        self._written = version
        _say(f"routes {version}")

    async def evidence(self) -> CaptureEvidence:
        """A snapshot of Envoy's counters; raises one of `_TROUBLES`."""
        info = await self._server_info()
        epoch = envoy_epoch(info)
        stats = await self._get(f"{self._settings.admin_url}/stats", _ADMIN_S, query=STATS_QUERY)
        if envoy_epoch(await self._server_info()) != epoch:
            raise StatsError("Envoy restarted while it was asked")  # whose numbers these are, nobody knows
        # Grows across restarts of this process too, because the counters do: Envoy's epoch outlives the companion.
        self._sequence = max(self._sequence + 1, time.monotonic_ns() // 1_000_000)
        source = Source(
            pod=self._settings.pod,
            pod_uid=self._settings.pod_uid,
            epoch=epoch,
            sequence=self._sequence,
            time=time.time(),
        )
        run_uid = self._lease.directive.run_uid
        return capture_evidence(stats, run_uid=run_uid, source=source, envoy=envoy_version(info))

    async def _server_info(self) -> bytes:
        return await self._get(f"{self._settings.admin_url}/server_info", _ADMIN_S)

    def is_turning(self) -> bool:
        """Whether the loop has come round lately."""
        return time.monotonic() - self._turned < _STALLED_S

    async def _get(self, url: str, timeout_s: float, token: str = "", query: dict[str, str] | None = None) -> bytes:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with self._http.get(url, headers=headers, params=query, timeout=timeout, allow_redirects=False) as answer:
            if answer.status != 200:
                raise AnswerError(f"HTTP {answer.status}")
            if not token:
                return await answer.read()
            body = await answer.content.read(_MAX_DIRECTIVE_BYTES)
            while not answer.content.at_eof():
                more = await answer.content.read(_MAX_DIRECTIVE_BYTES)
                body += more
                if len(body) > _MAX_DIRECTIVE_BYTES:
                    raise AnswerError("the directive is too long")
            return body

    def _note(self, trouble: str) -> None:
        if trouble != self._trouble:
            _say(trouble or "hearing from the mirror")
            self._trouble = trouble


def application(companion: Companion, token: str) -> web.Application:
    """`GET /evidence` (Bearer token) and `GET /healthz`."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(status=200 if companion.is_turning() else 503)

    async def evidence(request: web.Request) -> web.Response:
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), f"Bearer {token}".encode()):
            return web.Response(status=401)
        try:
            snapshot = await companion.evidence()
        except _TROUBLES as error:
            return web.Response(status=503, text=f"Envoy's statistics cannot be read: {_cause(error)}")
        return web.Response(body=encode(snapshot), content_type="application/json")

    served = web.Application()
    served.router.add_get("/healthz", healthz)
    served.router.add_get("/evidence", evidence)
    return served


async def serve(
    settings: CompanionSettings, boot: CaptureDirective, *, host: str, port: int, alive: Callable[[], None]
) -> None:
    """Run the companion until cancelled."""
    async with aiohttp.ClientSession() as http:
        companion = Companion(settings, boot, http)
        telling = Telling(OutcomeFile(settings.outcome_log), URL(settings.mirrors_url), settings.token, http, _say)
        runner = web.AppRunner(application(companion, settings.token), access_log=None, handle_signals=False)
        await runner.setup()
        aside = asyncio.create_task(telling.run())  # whatever becomes of it, copying does not depend on it
        try:
            await web.TCPSite(runner, host, port).start()
            await companion.run(alive)
        finally:
            aside.cancel()
            await asyncio.gather(aside, return_exceptions=True)
            await runner.cleanup()


def _cause(error: Exception) -> str:
    """What may be said of an error: our own words, or its type."""
    return str(error) if isinstance(error, StatsError | AnswerError) else type(error).__name__


def _now() -> Instant:
    return Instant(wall=time.time(), monotonic=time.monotonic())


def _say(text: str) -> None:
    print(f"companion: {text}", flush=True)  # noqa: T201  the container's log
