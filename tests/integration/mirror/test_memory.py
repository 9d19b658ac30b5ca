"""The mirror's memory is bounded: what passes through it does not stay, neither pairs nor copies that are shed."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from shadowrun_mirror.config import Admission, MirrorConfig

from tests.integration.capture.harness import Client
from tests.integration.mirror.engine import Engine, streams
from tests.integration.mirror.process import MirrorProcess, running_mirror
from tests.integration.mirror.rig import configuration
from tests.ports import free_ports

pytestmark = pytest.mark.mirror

IN_FLIGHT = 16
BODY = 64_000
WARM, MORE = 300, 1_500
GROWTH_MIB, LARGEST_MIB = 12, 150


def resident_mib(pid: int) -> float:
    """Linux: resident memory by /proc."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def body(number: int) -> bytes:
    text = f"{number} ".ljust(BODY, "x")
    return json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": text}]}).encode()


async def copies(process: MirrorProcess, config: MirrorConfig, numbers: range) -> None:
    """Over eight connections as fast as they are answered, so that some are shed."""
    left = iter(numbers)

    async def one() -> None:
        client = Client(process.data_port)
        for number in left:
            marks = [("X-Shadowrun-Run", config.run_uid), ("X-Shadowrun-Window", "1")]
            got = await client.request([*marks, ("X-Request-Id", f"request-{number}")], body(number))
            assert got.status in (202, 429)
        client.close()

    await asyncio.gather(*(one() for _ in range(8)))


async def test_memory_does_not_grow_with_what_has_passed(tmp_path: Path) -> None:
    async with Engine(streams(delay_s=0.02)) as baseline, Engine(streams(delay_s=0.02)) as candidate:
        config = configuration([baseline.port, candidate.port])
        config = msgspec.structs.replace(
            config,
            admission=Admission(max_in_flight=IN_FLIGHT, timeout_s=10.0),
            capture=msgspec.structs.replace(config.capture, max_body_bytes=1 << 20),
        )
        async with running_mirror(MirrorProcess(tmp_path, *free_ports(2)), config) as process:
            await copies(process, config, range(WARM))
            warm = resident_mib(process.pid)
            baseline.got.clear()
            candidate.got.clear()
            await copies(process, config, range(WARM, WARM + MORE))
            evidence = await process.settled()
            after = resident_mib(process.pid)
    counted = evidence.windows[1].classes
    assert sum(each.received.requests for each in counted.values()) == WARM + MORE
    assert sum(each.admitted.requests for each in counted.values()) > IN_FLIGHT
    assert after < warm + GROWTH_MIB, f"{warm:.0f} MiB after the warm-up, {after:.0f} MiB after {MORE} copies more"
    assert after < LARGEST_MIB
