"""Answers of real sockets compared: what is counted of them, and that nothing of what they say is kept or told."""

import asyncio
import json
import logging
from typing import Any

import pytest
from shadowrun_mirror.config import Comparison
from shadowrun_mirror.evidence import Matches
from shadowrun_mirror.reasons import Likeness

from tests.integration.mirror.engine import Got, Packer, Script, Wire, hangs, refuses
from tests.integration.mirror.rig import Rig, rig
from tests.integration.mirror.test_protocols import request
from tests.unit.mirror.spoken import EVENTS, WHOLE, Json, body, stream

pytestmark = pytest.mark.answers

PATHS = tuple(EVENTS)
EMBEDDINGS = "/v1/embeddings"
CANARY = "canary-4e19"
PLAIN = Comparison()


def tells(
    said: Json, made_up: str = "1", cuts: tuple[int, ...] = (2, 5), end: bytes = b"\n", coding: str = ""
) -> Script:
    """An engine of every API that always gives this answer, in these pieces where a stream is asked for."""

    async def script(got: Got, wire: Wire) -> None:
        streams = bool(got.json.get("stream"))
        whole = stream(EVENTS[got.path](said, cuts, made_up), end) if streams else body(WHOLE[got.path](said, made_up))
        packer = Packer(coding)
        named = [f"content-encoding: {coding}"] if coding else []
        kind = "text/event-stream" if streams else "application/json"
        await wire.head(kind, "transfer-encoding: chunked", *named)
        for place in range(0, len(whole), 97):
            await wire.chunk(packer.piece(whole[place : place + 97]))
        if left := packer.end():
            await wire.chunk(left)
        await wire.send(b"0\r\n\r\n")

    return script


SAID: Json = {"text": "forty two"}


async def compared(mirror: Rig, path: str, streams: bool) -> dict[str, Matches]:
    assert (await mirror.copy(request(path, stream=streams), path=path)).status_code == 202
    return (await mirror.counted()).matches


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("path", PATHS)
async def test_answers_of_every_api_match_however_they_come(path: str, streams: bool) -> None:
    others = tells(SAID, "2", (1, 3, 7), b"\r\n"), tells(SAID, "3", (), coding="gzip")
    async with rig(tells(SAID), *others, comparison=PLAIN) as mirror:
        found = await compared(mirror, path, streams)
        window = (await mirror.settled()).windows[1]
    assert found == dict.fromkeys(("candidate", "control"), Matches(pairs={"Match": 1}))
    assert [list(series.sums.values()) for series in window.differing.values()] == [[(1, 0)], [(1, 0)]]


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("path", PATHS)
async def test_an_answer_that_differs_is_told_by_its_kind(path: str, streams: bool) -> None:
    async with rig(tells(SAID), tells({"text": "forty-two"}), comparison=PLAIN) as mirror:
        found = await compared(mirror, path, streams)
        text = await mirror.metrics()
    assert found == {"candidate": Matches(pairs={"Value": 1})}
    assert 'compared_answers_total{arm="candidate",result="Value"} 1.0' in text
    assert 'compared_answers_total{arm="candidate",result="Match"} 0.0' in text


async def test_vectors_are_compared() -> None:
    ours, theirs = {"vectors": [[0.5, 1.0]]}, {"vectors": [[0.5, 2.0]]}
    async with rig(tells(ours), tells(theirs), tells(ours, "2"), comparison=PLAIN) as mirror:
        found = await compared(mirror, EMBEDDINGS, streams=False)
    assert found == {"candidate": Matches(pairs={"Value": 1}), "control": Matches(pairs={"Match": 1})}


@pytest.mark.parametrize(
    ("baseline", "candidate", "likeness"),
    [
        (tells(SAID), refuses("500 Oops"), Likeness.FAILED),
        (refuses("500 Oops"), tells(SAID), Likeness.FAILED),
        (refuses("500 Oops"), refuses("400 No"), Likeness.BOTH_FAILED),
        (tells(SAID), hangs, Likeness.FAILED),
    ],
)
async def test_who_fails_alone_matches_nobody(baseline: Script, candidate: Script, likeness: Likeness) -> None:
    async with rig(baseline, candidate, comparison=PLAIN) as mirror:
        found = await compared(mirror, "/v1/chat/completions", streams=True)
    assert found == {"candidate": Matches(pairs={likeness.value: 1})}


async def test_nothing_is_compared_where_nobody_asks_for_it_and_none_of_the_warm_up() -> None:
    async with rig(tells(SAID), tells(SAID)) as mirror:
        assert await compared(mirror, "/v1/chat/completions", streams=True) == {}
    async with rig(tells(SAID), tells(SAID), comparison=PLAIN, window=0) as mirror:
        await mirror.copy()
        assert (await mirror.counted(window=0)).matches == {}


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("path", PATHS)
async def test_nothing_that_was_said_is_in_evidence_metrics_or_log(
    path: str, streams: bool, caplog: pytest.LogCaptureFixture
) -> None:
    said = [
        {"text": json.dumps({CANARY: [CANARY, at]}), "thought": f"{CANARY} {at}", "arguments": f'{{"{CANARY}": {at}}}'}
        for at in (1, 2)
    ]
    with caplog.at_level(logging.DEBUG):
        async with rig(tells(said[0]), tells(said[1]), tells(said[0]), comparison=PLAIN) as mirror:
            found = await compared(mirror, path, streams)
            told = (await mirror.control("GET", "/evidence")).text + await mirror.metrics()
            await asyncio.sleep(0)
            held = _texts(mirror)
    assert found == {"candidate": Matches(pairs={"Value": 1}), "control": Matches(pairs={"Match": 1})}
    assert CANARY not in told
    assert CANARY not in caplog.text + "".join(str(vars(record)) for record in caplog.records)
    assert held == []


def _texts(mirror: Rig) -> list[Any]:
    """Objects of ours, anywhere in the process, that hold an answer once no pair is in flight."""
    import gc

    from shadowrun_mirror.compare.forms import Assembly
    from shadowrun_mirror.compare.reader import ComparedReader

    assert not mirror.replica.pipeline.in_flight
    gc.collect()
    return [thing for thing in gc.get_objects() if isinstance(thing, (Assembly, ComparedReader))]
