"""Copies that become no pair, over real sockets: each has a reason, and the funnel adds up."""

import asyncio
import contextlib
import time

import msgspec
import pytest
from shadowrun_mirror.config import SLO, Admission
from shadowrun_mirror.copied import Copy
from shadowrun_mirror.directive import decode_directive
from shadowrun_mirror.evidence import Amount
from shadowrun_mirror.lag import LoopLag
from shadowrun_mirror.pipeline import Clocks
from shadowrun_mirror.receive import Door
from shadowrun_mirror.replica import Replica
from shadowrun_operator.cluster import replicas

from tests.integration.mirror.engine import answers, hangs, streams
from tests.integration.mirror.rig import TOKEN, Rig, configuration, rig

pytestmark = pytest.mark.mirror


async def raw_exchange(mirror: Rig, data: bytes, wait_s: float = 1.0) -> bytes:
    """Write bytes to the data port, return what comes back until it closes or nothing comes for a while."""
    reader, writer = await asyncio.open_connection("127.0.0.1", mirror.replica.data_port)
    writer.write(data)
    received = b""
    try:
        while piece := await asyncio.wait_for(reader.read(65536), wait_s):
            received += piece
    except TimeoutError:
        pass
    writer.close()
    await writer.wait_closed()
    return received


def head(mirror: Rig, *lines: str, window: int = 1) -> bytes:
    marks = (f"x-shadowrun-run: {mirror.config.run_uid}", f"x-shadowrun-window: {window}", "x-request-id: raw")
    return "\r\n".join(["POST /v1/chat/completions HTTP/1.1", "host: anything", *marks, *lines, "", ""]).encode()


async def test_over_the_cap_copies_are_shed_at_once_for_all_arms() -> None:
    async with rig(hangs, hangs, admission=Admission(max_in_flight=2, timeout_s=0.5)) as mirror:
        assert [(await mirror.copy()).status_code for _ in range(5)] == [202, 202, 429, 429, 429]
        counted = await mirror.counted()
        await mirror.copy()  # the slots are free again
        assert mirror.replica.pipeline.in_flight == 1
        await mirror.settled()
        assert [len(engine.got) for engine in mirror.engines] == [3, 3]
    assert counted.admitted.requests == 2
    assert counted.dropped["Shed"].requests == 3
    assert counted.received.requests == 5


async def test_a_body_over_the_limit_is_refused_and_counted_with_its_size() -> None:
    async with rig(answers(), answers()) as mirror:
        response = await mirror.copy(b"x" * 70_000)
        assert response.status_code == 413
        assert (await mirror.copy()).status_code == 202  # and the door is still open
        evidence = await mirror.settled()
        text = await mirror.metrics()
    # 70,000 bytes are 17,500 tokens by the estimate, so what was lost is known to be a long request.
    assert evidence.windows[1].classes["long"].dropped == {"TooLarge": Amount(requests=1, bytes=70_000)}
    assert 'shadowrun_mirror_requests_total{result="skipped_size"} 1.0' in text


async def test_a_declared_length_over_the_limit_is_refused_before_the_body_is_read() -> None:
    async with rig(answers(), answers()) as mirror:
        answer = await raw_exchange(mirror, head(mirror, "content-length: 900000"), wait_s=0.2)
        evidence = await mirror.settled()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert evidence.windows[1].classes["long"].dropped["TooLarge"].bytes == 900_000


async def test_a_chunked_body_over_the_limit_is_counted_once() -> None:
    async with rig(answers(), answers()) as mirror:
        body = (b"4000\r\n" + b"x" * 0x4000 + b"\r\n") * 8 + b"0\r\n\r\n"
        answer = await raw_exchange(mirror, head(mirror, "transfer-encoding: chunked") + body, wait_s=0.3)
        evidence = await mirror.settled()
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert evidence.windows[1].classes["long"].dropped["TooLarge"].requests == 1


async def test_a_chunked_body_in_pieces_is_one_copy() -> None:
    async with rig(answers(), answers()) as mirror:
        body = b'{"model":"m","messages":[]}'
        chunks = b"".join(b"1\r\n" + bytes([byte]) + b"\r\n" for byte in body) + b"0\r\n\r\n"
        answer = await raw_exchange(mirror, head(mirror, "transfer-encoding: chunked") + chunks, wait_s=0.3)
        counted = await mirror.counted()
        got = mirror.engines[0].got[0]
    assert answer.startswith(b"HTTP/1.1 202 ")
    assert counted.admitted == Amount(requests=1, bytes=len(body))
    assert got.body == body


async def test_several_copies_on_one_connection_are_answered_in_order() -> None:
    async with rig(answers(), answers()) as mirror:
        body = b'{"model":"m"}'
        one = head(mirror, f"content-length: {len(body)}") + body
        other = one.replace(b"x-request-id: raw", b"x-request-id: two")
        wrong = one.replace(b"run-uid", b"another")
        answer = await raw_exchange(mirror, one + wrong + other, wait_s=0.3)
        counted = await mirror.counted()
    assert [line.split(b" ")[1] for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1")] == [
        b"202",
        b"403",
        b"202",
    ]
    assert counted.admitted.requests == 2


async def test_a_body_that_stops_half_way_is_never_dispatched() -> None:
    async with rig(answers(), answers()) as mirror:
        _, writer = await asyncio.open_connection("127.0.0.1", mirror.replica.data_port)
        writer.write(head(mirror, "content-length: 100") + b'{"model":"m"}')
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.05)
        evidence = await mirror.settled()
        text = await mirror.metrics()
        assert mirror.engines[0].got == []
    assert evidence.windows == {}
    assert 'shadowrun_mirror_refused_total{reason="incomplete"} 1.0' in text


async def test_a_body_that_never_ends_loses_its_connection() -> None:
    async with rig(answers(), answers()) as mirror:
        reader, writer = await asyncio.open_connection("127.0.0.1", mirror.replica.data_port)
        writer.write(head(mirror, "content-length: 100") + b"{")
        await asyncio.sleep(0.05)
        mirror.replica.door.drop_late(time.monotonic() - 30)
        assert mirror.replica.door.connections
        mirror.replica.door.drop_late(time.monotonic())
        with contextlib.suppress(ConnectionResetError):  # a reset or a plain end, depending on what was unread
            assert await reader.read(10) == b""
        writer.close()
        await asyncio.sleep(0.05)
        assert not mirror.replica.door.connections


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b'{"model": 1} trailing', b"[" * 60_000]
)
async def test_a_body_that_is_no_json_object_is_unparsable(body: bytes) -> None:
    async with rig(answers(), answers()) as mirror:
        assert (await mirror.copy(body)).status_code == 202
        evidence = await mirror.settled()
        assert mirror.engines[0].got == []
    (counted,) = evidence.windows[1].classes.values()
    assert counted.dropped == {"Unparsable": Amount(requests=1, bytes=len(body))}


async def test_a_request_id_seen_before_is_a_duplicate() -> None:
    async with rig(answers(), answers()) as mirror:
        for _ in range(3):
            await mirror.copy(headers={"x-request-id": "same"})
            await mirror.settled()
        counted = await mirror.counted()
        assert len(mirror.engines[0].got) == 1
    assert counted.dropped["Duplicate"].requests == 2


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-shadowrun-run": "another"}, 403),
        ({"x-shadowrun-run": ""}, 403),
        ({"x-shadowrun-window": ""}, 400),
        ({"x-shadowrun-window": "one"}, 400),
        ({"x-shadowrun-window": "-1"}, 400),
        ({"x-shadowrun-window": "5000"}, 400),
    ],
)
async def test_what_is_no_copy_of_this_run_is_refused_and_in_no_funnel(headers: dict[str, str], status: int) -> None:
    async with rig(answers(), answers()) as mirror:
        assert (await mirror.copy(headers=headers)).status_code == status
        evidence = await mirror.settled()
        assert mirror.engines[0].got == []
    assert evidence.windows == {}


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n", b"405"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabc", b"400"),
        (b"POST / HTTP/1.1\r\nx: " + b"y" * 70_000, b"431"),
        (b"POST http://x/ HTTP/1.1\r\nhost: x\r\nx-shadowrun-run: run-uid\r\nx-shadowrun-window: 1\r\n\r\n", b"400"),
    ],
)
async def test_strange_requests_get_a_status_and_the_door_stays_open(data: bytes, status: bytes) -> None:
    async with rig(answers(), answers()) as mirror:
        answer = await raw_exchange(mirror, data, wait_s=0.3)
        assert answer.split(b" ")[1] == status
        assert (await mirror.copy()).status_code == 202
        assert (await mirror.counted()).admitted.requests == 1


async def test_a_client_that_waits_for_continue_gets_it() -> None:
    async with rig(answers(), answers()) as mirror:
        reader, writer = await asyncio.open_connection("127.0.0.1", mirror.replica.data_port)
        writer.write(head(mirror, "content-length: 13", "expect: 100-continue"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(b'{"model":"m"}')
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 202 ")
        writer.close()
        await mirror.settled()


async def test_a_copy_of_a_window_not_yet_known_is_dropped_until_the_configuration_arrives() -> None:
    async with rig(answers(), answers()) as mirror:
        await mirror.copy(headers={"x-shadowrun-window": "2"})
        await mirror.put(msgspec.structs.replace(mirror.config, version=2, window=2))
        await mirror.copy(headers={"x-shadowrun-window": "2"})
        await mirror.copy(headers={"x-shadowrun-window": "1"})  # late, but known
        evidence = await mirror.settled()
    behind = evidence.windows[2].classes["default"]
    assert behind.dropped["ConfigBehind"].requests == 1
    assert behind.admitted.requests == 1
    assert evidence.windows[1].classes["default"].admitted.requests == 1


async def test_the_warm_up_is_measured_but_counts_no_indicators() -> None:
    async with rig(streams(), streams(), window=0) as mirror:
        await mirror.copy()
        evidence = await mirror.settled()
    window = evidence.windows[0]
    assert window.classes["default"].arms["baseline"].ttft.count == 1
    assert window.pairs == {}


async def test_a_late_copy_is_judged_by_the_thresholds_of_its_own_window() -> None:
    config = configuration([1, 2])
    strict = tuple(msgspec.structs.replace(i, challenger_limit_s=0.0) for i in config.indicators[:1])
    async with rig(streams(), streams()) as mirror:
        await mirror.put(msgspec.structs.replace(mirror.config, version=2, window=2, indicators=strict))
        await mirror.copy(headers={"x-shadowrun-window": "1"})
        await mirror.copy(headers={"x-shadowrun-window": "2"})
        evidence = await mirror.settled()
    sums = {
        number: {name: next(iter(series.sums.values())) for name, series in window.pairs["candidate"].items()}
        for number, window in evidence.windows.items()
    }
    assert sums[1]["ttft"] == (1, 0)
    assert sums[2] == {"ttft": (1, -1)}


async def test_a_late_copy_is_sorted_and_judged_by_the_rules_of_its_own_window() -> None:
    """Every rule that a later window may have otherwise: classes, SLOs, blocks."""
    never = SLO(ttft_s=0.0)
    async with rig(streams(), streams()) as mirror:
        await mirror.put(
            msgspec.structs.replace(
                mirror.config, version=2, window=2, classes=(), slo=never, class_slos={"long": never}, block_s=600
            )
        )
        long = {"model": "m", "stream": True, "prompt": "x" * 8000}
        for window in ("1", "2"):
            await mirror.copy(long, headers={"x-shadowrun-window": window})
        evidence = await mirror.settled()
    (first, judged), (second, strictly) = (next(iter(evidence.windows[number].classes.items())) for number in (1, 2))
    assert (first, second) == ("long", "default")
    assert judged.arms["candidate"].within_slo.requests == 1
    assert strictly.arms["candidate"].within_slo.requests == 0
    blocks = [next(iter(evidence.windows[number].pairs["candidate"]["errors"].sums)) for number in (1, 2)]
    assert blocks[0] // 600 == blocks[1]


async def test_while_copying_is_off_copies_are_not_wanted_and_those_in_flight_finish() -> None:
    async with rig(streams(delay_s=0.2), streams(delay_s=0.2)) as mirror:
        await mirror.copy()
        await mirror.put(msgspec.structs.replace(mirror.config, version=2, copying=False))
        await mirror.copy()
        assert not (await mirror.evidence()).copying
        counted = await mirror.counted()
    assert counted.excluded["NotCopying"].requests == 1
    assert counted.dropped == {}
    assert counted.arms["candidate"].completed.requests == 1


async def test_copies_outside_the_sample_and_of_other_models_are_excluded() -> None:
    async with rig(answers(), answers(), models=("live-model",)) as mirror:
        await mirror.copy()
        await mirror.copy({"model": "other-model"})
        await mirror.copy({"model": ["not", "a", "name"]})
        capture = msgspec.structs.replace(
            mirror.config.capture, sampling=msgspec.structs.replace(mirror.config.capture.sampling, threshold=1_000_000)
        )
        await mirror.put(msgspec.structs.replace(mirror.config, version=2, capture=capture))
        await mirror.copy()
        counted = await mirror.counted()
    assert {reason: amount.requests for reason, amount in counted.excluded.items()} == {
        "ModelNotListed": 2,
        "NotSelected": 1,
    }
    assert counted.admitted.requests == 1


@pytest.mark.parametrize("moved", ["wall", "mono"])
async def test_it_expires_by_itself_by_whichever_clock_comes_first(moved: str) -> None:
    """One clock stays where it is, the other passes the expiry."""
    ahead = {"wall": 0.0, "mono": 0.0}
    clocks = Clocks(wall=lambda: time.time() + ahead["wall"], mono=lambda: time.monotonic() + ahead["mono"])
    async with rig(answers(), answers(), clocks=clocks, expiry=time.time() + 1000) as mirror:
        await mirror.copy()
        await mirror.settled()
        assert decode_directive((await mirror.control("GET", "/directive")).content).copying
        ahead[moved] = 1000.0
        assert not decode_directive((await mirror.control("GET", "/directive")).content).copying
        assert (await mirror.copy()).status_code == 202
        ahead[moved] = 0.0
        assert (await mirror.copy()).status_code == 202  # a clock set back brings nothing back
        evidence = await mirror.settled()
        assert len(mirror.engines[0].got) == 1
    assert evidence.expired
    assert not evidence.copying
    assert evidence.windows[1].classes["default"].dropped["Expired"].requests == 2


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
async def test_a_mirror_whose_clock_is_off_serves_its_evidence_and_the_reader_finds_out_by_how_much(
    monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    clocks = Clocks(wall=lambda: time.time() + ahead)
    async with rig(answers(), answers(), clocks=clocks, expiry=time.time() + 7200) as mirror:
        await mirror.copy()
        await mirror.settled()
        monkeypatch.setattr(replicas, "CONTROL_PORT", mirror.replica.control_port)
        reader = replicas.Replicas()
        reading = await reader.read(["127.0.0.1"], [], TOKEN)
        await reader.close()
    (evidence,) = reading.mirrors
    assert evidence.windows[1].classes["default"].admitted.requests == 1
    assert reading.clocks == ({evidence.source.pod_uid: pytest.approx(ahead, abs=30)} if ahead else {})


@pytest.mark.parametrize("what", ["_dispatcher.requests", "_counts.admitted"])
async def test_a_fault_behind_the_door_neither_closes_it_nor_keeps_a_slot(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def breaks(*_: object) -> None:
        raise RuntimeError("the prompt was: hello")

    async with rig(answers(), answers(), admission=Admission(max_in_flight=1, timeout_s=2.0)) as mirror:
        part, _, name = what.partition(".")
        with monkeypatch.context() as broken:
            broken.setattr(getattr(mirror.replica.pipeline, part), name, breaks)
            assert (await mirror.copy()).status_code == 202
        assert mirror.replica.pipeline.in_flight == 0
        assert (await mirror.copy()).status_code == 202
        counted = await mirror.counted()
        assert mirror.engines[0].got
        text = await mirror.metrics()
    assert counted.received.requests == counted.admitted.requests == 1
    assert mirror.replica.pipeline.in_flight == 0
    assert 'shadowrun_mirror_refused_total{reason="internal"} 1.0' in text


async def test_a_pair_that_breaks_gives_its_slot_back_and_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(*_: object) -> None:
        raise RuntimeError("the prompt was: hello")

    async with rig(answers(), answers()) as mirror:
        monkeypatch.setattr(mirror.replica.pipeline._dispatcher, "send", breaks)
        await mirror.copy()
        await mirror.settled()
    assert died_tasks(caplog) == [("pair", "RuntimeError")]
    assert "hello" not in caplog.text


async def test_a_pair_cut_off_before_its_first_step_gives_its_slot_back() -> None:
    async with rig(hangs, hangs) as mirror:
        pipeline = mirror.replica.pipeline
        copy = Copy(
            target=b"/v1/completions",
            headers=((b"x-request-id", b"1"),),
            body=b'{"model":"m"}',
            size=13,
            window=1,
            complete_at=time.monotonic(),
        )
        pipeline.take(copy)
        assert pipeline.in_flight == 1
        for pair in pipeline._pairs:
            pair.cancel()
        await mirror.settled()


async def test_a_background_watch_that_dies_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(_: object) -> None:
        raise RuntimeError("the prompt was: hello")

    for owner, name in ((Door, "sweep"), (LoopLag, "watch"), (Replica, "_watch_expiry")):
        monkeypatch.setattr(owner, name, breaks)
    async with rig(answers(), answers()) as mirror:
        assert (await mirror.copy()).status_code == 202
        await mirror.settled()
    assert sorted(died_tasks(caplog)) == [(name, "RuntimeError") for name in ("expiry", "lag", "sweep")]
    assert "hello" not in caplog.text


def died_tasks(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    lines = [record.fields for record in caplog.records if hasattr(record, "fields")]
    assert all("where" in line for line in lines if "task" in line)
    return [(line["task"], line["error"]) for line in lines if "task" in line]
