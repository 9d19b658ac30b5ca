"""A real replica between a test and scripted engines, all over sockets."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
from shadowrun_mirror.config import (
    SLO,
    Admission,
    Arm,
    CaptureRules,
    Indicator,
    MirrorConfig,
    Sampling,
    TrafficClass,
    encode,
)
from shadowrun_mirror.evidence import ClassEvidence, Evidence
from shadowrun_mirror.pipeline import Clocks
from shadowrun_mirror.replica import Replica

from tests.funnel import assert_adds_up
from tests.integration.mirror.engine import Engine, Script
from tests.ports import free_ports

TOKEN = "control-token-for-tests"
INDICATORS = (
    Indicator(criterion="ttft", metric="TTFT", baseline_limit_s=1.0, challenger_limit_s=1.1),
    Indicator(criterion="tpot", metric="TPOT", baseline_limit_s=1.0, challenger_limit_s=1.1),
    Indicator(criterion="e2e", metric="E2E", baseline_limit_s=1.0, challenger_limit_s=1.1),
    Indicator(criterion="slo", metric="WithinSLO"),
    Indicator(criterion="errors", metric="Failures"),
)


def configuration(ports: Iterable[int], **changes: Any) -> MirrorConfig:
    """Everything sampled, window 1, an expiry far away."""
    names = ("baseline", "candidate", "control")
    config = MirrorConfig(
        version=1,
        run="prefix-cache",
        run_uid="run-uid",
        window=1,
        copying=True,
        expiry=4_000_000_000.0,
        capture=CaptureRules(
            paths=("/v1/chat/completions",),
            max_body_bytes=64 * 1024,
            sampling=Sampling(unit="Request", threshold=0, seed=7),
        ),
        admission=Admission(max_in_flight=8, timeout_s=2.0),
        arms=tuple(Arm(name=name, host="127.0.0.1", port=port) for name, port in zip(names, ports, strict=False)),
        classes=(TrafficClass(name="long", min_prompt_tokens=1000),),
        slo=SLO(ttft_s=1.0, e2e_s=1.5),
        indicators=INDICATORS,
    )
    return msgspec.structs.replace(config, **changes)


class Rig:
    """A running replica, a client for copies and one for control."""

    def __init__(self, replica: Replica, engines: list[Engine]) -> None:
        self.replica = replica
        self.engines = engines
        self.http = httpx.AsyncClient(trust_env=False, timeout=10)
        self._ids = 0

    @property
    def config(self) -> MirrorConfig:
        return self.replica.live.config

    async def copy(
        self, body: Any = None, headers: dict[str, str] | None = None, stream: bool = True, **changes: Any
    ) -> httpx.Response:
        """Send one copy as capture would."""
        self._ids += 1
        marks = {
            "x-shadowrun-run": self.config.run_uid,
            "x-shadowrun-window": str(self.config.window),
            "x-request-id": f"request-{self._ids}",
            "content-type": "application/json",
        }
        if body is None:
            body = {"model": "live-model", "stream": stream, "messages": [{"role": "user", "content": "hello"}]}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        target = changes.get("path", "/v1/chat/completions") + changes.get("query", "")
        return await self.http.post(
            f"http://127.0.0.1:{self.replica.data_port}{target}",
            content=changes.get("content", content),
            headers=marks | (headers or {}),
        )

    async def control(self, method: str, path: str, token: str = TOKEN, content: bytes | None = None) -> httpx.Response:
        url = f"http://127.0.0.1:{self.replica.control_port}{path}"
        return await self.http.request(method, url, headers={"authorization": f"Bearer {token}"}, content=content)

    async def put(self, config: MirrorConfig) -> httpx.Response:
        return await self.control("PUT", "/config", content=encode(config))

    async def evidence(self) -> Evidence:
        """A snapshot by the front door; it must add up whenever it is taken."""
        response = await self.control("GET", "/evidence")
        assert response.status_code == 200
        evidence = Evidence.decode(response.content)
        assert_adds_up(evidence)
        return evidence

    async def settled(self) -> Evidence:
        """The evidence once nothing is in flight any more."""
        async with asyncio.timeout(10):
            while self.replica.pipeline.in_flight:
                await self.evidence()
                await asyncio.sleep(0.01)
        return await self.evidence()

    async def counted(self, window: int = 1, name: str = "default") -> ClassEvidence:
        return (await self.settled()).windows[window].classes[name]

    async def metrics(self) -> str:
        response = await self.control("GET", "/metrics", token="none needed")
        return response.text


@asynccontextmanager
async def rig(*scripts: Script, clocks: Clocks | None = None, data_port: int = 0, **changes: Any) -> AsyncIterator[Rig]:
    """A replica with one engine per script, in the order of the arms."""
    engines = [Engine(script) for script in scripts]
    for engine in engines:
        await engine.__aenter__()
    config = configuration([engine.port for engine in engines], **changes)
    replica = Replica(
        config, TOKEN, pod="mirror-0", pod_uid="pod-uid", epoch="epoch", rng=random.Random(1), clocks=clocks
    )
    await replica.start("127.0.0.1", data_port, 0)
    running = Rig(replica, engines)
    try:
        yield running
    finally:
        await running.http.aclose()
        await replica.stop()
        for engine in engines:
            await engine.__aexit__()


def closed_port() -> int:
    """A port nobody listens on."""
    (port,) = free_ports(1)
    return port
