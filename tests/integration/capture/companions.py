"""A companion as a process, beside a real Envoy and a scripted mirror."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.integration.capture.harness import (
    Capture,
    Control,
    Peer,
    boot_files,
    directive,
    running_scene,
    start_companion,
    until,
)
from tests.ports import free_ports

LEASE_S = 2.0


@asynccontextmanager
async def companioned(folder: Path, told: Control | None = None) -> AsyncIterator[tuple[Capture, Control, Peer]]:
    """Envoy, its companion, a mirror whose control answers `directive()` with a short lease, copying on."""
    control = told or Control(free_ports(1)[0], directive(version=1, lease_s=LEASE_S))
    async with running_scene(folder) as (capture, _, to_mirror):
        await control.start()
        companion = await start_companion(capture, boot_files(folder, control.told), f"http://127.0.0.1:{control.port}")
        try:
            await until(lambda: copies(capture), 10.0)
            yield capture, control, to_mirror
        finally:
            with suppress(ProcessLookupError):
                companion.kill()
            await companion.wait()
            await control.stop()


async def copies(capture: Capture) -> bool:
    return (await capture.evidence()).copying


async def passes(capture: Capture) -> bool:
    return not await copies(capture)
