"""Control: evidence out, configuration and outcomes in, the directive for capture, metrics, health. Decides nothing.

`/evidence`, `/config`, `/directive` and `/outcomes` need the bearer token; `/metrics` and `/healthz` are open and hold
no content.
"""

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from shadowrun_mirror.capture.outcome_log import MAX_BATCH_BYTES
from shadowrun_mirror.config import decode_config, encode
from shadowrun_mirror.directive import directive_of
from shadowrun_mirror.live import Refusal
from shadowrun_mirror.metrics import Vitals
from shadowrun_mirror.pipeline import Pipeline

_log = logging.getLogger(__name__)

MAX_CONFIG_BYTES = 1024 * 1024

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Control:
    """`token` is what callers must show; `evidence_read` is called after each snapshot that was given out.

    `vitals` are asked for at each scrape. `outcomes` gets lines of capture's log, at most `MAX_BATCH_BYTES` of them.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        token: str,
        vitals: Callable[[], Vitals],
        evidence_read: Callable[[], None],
        outcomes: Callable[[bytes], None],
    ) -> None:
        self._pipeline = pipeline
        self._token = token.encode()
        self._vitals = vitals
        self._evidence_read = evidence_read
        self._outcomes_told = outcomes

    def app(self) -> web.Application:
        """The application, to be served on the control port."""
        app = web.Application(middlewares=[self._guarded], client_max_size=MAX_CONFIG_BYTES)
        app.router.add_get("/evidence", self._evidence)
        app.router.add_put("/config", self._config)
        app.router.add_get("/directive", self._directive)
        app.router.add_post("/outcomes", self._outcomes)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        return app

    @property
    def _guarded(self) -> Any:
        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path not in ("/metrics", "/healthz"):
                shown = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
                if not self._token or not hmac.compare_digest(shown, b"Bearer " + self._token):
                    return web.Response(status=401)
            return await handler(request)

        return guarded

    async def _evidence(self, _: web.Request) -> web.Response:
        body = encode(self._pipeline.evidence())
        self._evidence_read()
        return web.Response(body=body, content_type="application/json")

    async def _config(self, request: web.Request) -> web.Response:
        try:
            config = decode_config(await request.read())
        except msgspec.ValidationError as error:
            message, _, field = str(error).partition(" - at ")
            return _refusal(Refusal(status=422, field=field.strip("`").removeprefix("$."), message=message))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _refusal(Refusal(status=422, field="", message="not JSON"))
        pipeline = self._pipeline
        refusal = pipeline.live.offer(config, pipeline.clocks.wall(), pipeline.clocks.mono())
        if refusal is not None:
            _log.warning("configuration refused", extra={"fields": {"field": refusal.field, "why": refusal.message}})
            return _refusal(refusal)
        taken = pipeline.live.config
        pipeline.configured()
        fields = {"run": taken.run, "version": taken.version, "window": taken.window, "copying": taken.copying}
        _log.info("configuration in force", extra={"fields": fields})
        return web.Response(status=204)

    async def _directive(self, _: web.Request) -> web.Response:
        directive = directive_of(self._pipeline.live.config, self._pipeline.clocks.wall())
        # The monotonic clock may know better than the wall clock, and a draining replica wants no more copies.
        directive = msgspec.structs.replace(directive, copying=directive.copying and self._pipeline.copying)
        return web.Response(body=encode(directive), content_type="application/json")

    async def _outcomes(self, request: web.Request) -> web.Response:
        lines = bytearray()
        while piece := await request.content.read(MAX_BATCH_BYTES):
            lines += piece
            if len(lines) > MAX_BATCH_BYTES:
                return web.Response(status=413)
        self._outcomes_told(bytes(lines))
        return web.Response(status=204)

    async def _metrics(self, _: web.Request) -> web.Response:
        body = self._pipeline.metrics.render(self._vitals())
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")


def _refusal(refusal: Refusal) -> web.Response:
    return web.json_response({"field": refusal.field, "error": refusal.message}, status=refusal.status)
