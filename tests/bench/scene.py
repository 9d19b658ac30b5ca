"""A real mirror process between the Go client and the Go engine: what the mirror's benches share."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
from shadowrun_mirror.config import Admission
from shadowrun_mirror.evidence import ClassEvidence

from tests.bench.load_program import Sent, send
from tests.bench.machine import cpu_seconds, on_the_measured_core
from tests.integration.mirror.process import MirrorProcess
from tests.integration.mirror.rig import configuration
from tests.ports import free_ports

RUN_UID = "run-uid"
_MARKS = f"x-shadowrun-run: {RUN_UID}|x-shadowrun-window: 1|x-conversation-id: c#"


class BenchError(Exception):
    """The measurement is worth nothing, and why."""


@contextlib.asynccontextmanager
async def mirror(
    ports: Sequence[int],
    *,
    max_in_flight: int = 256,
    max_body_bytes: int = 1 << 20,
    log_level: str = "INFO",
    **changes: object,
) -> AsyncIterator[MirrorProcess]:
    """The mirror with one arm per port, alone on the measured core. `changes`: of its configuration."""
    config = configuration(ports, **changes)
    config = msgspec.structs.replace(
        config,
        run_uid=RUN_UID,
        admission=Admission(max_in_flight=max_in_flight, timeout_s=20.0),
        capture=msgspec.structs.replace(config.capture, max_body_bytes=max_body_bytes),
    )
    with tempfile.TemporaryDirectory() as folder:
        process = MirrorProcess(Path(folder), *free_ports(2))
        try:
            with on_the_measured_core():
                await process.launch(config, log_level)
            await process.ready()
            yield process
        finally:
            await process.kill()


async def copies(process: MirrorProcess, prefix: str, *, rate: float, seconds: float, **options: object) -> Sent:
    """Send copies as capture does. `prefix` must be new for each call: a request id counts once."""
    return await send(process.data_port, rate=rate, seconds=seconds, prefix=prefix, headers=_MARKS, **options)


async def counted(process: MirrorProcess) -> ClassEvidence:
    """What the mirror has counted so far, all classes together."""
    total = ClassEvidence()
    for window in (await process.evidence()).windows.values():
        for each in window.classes.values():
            total = total.merged(each)
    return total


async def cpu_per_pair(
    process: MirrorProcess, prefix: str, *, rate: float, seconds: float, tail_s: float, **options: object
) -> float:
    """CPU seconds of the mirror per pair while copies come at `rate`, all their streams (up to `tail_s`) included.

    Raises `BenchError` when a copy was lost, an arm failed or the client could not keep its rate.
    """
    before = await counted(process)
    used = cpu_seconds(process.pid)
    sent = await copies(process, prefix, rate=rate, seconds=seconds, **options)
    await asyncio.sleep(tail_s + 0.1)
    used = cpu_seconds(process.pid) - used
    after = await counted(process)
    while after.in_flight.requests:
        await asyncio.sleep(0.1)
        after = await counted(process)
    pairs = after.admitted.requests - before.admitted.requests
    if pairs != sent.sent or after.dropped != before.dropped:
        raise BenchError(
            f"{sent.sent} copies sent, {pairs} admitted; dropped {after.dropped}, statuses {sent.statuses}"
        )
    for name, arm in after.arms.items():
        if arm.failed:
            raise BenchError(f"arm {name} failed: {arm.failed}")
    return used / pairs
