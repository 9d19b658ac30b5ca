"""`python -m shadowrun_mirror` as a process of its own, for tests and benches: boot files in, ports and signals out.

Knows the process by its boot files, its environment and its HTTP ports only.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
from shadowrun_mirror.config import MirrorConfig, encode
from shadowrun_mirror.evidence import Evidence

from tests.funnel import assert_adds_up

TOKEN = "control-token-for-tests"
_MIRROR = Path(__file__).resolve().parents[3] / "mirror"


class MirrorProcess:
    """One replica; it may be started again on the same ports, as a pod would be."""

    def __init__(self, folder: Path, data_port: int, control_port: int) -> None:
        self.folder = folder
        self.data_port = data_port
        self.control_port = control_port
        self.process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> str:
        """All it wrote, over all its lives."""
        return (self.folder / "mirror.log").read_text()

    async def start(self, config: MirrorConfig, log_level: str = "INFO") -> None:
        """Start it and wait until it is healthy."""
        await self.launch(config, log_level)
        await self.ready()

    async def ready(self) -> None:
        """Wait until it is healthy."""
        async with asyncio.timeout(20), httpx.AsyncClient(trust_env=False) as http:
            while True:
                assert self.process is not None
                assert self.process.returncode is None, self.log
                with contextlib.suppress(httpx.TransportError):
                    if (await http.get(self._url("/healthz"))).status_code == 200:
                        return
                await asyncio.sleep(0.02)

    async def launch(self, config: MirrorConfig, log_level: str = "INFO") -> None:
        """Start it and wait for nothing."""
        (self.folder / "config.json").write_bytes(encode(config))
        (self.folder / "token").write_text(TOKEN + "\n")
        environment = os.environ | {
            "PYTHONPATH": str(_MIRROR),
            "SHADOWRUN_BOOT": str(self.folder),
            "SHADOWRUN_HOST": "127.0.0.1",
            "SHADOWRUN_DATA_PORT": str(self.data_port),
            "SHADOWRUN_CONTROL_PORT": str(self.control_port),
            "SHADOWRUN_LOG_LEVEL": log_level,
            "POD_NAME": "mirror-0",
            "POD_UID": "pod-uid",
        }
        with (self.folder / "mirror.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "shadowrun_mirror", env=environment, stdout=log, stderr=log
            )

    def send_signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def kill(self) -> None:
        """End it at once, even while it is stopped."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def evidence(self) -> Evidence:
        """A snapshot; it must add up whenever it is taken."""
        async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
            response = await http.get(self._url("/evidence"), headers={"authorization": f"Bearer {TOKEN}"})
        assert response.status_code == 200, response.status_code
        evidence = Evidence.decode(response.content)
        assert_adds_up(evidence)
        return evidence

    async def settled(self, timeout_s: float = 20.0) -> Evidence:
        """The evidence once nothing is in flight any more."""
        async with asyncio.timeout(timeout_s):
            while True:
                evidence = await self.evidence()
                classes = [c for window in evidence.windows.values() for c in window.classes.values()]
                if not sum(counted.in_flight.requests for counted in classes):
                    return evidence
                await asyncio.sleep(0.05)

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.control_port}{path}"


@contextlib.asynccontextmanager
async def running_mirror(process: MirrorProcess, config: MirrorConfig) -> AsyncIterator[MirrorProcess]:
    """Started on entry, gone at the end, whatever happened to it in between."""
    try:
        await process.start(config)
        yield process
    finally:
        await process.kill()
