"""What capture costs customers' Envoy: CPU per request with all that our configuration does, against a plain Envoy."""

import contextlib
import tempfile
from pathlib import Path

from tests.bench.effort import Effort
from tests.bench.envoy import captures, plain_envoy
from tests.bench.load_program import engine, send
from tests.bench.machine import cpu_seconds
from tests.bench.scene import BenchError
from tests.bench.tables import Line, Table, ratios
from tests.integration.capture.harness import Capture, capture_on_free_ports, directive

NAME = "customers-cpu"
GOAL = 1.16
TURNS = 7
MODULO = 1_000_000
LARGEST = 1 << 20
SHARES = {"before a run": None, "5 % sampled": 0.05, "5 % sampled, path guarded": 0.05, "100 % sampled": 1.0}
GUARDED = "5 % sampled, path guarded"


async def measure(effort: Effort) -> Table:
    """All Envoys stand at the same time before the same primary and are asked in turn."""
    costs: dict[str, list[float]] = {name: [] for name in ("plain", *SHARES)}
    with tempfile.TemporaryDirectory() as folder:
        capture, guarded = (capture_on_free_ports(Path(folder) / name) for name in ("plain", "guarded"))
        for each in (capture, guarded):
            each.folder.mkdir()
        capture.guarded = False
        guarded.primary_port, guarded.mirror_port = capture.primary_port, capture.mirror_port
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(engine(port=capture.primary_port, first_s=0))
            await stack.enter_async_context(engine(port=capture.mirror_port, first_s=0, status=202, answer=0))
            plain_port, plain_pid = await stack.enter_async_context(plain_envoy(capture.primary_port))
            measured = {c.customers: await stack.enter_async_context(captures(c, LARGEST)) for c in (capture, guarded)}
            for number in range(effort.rounds if effort.quick else TURNS):
                for window, (name, share) in enumerate(SHARES.items(), start=1):
                    costs["plain"].append(await _cost(plain_port, plain_pid, effort))
                    envoy = guarded if name == GUARDED else capture
                    await _sample(envoy, share, 10 * number + window)
                    costs[name].append(await _cost(envoy.customers, measured[envoy.customers], effort))
    plain = [costs["plain"][place :: len(SHARES)] for place in range(len(SHARES))]
    lines = [
        Line(
            f"customers' Envoy, CPU per request, {name}",
            ratios(costs[name], before),
            reference="plain Envoy",
            at_most=GOAL if name == "5 % sampled" else None,
        )
        for (name, share), before in zip(SHARES.items(), plain, strict=True)
    ]
    conditions = (
        "POST of 2 kB, 16 keep-alive connections as fast as they are answered, one Envoy worker alone on one core; the "
        "key is a header that is new in every request."
    )
    return Table(NAME, conditions, lines)


async def _sample(capture: Capture, share: float | None, version: int) -> None:
    threshold = MODULO if share is None else round(MODULO * (1 - share))
    copying = share is not None
    told = directive(version=version, window=version, copying=copying, threshold=threshold, max_body_bytes=LARGEST)
    await capture.follow(told)


async def _cost(port: int, pid: int, effort: Effort) -> float:
    used = cpu_seconds(pid)
    sent = await send(
        port, rate=0, seconds=effort.seconds / 2, connections=16, stream="false", headers="x-conversation-id: c#"
    )
    if sent.failed:
        raise BenchError(f"{sent.failed} requests failed")
    return (cpu_seconds(pid) - used) / sent.sent
