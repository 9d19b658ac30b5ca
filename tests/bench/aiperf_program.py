"""AIPerf, an independent load generator for LLM servers, in an environment of its own: made when first asked for.

Not a dependency: it is a gigabyte with all it needs. Only the first run wants the network.
"""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
from shadowrun_mirror.config import SLO

from tests.bench.scene import BenchError
from tests.cluster.commands import last_lines, run
from tests.cluster.paths import REPOSITORY

VERSION = "0.13.0"
VOCABULARY = "litellm==1.110.2"  # has the tokenizer's files, which AIPerf loads in any case and would download
_FOLDER = REPOSITORY / ".bench" / f"aiperf-{VERSION}"
_PATIENCE_S = 120.0  # beyond the load itself: it starts a dozen processes


class _Percentiles(msgspec.Struct):
    p50: float
    p95: float


class _Value(msgspec.Struct):
    avg: float


class _Export(msgspec.Struct):
    time_to_first_token: _Percentiles  # ms, as the next
    request_latency: _Percentiles
    request_count: _Value
    benchmark_duration: _Value
    goodput: _Value


@dataclass(frozen=True)
class Reported:
    """What AIPerf says of a run. Times in seconds, goodput in requests within the SLO per second."""

    answered: int
    seconds: float
    ttft_p50: float
    ttft_p95: float
    latency_p50: float
    latency_p95: float
    goodput: float

    @classmethod
    def read(cls, exported: bytes) -> Self:
        """From its JSON export."""
        export = msgspec.json.decode(exported, type=_Export)
        return cls(
            answered=int(export.request_count.avg),
            seconds=export.benchmark_duration.avg,
            ttft_p50=export.time_to_first_token.p50 / 1000,
            ttft_p95=export.time_to_first_token.p95 / 1000,
            latency_p50=export.request_latency.p50 / 1000,
            latency_p95=export.request_latency.p95 / 1000,
            goodput=export.goodput.avg,
        )


def environment() -> Path:
    """The folder of its virtual environment, complete."""
    ready = _FOLDER / ".ready"
    if not ready.exists():
        print(f"installing AIPerf {VERSION} in {_FOLDER.relative_to(REPOSITORY)}: 1.4 GB, minutes ...", flush=True)
        run([sys.executable, "-m", "venv", "--clear", _FOLDER])
        for what in ([f"aiperf=={VERSION}"], ["--no-deps", VOCABULARY]):
            run([_FOLDER / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *what])
        ready.touch()
    return _FOLDER


async def profile(port: int, requests: Path, *, count: int, rate: float, slo: SLO) -> Reported:
    """Send so many of the bodies in `requests`, one a line, at random moments; what AIPerf measured meanwhile."""
    home = environment()
    out = requests.with_suffix(".out")
    assert slo.ttft_s is not None
    assert slo.e2e_s is not None
    goodput = f"time_to_first_token:{slo.ttft_s * 1000} request_latency:{slo.e2e_s * 1000}"
    words = {
        "model": "chat",
        "endpoint-type": "chat",
        "url": f"http://127.0.0.1:{port}",
        "input-file": requests,
        "custom-dataset-type": "raw_payload",
        "request-count": count,
        "request-rate": rate,
        "arrival-pattern": "poisson",
        "random-seed": 1,
        "goodput": goodput,
        "tokenizer": "builtin",
        "workers-max": 1,
        "ui": "none",
        "artifact-dir": out,
    }
    flags = ["--streaming", "--use-server-token-count", "--no-gpu-telemetry", "--no-server-metrics"]
    (vocabulary,) = home.glob("lib/python*/site-packages/litellm/litellm_core_utils/tokenizers")
    command: list[str | Path] = [
        "env",
        f"TIKTOKEN_CACHE_DIR={vocabulary}",
        "HF_HUB_OFFLINE=1",
        home / "bin" / "aiperf",
        "profile",
        *flags,
        *(f"--{name}={value}" for name, value in words.items()),
    ]
    await finished(command, count / rate + _PATIENCE_S)
    return Reported.read((out / "profile_export_aiperf.json").read_bytes())


async def finished(command: Sequence[str | Path], seconds: float) -> None:
    """Run it until it ends well. Raises `BenchError` with the end of what it said; nothing of it goes on after that."""
    with tempfile.TemporaryFile() as said:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=said, stderr=asyncio.subprocess.STDOUT, start_new_session=True
        )
        how = f"did not end within {seconds:g} s"
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    how = f"ended with {await process.wait()}"
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)  # asked to end, its processes may wait for each other for ever
                await process.wait()
        if process.returncode:
            said.seek(0)
            raise BenchError(f"AIPerf {how}:\n{last_lines(said.read().decode(errors='replace'))}")
