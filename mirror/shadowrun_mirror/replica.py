"""One mirror replica: its servers and the background watches, started and stopped together. Wiring only.

Boot files, environment and signals are `__main__`'s; this is what tests start as well.
"""

import asyncio
import logging
import random

from aiohttp import web

from shadowrun_mirror.addresses import Addresses
from shadowrun_mirror.client import Client, PlainClient
from shadowrun_mirror.config import MirrorConfig
from shadowrun_mirror.control import Control
from shadowrun_mirror.count import Counts
from shadowrun_mirror.credentials import Credentials
from shadowrun_mirror.dispatch import Dispatcher
from shadowrun_mirror.http2 import Http2Client
from shadowrun_mirror.lag import LoopLag
from shadowrun_mirror.live import LiveConfig
from shadowrun_mirror.log import died
from shadowrun_mirror.metrics import Metrics, Vitals
from shadowrun_mirror.pipeline import Clocks, Pipeline
from shadowrun_mirror.primary import told
from shadowrun_mirror.receive import Door, Rules

_log = logging.getLogger(__name__)

LAST_READ_S = 10.0
"""How long a drained replica waits for its evidence to be read once more."""

_PLAUSIBLE_WINDOWS_AHEAD = 100
_EXPIRY_TICK_S = 0.5


class Replica:
    """Start with `start`, stop with `stop`; for ports 0 the system chooses, see `data_port` and `control_port`."""

    def __init__(
        self,
        config: MirrorConfig,
        token: str,
        *,
        pod: str,
        pod_uid: str,
        epoch: str,
        rng: random.Random,
        client: Client | None = None,
        clocks: Clocks | None = None,
    ) -> None:
        clocks = clocks or Clocks()
        self.live = LiveConfig(config, clocks.wall(), clocks.mono())
        self._lag = LoopLag(lambda: self.live.config.lag_limit_s, clocks.mono)
        self._counts = Counts(config.run_uid, pod, pod_uid, epoch, self._lag.histogram, self._lag.late_at)
        self._metrics = Metrics(config)
        addresses = Addresses(clocks.mono)
        dispatcher = Dispatcher(
            client or PlainClient(addresses),
            client or Http2Client(addresses),
            Credentials().of,
            rng,
            clocks.mono,
            self._metrics.breaker_turned,
        )
        self.pipeline = Pipeline(self.live, self._counts, self._metrics, dispatcher, clocks, chance=rng.randrange)
        self.door = Door(
            self._rules, self.pipeline.take, self._metrics.refused, clocks.mono, self.pipeline.sheds_at_door
        )
        self.data_port = 0
        self.control_port = 0
        self._door_rules: tuple[MirrorConfig, Rules] | None = None
        self._read = asyncio.Event()
        control = Control(self.pipeline, token, self._vitals, self._read.set, self._outcomes_told)
        self._control = web.AppRunner(control.app(), access_log=None, shutdown_timeout=1.0)
        self._watches: list[asyncio.Task[None]] = []

    async def start(self, host: str | None, data_port: int, control_port: int) -> None:
        """Open both ports. Raises `OSError` when one is taken."""
        await self._control.setup()
        await web.TCPSite(self._control, host, control_port).start()
        self.control_port = self._control.addresses[0][1]
        self.data_port = await self.door.open(host, data_port)
        watches = {"lag": self._lag.watch(), "sweep": self.door.sweep(), "expiry": self._watch_expiry()}
        self._watches = [asyncio.create_task(watch, name=name) for name, watch in watches.items()]
        for watch in self._watches:
            watch.add_done_callback(died)

    async def drain(self, last_read_s: float = LAST_READ_S) -> None:
        """Stop accepting, let pairs end (at most the timeout), then wait for one more reading of the evidence."""
        self.door.close()
        await self.pipeline.drain(self.live.config.admission.timeout_s)
        self._read.clear()
        try:
            await asyncio.wait_for(self._read.wait(), last_read_s)
        except TimeoutError:
            _log.warning("nobody read the last evidence")

    async def stop(self) -> None:
        """Close everything now."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        self.door.abort()
        await self.pipeline.drain(0)
        await self._control.cleanup()

    def _rules(self) -> Rules:
        """What the door goes by; made once per configuration, as it is asked for at every read."""
        config = self.live.config
        if self._door_rules is None or self._door_rules[0] is not config:
            rules = Rules(
                run_uid=config.run_uid,
                max_body_bytes=config.capture.max_body_bytes,
                max_window=config.window + _PLAUSIBLE_WINDOWS_AHEAD,
                source=config.source,
                window=config.window,
                paths=frozenset(path.encode() for path in config.capture.paths),
            )
            self._door_rules = config, rules
        return self._door_rules[1]

    def _outcomes_told(self, lines: bytes) -> None:
        """Join what the primary made of the originals; each of several mirrors is told of all and knows its own."""
        found = told(lines, self.live.config.run_uid)
        self._metrics.refused("log_record", found.senseless)
        self._metrics.refused("other_run", found.of_another_run)
        for mark, outcome in found.ended:
            self._metrics.primary_ended(outcome)
            self._counts.primary_ended(mark, outcome)

    def _vitals(self) -> Vitals:
        p50, most = self._lag.p50_and_max()
        return Vitals(
            in_flight=self.pipeline.in_flight,
            queued=self.pipeline.queued,
            copying=self.pipeline.copying,
            held_bytes=self.door.held_bytes,
            lag_p50=p50,
            lag_max=most,
            cpu_share=self._lag.cpu_share,
            collector_s=self._lag.collector_s,
        )

    async def _watch_expiry(self) -> None:
        while True:
            if self.pipeline.expired:
                _log.warning("expired: no more copies are taken", extra={"fields": {"run": self.live.config.run}})
                return
            await asyncio.sleep(_EXPIRY_TICK_S)
