"""Copies of any proxy: no marks of ours, any host, any framing; and pairs that say how busy the process was."""

import asyncio
import time
from typing import Any

import msgspec
import pytest
from shadowrun_mirror.config import Admission
from shadowrun_mirror.evidence import Amount
from shadowrun_mirror.reasons import DropReason, ExcludeReason, FailureReason, FlagReason

from tests.integration.mirror.engine import answers
from tests.integration.mirror.rig import Rig, rig

pytestmark = pytest.mark.mirror

BODY = b'{"model":"m","messages":[]}'


async def foreign(mirror: Rig, headers: dict[str, str] | None = None, chunked: bool = False, **changes: Any) -> int:
    """Send one copy as some proxy would; its status."""

    async def pieces() -> Any:
        for start in range(0, len(BODY), 5):
            yield BODY[start : start + 5]

    response = await mirror.http.post(
        f"http://127.0.0.1:{mirror.replica.data_port}{changes.get('path', '/v1/chat/completions')}",
        content=pieces() if chunked else changes.get("content", BODY),
        headers={"host": "chat.example-shadow", **(headers or {})},
    )
    return response.status_code


async def test_copies_without_marks_become_pairs_of_the_window_in_force() -> None:
    async with rig(answers(), answers(), source="External", window=3) as mirror:
        assert await foreign(mirror) == 202
        assert await foreign(mirror, chunked=True) == 202
        assert await foreign(mirror, {"x-request-id": "one", "x-shadowrun-run": "another"}) == 202
        counted = await mirror.counted(window=3)
        await mirror.put(msgspec.structs.replace(mirror.config, version=2, window=4))
        assert await foreign(mirror) == 202
        later = await mirror.counted(window=4)
        got = mirror.engines[0].got
    assert (counted.admitted.requests, later.admitted.requests) == (3, 1)
    assert counted.arms["candidate"].completed.requests == 3
    assert [each.body for each in got] == [got[0].body] * 4
    assert got[0].values("baggage") == ["shadow=true,shadow.run=prefix-cache"]


async def test_copies_without_an_id_are_no_duplicates_and_those_with_one_are() -> None:
    async with rig(answers(), answers(), source="External") as mirror:
        for headers in ({}, {}, {"x-request-id": "same"}, {"x-request-id": "same"}):
            assert await foreign(mirror, headers) == 202
            await mirror.settled()
        counted = await mirror.counted()
    assert counted.admitted.requests == 3
    assert counted.dropped["Duplicate"].requests == 1


async def test_loops_and_other_paths_are_in_no_funnel_and_encoded_bodies_cannot_be_read() -> None:
    async with rig(answers(), answers(), source="External") as mirror:
        assert await foreign(mirror, {"baggage": "a=b,shadow=true,shadow.run=prefix-cache"}) == 508
        assert await foreign(mirror, path="/v1/models") == 404
        assert await foreign(mirror, {"content-encoding": "gzip"}) == 202
        counted = await mirror.counted()
        text = await mirror.metrics()
        assert mirror.engines[0].got == []
    assert counted.received.requests == counted.dropped["Unparsable"].requests == 1
    for reason in ("loop", "path"):
        assert f'shadowrun_mirror_refused_total{{reason="{reason}"}} 1.0' in text


@pytest.mark.parametrize(("delay_s", "flagged"), [(1.0, 1), (5.0, 0)])
async def test_a_pair_is_flagged_if_its_answer_came_while_the_event_loop_stood_still(
    delay_s: float, flagged: int
) -> None:
    """Not if it only lived through that; and the lag is in the evidence."""
    patient = Admission(max_in_flight=8, timeout_s=20.0)
    async with rig(answers(delay_s=delay_s), answers(delay_s=delay_s), lag_limit_s=1.0, admission=patient) as mirror:
        await mirror.copy()
        await mirror.counted()
        await mirror.copy()
        await asyncio.sleep(0.5)
        time.sleep(1.5)  # noqa: ASYNC251 - the stall
        counted = await mirror.counted()
        evidence = await mirror.evidence()
        text = await mirror.metrics()
    assert counted.flagged.get("Lagged", Amount()).requests == flagged
    assert evidence.lag.quantile(1.0) >= 1.0
    assert f'shadowrun_mirror_flagged_pairs_total{{flag="Lagged"}} {flagged}.0' in text


async def test_every_word_there_is_a_counter_for_is_there_from_the_start() -> None:
    async with rig(answers(), answers()) as mirror:
        text = await mirror.metrics()
    operators = {DropReason.LOST_IN_TRANSIT, DropReason.MIRROR_LOST}  # computed elsewhere
    results = [line for line in text.splitlines() if line.startswith("shadowrun_mirror_requests_total")]
    assert len(results) == len(DropReason) - len(operators) + len(ExcludeReason) + 3
    for flag in FlagReason:
        assert f'shadowrun_mirror_flagged_pairs_total{{flag="{flag}"}} 0.0' in text
    for failure in FailureReason:
        assert f'shadowrun_mirror_answers_total{{arm="candidate",model="",outcome="{failure}"}} 0.0' in text
    for outcome in ("answered", "refused", "failed", "cut"):
        assert f'shadowrun_mirror_primary_outcomes_total{{outcome="{outcome}"}} 0.0' in text
    for gauge in ("copies_queued", "held_bytes", "cpu_share", "collector_seconds"):
        assert f"shadowrun_mirror_{gauge} " in text


async def test_a_proxy_that_copies_while_nothing_is_observed_is_in_no_funnel() -> None:
    async with rig(answers(), answers(), source="External", copying=False) as mirror:
        assert await foreign(mirror) == 202
        before = await mirror.evidence()
        await mirror.put(msgspec.structs.replace(mirror.config, version=2, copying=True))
        assert await foreign(mirror) == 202
        counted = await mirror.counted()
        text = await mirror.metrics()
    assert before.windows == {}
    assert counted.received.requests == counted.admitted.requests == 1
    assert 'shadowrun_mirror_refused_total{reason="not_observing"} 1.0' in text
