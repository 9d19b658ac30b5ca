"""Whether the mirror's numbers are those of another instrument: TTFT, latency and goodput against AIPerf's.

AIPerf is the customer: it sends to capture's Envoy and measures what the primary answers, while the mirror measures
what both arms answer to the copies. Primary and arms are three processes of one simulated engine. So both measure the
same requests at the same moments, each as it does anywhere, and neither waits in a queue behind the other, which they
would in one process. Optional, as it installs AIPerf: `make bench ARGS=aiperf`.
"""

import asyncio
import contextlib
import json
import random
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import numpy as np
from shadowrun_mirror.config import SLO

from tests.bench.aiperf_program import Reported, profile
from tests.bench.effort import Effort
from tests.bench.envoy import captures
from tests.bench.scene import RUN_UID, BenchError, counted, mirror
from tests.bench.tables import Line, Table, ratios
from tests.cluster.paths import REPOSITORY
from tests.integration.capture.harness import MAX_BODY, Capture, capture_on_free_ports, directive
from tests.integration.mirror.process import MirrorProcess
from tests.ports import free_ports

NAME = "aiperf"
TOLERANCE = 0.03
RATE, REQUESTS, QUICK_REQUESTS = 3.0, 160, 20
"""Per second; of a round."""
SPEED = ("--prefill-ms=1", "--decode-ms=5", "--batch-tokens=16")
"""Short steps: three engines are never in the same one at the same moment, and differ by that."""
SLO_BOTH = SLO(ttft_s=0.4, e2e_s=1.0)
PROMPT_WORDS, ANSWER_WORDS = (100, 0.7, 600), (40, 0.5, 120)
"""Median, spread of the logarithm, most."""


async def measure(effort: Effort) -> Table:
    """A round is one run of AIPerf with requests of its own."""
    count = QUICK_REQUESTS if effort.quick else REQUESTS
    with tempfile.TemporaryDirectory() as folder:
        async with _standing(Path(folder)) as (capture, process):
            rounds = [await _round(Path(folder), capture, process, number, count) for number in range(effort.rounds)]
    theirs, ours = [each for each, _ in rounds], [each for _, each in rounds]
    lines = [
        Line(
            f"mirror's {what}",
            ratios([getattr(each, name) for each in ours], [getattr(each, name) for each in theirs]),
            reference="AIPerf's",
            at_least=1 - TOLERANCE,
            at_most=1 + TOLERANCE,
        )
        for name, what in {
            "ttft_p50": "TTFT p50",
            "ttft_p95": "TTFT p95",
            "latency_p50": "latency p50",
            "latency_p95": "latency p95",
            "goodput": "goodput",
        }.items()
    ]
    within = sum(each.goodput * each.seconds / each.answered for each in theirs) / len(theirs)
    assert SLO_BOTH.ttft_s is not None
    assert SLO_BOTH.e2e_s is not None
    conditions = (
        f"AIPerf sends {count} requests a round through capture, {RATE:.0f} a second at random moments, and measures "
        "the primary's answers; the mirror measures both arms' answers to the copies at the same time, and its values "
        "are those of both arms together. Primary and arms are three processes of the simulated engine with the same "
        f"options. Goodput: answers within TTFT {SLO_BOTH.ttft_s * 1000:.0f} ms and latency "
        f"{SLO_BOTH.e2e_s * 1000:.0f} ms per second, {within:.0%} of AIPerf's."
    )
    return Table(NAME, conditions, lines)


def bodies(count: int, seed: int) -> list[bytes]:
    """Requests of different lengths, all streamed."""
    rng = random.Random(seed)

    def length(median: float, spread: float, most: int) -> int:
        return min(most, max(2, round(median * rng.lognormvariate(0, spread))))

    def body(number: int) -> dict[str, object]:
        words = " ".join(f"word{number}" for _ in range(length(*PROMPT_WORDS)))
        messages = [{"role": "user", "content": words}]
        return {"model": "chat", "messages": messages, "max_tokens": length(*ANSWER_WORDS), "stream": True}

    return [json.dumps(body(number)).encode() for number in range(count)]


def measured(log: str, good: int, seconds: float) -> Reported:
    """What the mirror says of the same run, by the lines that it wrote of each answer, and its count within the SLO."""
    ended = [line for line in map(json.loads, log.splitlines()) if line["message"] == "pair ended"]
    failed = [line["outcome"] for line in ended if line["outcome"] != "completed"]
    if failed or not ended:
        raise BenchError(f"{len(failed)} of {len(ended)} answers failed: {set(failed)}")
    arms = len({line["arm"] for line in ended})
    ttft = np.quantile([line["ttft_s"] for line in ended], (0.5, 0.95))
    latency = np.quantile([line["e2e_s"] for line in ended], (0.5, 0.95))
    return Reported(
        answered=len(ended) // arms,
        seconds=seconds,
        ttft_p50=float(ttft[0]),
        ttft_p95=float(ttft[1]),
        latency_p50=float(latency[0]),
        latency_p95=float(latency[1]),
        goodput=good / arms / seconds,
    )


async def _round(
    folder: Path, capture: Capture, process: MirrorProcess, number: int, count: int
) -> tuple[Reported, Reported]:
    """What AIPerf and what the mirror said."""
    requests = folder / f"round-{number}.jsonl"
    requests.write_bytes(b"\n".join(bodies(count, number)) + b"\n")
    good, written = await _good(process), len(process.log)
    theirs = await profile(capture.customers, requests, count=count, rate=RATE, slo=SLO_BOTH)
    await process.settled()
    ours = measured(process.log[written:], await _good(process) - good, theirs.seconds)
    if not count == theirs.answered == ours.answered:
        raise BenchError(f"of {count} requests AIPerf got {theirs.answered} answers, the mirror {ours.answered} pairs")
    return theirs, ours


async def _good(process: MirrorProcess) -> int:
    return sum(arm.within_slo.requests for arm in (await counted(process)).arms.values())


@contextlib.asynccontextmanager
async def _standing(folder: Path) -> AsyncIterator[tuple[Capture, MirrorProcess]]:
    """Capture before a primary, copying everything to a mirror with two arms."""
    async with contextlib.AsyncExitStack() as stack:
        primary, *arms = [await stack.enter_async_context(_engine()) for _ in range(3)]
        process = await stack.enter_async_context(mirror(arms, log_level="DEBUG", slo=SLO_BOTH))
        capture = capture_on_free_ports(folder)
        capture.primary_port, capture.mirror_port = primary, process.data_port
        await stack.enter_async_context(captures(capture, MAX_BODY))
        await capture.follow(msgspec.structs.replace(directive(), run_uid=RUN_UID))
        yield capture, process


@contextlib.asynccontextmanager
async def _engine() -> AsyncIterator[int]:
    """A simulated engine; its port."""
    (port,) = free_ports(1)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "examples.engine.simulator",
        f"--port={port}",
        *SPEED,
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(20), httpx.AsyncClient(trust_env=False) as http:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await http.get(f"http://127.0.0.1:{port}/health")).status_code == 200:
                        break
                await asyncio.sleep(0.05)
        yield port
    finally:
        process.terminate()
        await process.wait()
