"""Which copies become pairs, over real sockets: every unit, every kind of key, conversations, the queue, the door."""

import asyncio
import time
from typing import Any

import msgspec
import pytest
import xxhash
from shadowrun_mirror.config import CREDENTIAL_HEADERS, MODULO, Admission, CaptureRules, Sampling, TrafficClass
from shadowrun_mirror.evidence import Amount, ClassEvidence, Evidence, Lineage
from shadowrun_mirror.pipeline import Clocks

from tests.integration.mirror.engine import answers, hangs, streams
from tests.integration.mirror.rig import Rig, configuration, rig

pytestmark = pytest.mark.mirror

HALF = MODULO // 2
SEED = 7


def by(unit: str, threshold: int = HALF, **changes: Any) -> CaptureRules:
    sampling = Sampling(unit=unit, threshold=threshold, seed=SEED, **changes)  # type: ignore[arg-type]
    return msgspec.structs.replace(configuration([]).capture, sampling=sampling)


def hashed_in(key: str, threshold: int = HALF) -> bool:
    return xxhash.xxh64_intdigest(key.encode(), seed=SEED) % MODULO >= threshold


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    """A body with these messages, the user's first."""
    messages = [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(texts)]
    return {"model": "m", "stream": False, "messages": messages} | more


def lost(counted: ClassEvidence) -> dict[str, int]:
    return {reason: amount.requests for reason, amount in (counted.excluded | counted.dropped).items()}


async def texts_that_arrived(mirror: Rig) -> list[str]:
    """The last message of each request the baseline got; the others got the same."""
    await mirror.settled()
    arrived = [[got.json["messages"][-1]["content"] for got in engine.got] for engine in mirror.engines]
    assert all(sorted(texts) == sorted(arrived[0]) for texts in arrived)
    return arrived[0]


KEYS = [f"key-{n}" for n in range(24)]
WANTED = {key for key in KEYS if hashed_in(key)}
assert 0 < len(WANTED) < len(KEYS)


@pytest.mark.parametrize(
    ("rules", "header", "field"),
    [
        (by("Request"), "x-request-id", ""),
        (by("Key", key_headers=("x-customer",)), "x-customer", ""),
        (by("Key", key_headers=("x-customer",), on_missing_key="Skip"), "x-customer", ""),
        (by("Conversation", key_headers=("x-conversation-id",)), "x-conversation-id", ""),
        (by("Key", key_headers=CREDENTIAL_HEADERS), "authorization", ""),
        (by("Key", key_headers=CREDENTIAL_HEADERS), "x-api-key", ""),
        (by("Key", key_headers=CREDENTIAL_HEADERS), "cookie", ""),
        (by("Key", key_headers=(), key_field="user"), "", "user"),
        (by("Conversation", key_headers=("x-conversation-id",), key_field="prompt_cache_key"), "", "prompt_cache_key"),
    ],
    ids=["Request", "Key", "Skip", "Conversation", "credential", "api-key", "cookie", "field", "header-or-field"],
)
async def test_the_hash_of_the_key_decides_whatever_the_key_is(rules: CaptureRules, header: str, field: str) -> None:
    async with rig(answers(), answers(), capture=rules) as mirror:
        for key in KEYS:
            body = chat(key, **({field: key} if field else {}))
            await mirror.copy(body, headers={header: key} if header else None)
            await mirror.settled()
        counted = await mirror.counted()
        assert set(await texts_that_arrived(mirror)) == WANTED
        seen = [(got.headers, got.body) for engine in mirror.engines for got in engine.got]
    assert lost(counted) == {"NotSelected": len(KEYS) - len(WANTED)}
    if "authorization" in rules.sampling.key_headers:
        sent = {value for headers, _ in seen for _, value in headers}
        assert sent.isdisjoint(WANTED)  # the key was for the draw only


async def test_without_a_key_random_draws_by_the_request_and_skip_leaves_it_out() -> None:
    for missing, expected in (("Random", WANTED), ("Skip", set())):
        rules = by("Key", key_headers=("x-customer",), on_missing_key=missing)
        async with rig(answers(), answers(), capture=rules) as mirror:
            for key in KEYS:
                await mirror.copy(chat(key), headers={"x-request-id": key})
                await mirror.settled()
            assert set(await texts_that_arrived(mirror)) == expected


async def test_a_lower_rate_keeps_a_part_and_the_same_copies_are_in_again_after_a_restart() -> None:
    arrived = []
    for threshold in (HALF, HALF // 2, HALF):
        async with rig(answers(), answers(), capture=by("Key", threshold, key_headers=("x-customer",))) as mirror:
            for key in KEYS:
                await mirror.copy(chat(key), headers={"x-customer": key})
                await mirror.settled()
            arrived.append(set(await texts_that_arrived(mirror)))
    half, more, again = arrived
    assert half < more
    assert half == again


async def test_a_class_has_the_rate_it_was_given() -> None:
    classes = (TrafficClass(name="turns", min_turns=2), TrafficClass(name="images", images=True))
    rules = by("Request", MODULO, class_thresholds={"turns": 0, "images": 0})
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    async with rig(answers(), answers(), capture=rules, classes=classes) as mirror:
        await mirror.copy(chat("one turn"))
        await mirror.copy(chat("two", "turns", "here"))
        await mirror.copy({"model": "m", "messages": [image]})
        evidence = await mirror.settled()
    admitted = {name: counted.admitted.requests for name, counted in evidence.windows[1].classes.items()}
    assert admitted == {"default": 0, "turns": 1, "images": 1}


async def test_conversations_without_a_key_are_in_or_out_as_a_whole() -> None:
    rules = by("Conversation", key_headers=(), on_missing_key="Lineage")
    async with rig(answers(), answers(), capture=rules, window=0) as mirror:
        for n in range(12):
            for length in (1, 3, 5):
                await mirror.copy(chat(*[f"{n}: {m}" for m in range(length)]))
                await mirror.settled()
        arrived = await texts_that_arrived(mirror)
        lineage = (await mirror.evidence()).windows[0].lineage
    whole = {text.partition(":")[0] for text in arrived}
    assert 0 < len(whole) < 12
    assert sorted(arrived) == sorted(f"{n}: {m}" for n in whole for m in (0, 2, 4))
    assert lineage == Lineage(openings=len(whole), conversations=len(whole), continued=2 * len(whole))


@pytest.mark.parametrize("keyed", [True, False])
async def test_a_conversation_whose_beginning_was_not_seen_is_a_loss_of_its_own(keyed: bool) -> None:
    rules = by("Conversation", 0, key_headers=("x-conversation-id",), on_missing_key="Random" if keyed else "Lineage")
    headers = {"x-conversation-id": "c-1"} if keyed else None
    async with rig(answers(), answers(), capture=rules, window=0) as mirror:
        for texts in (("a", "b", "c"), ("a", "b", "c", "d", "e"), ("hello",), ("hello", "hi", "more")):
            assert (await mirror.copy(chat(*texts), headers=headers)).status_code == 202
            await mirror.settled()
        counted = await mirror.counted(window=0)
        assert await texts_that_arrived(mirror) == ["hello", "more"]
        lineage = (await mirror.evidence()).windows[0].lineage
        text = await mirror.metrics()
    assert lost(counted) == {"ConversationJoinedLate": 2}
    assert lineage == Lineage(openings=1, conversations=1, continued=1, joined_late=2)
    assert 'shadowrun_mirror_requests_total{result="joined_late"} 2.0' in text


async def test_broken_histories_and_turns_after_a_dropped_one_are_flagged_pairs() -> None:
    rules = by("Conversation", 0, key_headers=("x-conversation-id",))
    admission = Admission(max_in_flight=1, timeout_s=2.0)
    async with rig(answers(), answers(delay_s=0.2), capture=rules, admission=admission, window=0) as mirror:

        async def turn(*texts: str) -> None:
            await mirror.copy(chat(*texts), headers={"x-conversation-id": "c-1"})

        await turn("hello")
        await turn("hello", "hi", "more")  # shed unread at the door: the first is still in flight
        await mirror.settled()
        await turn("hello", "hi", "more", "sure", "thanks")
        await mirror.settled()
        await turn("hello", "hi", "EDITED", "sure", "and?")
        counted = await mirror.counted(window=0)
        lineage = (await mirror.evidence()).windows[0].lineage
    assert lost(counted) == {"Shed": 1}
    flagged = {name: amount.requests for name, amount in counted.flagged.items()}
    assert (flagged["AfterGap"], flagged["BrokenLineage"]) == (1, 1)
    assert lineage == Lineage(openings=1, conversations=1, continued=1, broken=1)


async def test_a_restarted_replica_takes_up_the_conversations_it_meets() -> None:
    rules = by("Conversation", 0, key_headers=("x-conversation-id",))
    ahead = {"mono": 0.0}
    clocks = Clocks(mono=lambda: time.monotonic() + ahead["mono"])
    async with rig(answers(), answers(), capture=rules, clocks=clocks) as mirror:
        await mirror.copy(chat("a", "b", "c"), headers={"x-conversation-id": "c-1"})
        await mirror.settled()
        ahead["mono"] = 601.0
        await mirror.copy(chat("a", "b", "c"), headers={"x-conversation-id": "c-2"})
        counted = await mirror.counted()
    assert counted.flagged["BrokenLineage"].requests == counted.admitted.requests == 1
    assert lost(counted) == {"ConversationJoinedLate": 1}


# The queue

QUEUE = Admission(max_in_flight=1, timeout_s=5.0, max_queued=2, max_wait_s=2.0)


async def test_copies_over_the_cap_wait_in_order_and_the_rest_is_shed() -> None:
    async with rig(answers(delay_s=0.1), answers(delay_s=0.1), admission=QUEUE) as mirror:
        for n in range(4):
            assert (await mirror.copy(chat(f"{n}"))).status_code in (202, 429)
        assert mirror.replica.pipeline.queued == 2
        before = (await mirror.evidence()).windows[1].classes["default"]
        assert before.received.requests == 2  # those that wait are in no counter yet
        counted = await mirror.counted()
        assert await texts_that_arrived(mirror) == ["0", "1", "2"]
    assert lost(counted) == {"Shed": 1}
    assert counted.flagged["Queued"].requests == 2
    assert counted.queue.quantile(1.0) > 0.12  # two answers, less the time between the first copy and the third
    assert counted.queue.quantile(0.1) < 0.1


async def test_who_waits_too_long_is_dropped_and_may_come_again() -> None:
    admission = msgspec.structs.replace(QUEUE, max_wait_s=0.1)
    async with rig(hangs, answers(), admission=msgspec.structs.replace(admission, timeout_s=0.6)) as mirror:
        await mirror.copy(chat("0"))
        await mirror.copy(chat("1"), headers={"x-request-id": "again"})
        await asyncio.sleep(0.3)
        assert mirror.replica.pipeline.queued == 0
        assert mirror.replica.pipeline.in_flight == 1  # not by the slot that became free
        counted = await mirror.counted()
        assert lost(counted) == {"QueueTimeout": 1}
        await mirror.copy(chat("1"), headers={"x-request-id": "again"})
        counted = await mirror.counted()
        text = await mirror.metrics()
    assert counted.admitted.requests == 2
    assert 'shadowrun_mirror_requests_total{result="queue_timeout"} 1.0' in text


@pytest.mark.parametrize("why", ["disabled", "expired", "drained"])
async def test_the_queue_is_emptied_when_nothing_is_wanted_any_more(why: str) -> None:
    ahead = {"wall": 0.0}
    clocks = Clocks(wall=lambda: time.time() + ahead["wall"])
    admission = msgspec.structs.replace(QUEUE, timeout_s=1.5, max_wait_s=30.0)
    async with rig(hangs, hangs, admission=admission, clocks=clocks, expiry=time.time() + 1000) as mirror:
        for n in range(3):
            await mirror.copy(chat(f"{n}"))
        assert mirror.replica.pipeline.queued == 2
        if why == "disabled":
            await mirror.put(msgspec.structs.replace(mirror.config, version=2, copying=False))
        elif why == "expired":
            ahead["wall"] = 1000.0
            await asyncio.sleep(0.5)
        else:
            await mirror.replica.pipeline.drain(5.0)
        assert mirror.replica.pipeline.queued == 0
        counted = await mirror.counted()
        assert await texts_that_arrived(mirror) == ["0"]
    assert lost(counted) == {"Expired" if why == "expired" else "Disabled": 2}


async def test_more_room_lets_the_queue_in_at_once() -> None:
    async with rig(hangs, hangs, admission=msgspec.structs.replace(QUEUE, timeout_s=1.0)) as mirror:
        for n in range(3):
            await mirror.copy(chat(f"{n}"))
        wider = msgspec.structs.replace(mirror.config.admission, max_in_flight=3)
        await mirror.put(msgspec.structs.replace(mirror.config, version=2, admission=wider))
        assert (mirror.replica.pipeline.in_flight, mirror.replica.pipeline.queued) == (3, 0)
        counted = await mirror.counted()
    assert counted.admitted.requests == 3


async def test_a_fault_of_ours_costs_only_the_queued_copy_it_met(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(answers(delay_s=0.2), answers(delay_s=0.2), admission=QUEUE) as mirror:
        for n in range(3):
            await mirror.copy(chat(f"{n}"))
        requests, asked = mirror.replica.pipeline._dispatcher.requests, []

        def breaks_once(*args: Any) -> Any:
            asked.append(args)
            if len(asked) == 1:
                raise RuntimeError("the prompt was: hello")
            return requests(*args)

        monkeypatch.setattr(mirror.replica.pipeline._dispatcher, "requests", breaks_once)
        counted = await mirror.counted()
        assert await texts_that_arrived(mirror) == ["0", "2"]
        text = await mirror.metrics()
    assert counted.admitted.requests == 2
    assert 'shadowrun_mirror_refused_total{reason="internal"} 1.0' in text


# The door


async def test_a_copy_that_would_be_shed_is_refused_before_its_body_comes() -> None:
    async with rig(hangs, hangs, admission=Admission(max_in_flight=1, timeout_s=1.0)) as mirror:
        await mirror.copy(chat("0"))
        reader, writer = await asyncio.open_connection("127.0.0.1", mirror.replica.data_port)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: any\r\nx-shadowrun-run: run-uid\r\nx-shadowrun-window: 1\r\n"
            b"x-request-id: shed\r\ncontent-length: 60000\r\n\r\n"
        )
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 0.5)
        assert answer.startswith(b"HTTP/1.1 429 ")
        writer.write(b"x" * 60_000)
        await writer.drain()
        await mirror.settled()
        writer.close()
        await writer.wait_closed()
        evidence = await mirror.settled()
    # Sorted by its length, which is all that is known of it.
    assert evidence.windows[1].classes["long"].dropped == {"Shed": Amount(requests=1, bytes=60_000)}


async def test_with_room_or_with_a_filter_on_models_the_body_is_read_first() -> None:
    for models, cap in ((("m",), 0), ((), 1)):
        admission = Admission(max_in_flight=cap, timeout_s=1.0)
        async with rig(answers(), answers(), admission=admission, models=models) as mirror:
            assert (await mirror.copy(chat("0"))).status_code == 202
            counted = await mirror.counted()
        assert lost(counted) == ({} if cap else {"Shed": 1})


# Foreign proxies


async def test_foreign_copies_without_ids_are_drawn_at_random_and_never_duplicates() -> None:
    async with rig(streams(), streams(), capture=by("Request"), source="External") as mirror:
        url = f"http://127.0.0.1:{mirror.replica.data_port}/v1/chat/completions"
        for n in range(40):
            assert (await mirror.http.post(url, json=chat(f"{n}", stream=True))).status_code == 202
            await mirror.settled()
        evidence: Evidence = await mirror.settled()
    counted = evidence.windows[1].classes["default"]
    assert set(lost(counted)) == {"NotSelected"}
    assert 8 < counted.admitted.requests < 32
    assert counted.received.requests == 40


async def test_a_compressed_foreign_copy_cannot_be_parsed() -> None:
    async with rig(answers(), answers(), source="External") as mirror:
        url = f"http://127.0.0.1:{mirror.replica.data_port}/v1/chat/completions"
        for coding in ("gzip", "identity"):
            await mirror.http.post(url, json=chat("0"), headers={"content-encoding": coding})
            await mirror.settled()
        counted = await mirror.counted()
    assert lost(counted) == {"Unparsable": 1}
    assert counted.admitted.requests == 1
