"""A whole live path for tests of faults: customers, Envoy, a primary, the mirror's real process and two arms."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from shadowrun_mirror.config import Admission, MirrorConfig
from shadowrun_mirror.evidence import ClassEvidence, Evidence

from tests.integration.capture.crowd import Crowd, asking
from tests.integration.capture.harness import MAX_BODY, ONE, Capture, directive, running_capture, until
from tests.integration.mirror.engine import Engine, answers
from tests.integration.mirror.process import MirrorProcess
from tests.integration.mirror.rig import configuration
from tests.ports import free_ports

RUN_UID = "run-1"
LARGEST = 400_000
"""Bytes of a customer's largest body."""
TIMEOUT_S = 1.5
PATIENCE_S = 3.0
"""A stall lasts for ever, or as long as one of our own timeouts; a machine that is busy with this test does not."""


class Scene:
    """Everything runs and is copied; only `mirror` is started by the test."""

    def __init__(self, capture: Capture, mirror: MirrorProcess, config: MirrorConfig, crowd: Crowd) -> None:
        self.capture = capture
        self.mirror = mirror
        self.config = config
        self.crowd = crowd

    async def customers_ask(self, more: int) -> None:
        """Wait until customers have asked so much more."""
        wanted = self.crowd.sent + more

        async def asked() -> bool:
            return self.crowd.sent >= wanted

        await until(asked, 20.0)

    async def accounts(self, before: int = 0) -> ClassEvidence:
        """The mirror's numbers once customers have left and all is quiet, after checking the whole funnel.

        `before`: copies received by mirror processes which are no more.
        """
        await self.crowd.leave()
        await until(self.capture.is_quiet, 15.0)
        evidence = await self.mirror.settled()  # checks the mirror's own equations each time it looks
        counted, seen = total(evidence), (await self.capture.evidence()).windows[1]
        assert seen.sampled.requests == self.crowd.sent
        assert seen.oversized.requests == seen.plain.requests == 0
        assert counted.received.requests + before <= seen.sampled.requests
        return counted


def total(evidence: Evidence) -> ClassEvidence:
    """All classes of window 1 together."""
    together = ClassEvidence()
    for counted in evidence.windows[1].classes.values() if 1 in evidence.windows else ():
        together = together.merged(counted)
    return together


@contextlib.asynccontextmanager
async def live_scene(
    folder: Path, candidate_port: int | None = None, mirror_hosts: tuple[str, ...] = ONE
) -> AsyncIterator[Scene]:
    """Ends with what must hold whatever happened: customers had every answer, the right one, without waiting."""
    async with (
        running_capture(folder, mirror_hosts=mirror_hosts) as capture,
        Engine(answers(delay_s=0.01)) as baseline,
        Engine(answers(delay_s=0.01)) as candidate,
    ):
        (control_port,) = free_ports(1)
        mirror = MirrorProcess(folder, capture.mirror_port, control_port)
        config = _configuration([baseline.port, candidate_port or candidate.port])
        await capture.follow(directive())
        try:
            async with asking(capture, LARGEST) as crowd:
                yield Scene(capture, mirror, config, crowd)
            assert crowd.wrong == []
            assert crowd.answered == crowd.sent > 0
            assert crowd.longest_s < PATIENCE_S
        finally:
            await mirror.kill()


def _configuration(ports: list[int]) -> MirrorConfig:
    config = configuration(ports)
    return msgspec.structs.replace(
        config,
        run_uid=RUN_UID,
        admission=Admission(max_in_flight=16, timeout_s=TIMEOUT_S),
        capture=msgspec.structs.replace(config.capture, max_body_bytes=MAX_BODY),
    )
