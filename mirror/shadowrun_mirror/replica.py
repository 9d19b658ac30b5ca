"""One mirror replica: both servers and the background watches, started and stopped together. Wiring only.

Boot files, environment and signals are `__main__`'s; this is what tests start as well.
"""

import asyncio
import logging
import random

from aiohttp import web

from shadowrun_mirror.client import Client, PlainClient
from shadowrun_mirror.config import MirrorConfig
from shadowrun_mirror.control import Control
from shadowrun_mirror.count import Counts
from shadowrun_mirror.credentials import Credentials
from shadowrun_mirror.dispatch import Dispatcher
from shadowrun_mirror.lag import LoopLag
from shadowrun_mirror.live import LiveConfig
from shadowrun_mirror.log import died
from shadowrun_mirror.metrics import Metrics
from shadowrun_mirror.pipeline import Clocks, Pipeline
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
        self.pipeline = Pipeline(
            self.live,
            Counts(config.run_uid, pod, pod_uid, epoch),
            Metrics(config),
            Dispatcher(client or PlainClient(), Credentials().of, rng),
            clocks,
        )
        self.door = Door(self._rules, self.pipeline.take, self.pipeline.metrics.refused, clocks.mono)
        self.data_port = 0
        self.control_port = 0
        self._lag = LoopLag()
        self._read = asyncio.Event()
        self._control = web.AppRunner(
            Control(self.pipeline, token, self._lag, self._read.set).app(), access_log=None, shutdown_timeout=1.0
        )
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
        config = self.live.config
        return Rules(
            run_uid=config.run_uid,
            max_body_bytes=config.capture.max_body_bytes,
            max_window=config.window + _PLAUSIBLE_WINDOWS_AHEAD,
        )

    async def _watch_expiry(self) -> None:
        while True:
            if self.pipeline.expired:
                _log.warning("expired: no more copies are taken", extra={"fields": {"run": self.live.config.run}})
                return
            await asyncio.sleep(_EXPIRY_TICK_S)
