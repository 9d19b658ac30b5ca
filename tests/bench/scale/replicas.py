"""One HTTP server that answers for the mirror and the capture of every run: told apart by the run's token.

It counts pairs at a fixed rate from the moment a configuration asks for copies. It judges nothing.
"""

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aiohttp import web
from shadowrun_mirror.config import MirrorConfig, decode_config, encode, wants_copies
from shadowrun_mirror.evidence import Amount, CaptureEvidence, CaptureWindow, Evidence, Source, Window
from shadowrun_operator.manifests import names

from tests.unit.reconcile.world import _pairs

PAIRS_A_SECOND = 2.0


@dataclass
class Counting:
    """What is known of one run's mirror."""

    config: MirrorConfig
    windows: dict[int, Window] = field(default_factory=dict)
    counted_at: float = field(default_factory=time.time)
    sequence: int = 0

    def count(self) -> None:
        """Pairs since the last time."""
        now = time.time()
        pairs = int((now - self.counted_at) * PAIRS_A_SECOND)
        if not wants_copies(self.config, now):
            self.counted_at = now
        elif pairs:
            self.counted_at = now
            arms = tuple(arm.name for arm in self.config.arms)
            added, number = _pairs(self.config.window, pairs, arms, self.config, now), self.config.window
            self.windows[number] = self.windows[number].merged(added) if number in self.windows else added


class Replicas:
    """`pods` says which pod a run's component is in: the uid, by run and component."""

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], str] = {}
        self.runs: dict[str, str] = {}  # names of runs by their uid
        self._counting: dict[str, Counting] = {}

    @contextlib.asynccontextmanager
    async def serving(self, address: str) -> AsyncIterator[None]:
        """At the ports where the operator asks mirrors and captures."""
        app = web.Application()
        app.router.add_put("/config", self._configure)
        app.router.add_get("/evidence", self._evidence)
        runner = web.AppRunner(app)
        await runner.setup()
        for port in (names.CONTROL_PORT, names.COMPANION_PORT):
            await web.TCPSite(runner, address, port).start()
        try:
            yield
        finally:
            await runner.cleanup()

    async def _configure(self, request: web.Request) -> web.Response:
        config, token = decode_config(await request.read()), request.headers["Authorization"]
        known = self._counting.setdefault(token, Counting(config))
        known.count()
        known.config = max(known.config, config, key=lambda c: c.version)
        return web.Response()

    async def _evidence(self, request: web.Request) -> web.Response:
        known = self._counting.get(request.headers["Authorization"])
        transport = request.transport
        if known is None or transport is None:
            return web.Response(status=503)
        known.count()
        known.sequence += 1
        port = transport.get_extra_info("sockname")[1]
        component = names.MIRROR if port == names.CONTROL_PORT else names.CAPTURE
        pod = self.pods.get((self.runs.get(known.config.run_uid, ""), component))
        if pod is None:
            return web.Response(status=503)
        source = Source(pod=pod, pod_uid=pod, epoch="e", sequence=known.sequence, time=time.time())
        said = _mirror(known, source) if component == names.MIRROR else _capture(known, source)
        return web.Response(body=encode(said), content_type="application/json")


def _mirror(known: Counting, source: Source) -> Evidence:
    config = known.config
    return Evidence(
        run_uid=config.run_uid,
        source=source,
        config_version=config.version,
        copying=config.copying,
        expired=time.time() >= config.expiry,
        windows=known.windows,
    )


def _capture(known: Counting, source: Source) -> CaptureEvidence:
    received = {n: sum((c.received for c in w.classes.values()), Amount()) for n, w in known.windows.items()}
    return CaptureEvidence(
        run_uid=known.config.run_uid,
        source=source,
        directive_version=known.config.version,
        copying=known.config.copying,
        active_requests=0,
        windows={n: CaptureWindow(sampled=amount, plain=amount) for n, amount in received.items()},
    )
