"""Whatever an arm does, customers notice nothing, the other arm's results stay whole, and every copy is counted."""

from pathlib import Path

import pytest
from shadowrun_mirror.evidence import Amount
from shadowrun_mirror.reasons import FailureReason as Failed

from tests.integration.capture.faults import ARMS
from tests.integration.capture.live_scene import live_scene
from tests.ports import free_ports

pytestmark = pytest.mark.path

EXPECTED: dict[str, set[Failed]] = {
    "never-reads": {Failed.TIMEOUT},
    "reads-slowly": {Failed.TIMEOUT, Failed.EMPTY, Failed.MALFORMED, Failed.HTTP_4XX},
    "never-answers": {Failed.TIMEOUT},
    "down": {Failed.CONNECT},
    "blackholed": {Failed.TIMEOUT},
    "answers-60-MB": {Failed.TOO_LONG, Failed.MALFORMED, Failed.TIMEOUT},  # a busy machine needs seconds for 60 MB
    "hangs-up": {Failed.STREAM_CUT},
    "refuses-before-reading": {Failed.HTTP_5XX, Failed.STREAM_CUT},
    "stalls-in-the-middle": {Failed.TIMEOUT},
    "streams-without-end": {Failed.TIMEOUT, Failed.TOO_LONG},
}


def test_every_fault_of_an_arm_has_its_reasons() -> None:
    assert EXPECTED.keys() == ARMS.keys()


@pytest.mark.parametrize("name", ARMS)
async def test_customers_notice_nothing_of_an_arm_that_misbehaves(name: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    async with live_scene(tmp_path, candidate_port=port) as scene, ARMS[name](port):
        await scene.mirror.start(scene.config)
        await scene.customers_ask(90)
        counted = await scene.accounts()
    baseline, candidate = counted.arms["baseline"], counted.arms["candidate"]
    assert counted.admitted.requests >= 16
    assert counted.admitted == baseline.completed  # the fault of one arm is no fault of the other
    assert not baseline.failed
    assert candidate.completed == Amount()
    unexpected = {Failed(reason) for reason in candidate.failed} - EXPECTED[name] - {Failed.BREAKER_OPEN}
    assert not unexpected
