"""Baggage that only a mirror may give is taken out of customers' requests; every other byte of it stays."""

import asyncio
import random
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.integration.capture.fast import FastServer, lines_of, send_in_batches
from tests.integration.capture.harness import (
    PATH,
    Capture,
    Client,
    capture_on_free_ports,
    directive,
    running_capture,
    running_scene,
    until,
)

pytestmark = pytest.mark.path

NAMES = [
    b"shadow",
    b"shadow.run",
    b"Shadow",
    b"shadows",
    b"shadow.runs",
    b"xshadow",
    b"a.shadow",
    b"team",
    b"%73hadow",
    b"shadow-run",
    b"",
]
VALUES = [
    b"",
    b"=",
    b"=true",
    b" = true ",
    b"=shadow",
    b"=a%2Cshadow%3Dtrue",
    b"=1;shadow=true",
    b";p=1;q",
    b"=\xc3\xa9",
    b"=a=b",
    b"=\xff",
    b" \xc3=\xe2\x82",
    b" x=1",
]
BETWEEN = [b"", b"", b" ", b"\t", b"  "]


def some_baggage(pick: random.Random) -> list[bytes]:
    """Lines of a baggage header, from nothing to a mess."""

    def member() -> bytes:
        return pick.choice(BETWEEN) + pick.choice(NAMES) + pick.choice(VALUES) + pick.choice(BETWEEN)

    return [b",".join(member() for _ in range(pick.randint(1, 5))).strip(b" \t") for _ in range(pick.randint(1, 3))]


def without_ours(lines: list[bytes]) -> list[bytes]:
    """The rule in words: entries of the two names go, and lines of nothing else."""

    def is_ours(member: bytes) -> bool:
        name = member.partition(b";")[0].partition(b"=")[0].strip(b" \t")
        return name in (b"shadow", b"shadow.run")

    kept = [[member for member in line.split(b",") if not is_ours(member)] for line in lines]
    return [b",".join(members).strip(b" \t") for members in kept if members]


def baggage_of(head: bytes) -> list[bytes]:
    return [value for name, value in lines_of(head) if name == b"baggage"]


def request(number: int, lines: list[bytes]) -> bytes:
    head = b"".join(b"Baggage: %s\r\n" % line for line in lines)
    return b"POST %s HTTP/1.1\r\nhost: a\r\nx-n: %d\r\n%scontent-length: 2\r\n\r\n{}" % (PATH.encode(), number, head)


@pytest.mark.parametrize("copying", [True, False])
async def test_every_other_entry_keeps_its_bytes_over_three_hops(copying: bool, tmp_path: Path) -> None:
    pick = random.Random(5)
    sent = [some_baggage(pick) for _ in range(3000)]
    assert 500 < sum(without_ours(lines) != lines for lines in sent) < 2500
    async with AsyncExitStack() as stack:
        captures: list[Capture] = []
        for hop in range(3):
            capture = capture_on_free_ports(tmp_path / str(hop))
            capture.folder.mkdir()
            if captures:  # each is the primary of the one before
                captures[-1].primary_port = capture.customers
            captures.append(capture)
        to_primary = await stack.enter_async_context(FastServer(captures[-1].primary_port, keeps=True))
        mirrors = [await stack.enter_async_context(FastServer(capture.mirror_port)) for capture in captures]
        for capture in reversed(captures):
            stack.push_async_callback(capture.stop)
            await capture.start()
            if copying:
                await capture.follow(directive())
        requests = [request(number, lines) for number, lines in enumerate(sent)]
        assert await send_in_batches(captures[0].customers, requests) == len(requests)
        got = {int(dict(lines_of(head))[b"x-n"]): baggage_of(head) for head in to_primary.heads}
        for number, lines in enumerate(sent):
            assert got[number] == without_ours(lines), lines
        clean = sum(without_ours(lines) == lines for lines in sent)
        # What was marked is copied at no hop where it still was; after that it is anybody's request.
        due = [clean, len(sent), len(sent)] if copying else [0, 0, 0]

        async def all_arrived() -> bool:
            return all(mirror.count >= number for mirror, number in zip(mirrors, due, strict=True))

        await until(all_arrived, 10.0)
        await asyncio.sleep(0.3)
        assert [mirror.count for mirror in mirrors] == due


async def test_a_request_with_such_baggage_is_not_copied_and_other_requests_never_meet_the_script(
    tmp_path: Path,
) -> None:
    async with running_scene(tmp_path) as (capture, to_primary, to_mirror):
        await capture.follow(directive())
        client = Client(capture.customers)
        for baggage in ("shadow=true", "a=b, shadow.run=other", "shadow", "a=\udcff,shadow=true"):
            assert (await client.request([("baggage", baggage)])).status == 200
        assert (await client.request([("BagGage", " a=b ,c = d")])).status == 200

        async def copied() -> bool:
            return len(to_mirror.received) == 1

        await until(copied, 3.0)
        assert [message.header("baggage") for message in to_primary.received] == [
            None,
            "a=b",
            None,
            "a=\xff",
            "a=b ,c = d",
        ]
        assert ("BagGage", "a=b ,c = d") in to_primary.received[-1].headers
        assert (await capture.evidence()).windows[1].sampled.requests == 1
        assert b"lua.errors: 0" in await capture.admin("/stats?filter=lua.errors")
        client.close()


async def test_trusted_baggage_stays_and_is_not_copied_either(tmp_path: Path) -> None:
    async with (
        running_capture(tmp_path, shadow_baggage="Trust") as capture,
        FastServer(capture.primary_port, keeps=True) as to_primary,
        FastServer(capture.mirror_port) as to_mirror,
    ):
        await capture.follow(directive())
        lines = [b"shadow=true,shadow.run=r , a=b"]
        assert await send_in_batches(capture.customers, [request(0, lines), request(1, [b"a=b"])]) == 2
        assert sorted(map(baggage_of, to_primary.heads)) == [[b"a=b"], lines]

        async def copied() -> bool:
            return to_mirror.count >= 1

        await until(copied, 3.0)
        await asyncio.sleep(0.3)
        assert to_mirror.count == 1


LARGE = 400_000
LARGE_BAGGAGE = {
    "blanks before a name": [b"shadow," + b" " * LARGE + b"x"],
    "blanks in a name": [b"shadow,x" + b" \t" * (LARGE // 2) + b"x"],
    "blanks after ours": [b"shadow,shadow" + b" " * LARGE + b"x"],
    "commas": [b"shadow" + b"," * LARGE],
    "ours": [b"shadow," * (LARGE // 7) + b"a"],
    "nearly ours": [b"shadow" + b",shadow.ru" * (LARGE // 10)],
    "every other one ours": [b"x,shadow," * (LARGE // 9)],
    # Strings of one length that differ only where hashes of strings have been known not to look.
    "alike": [b"shadow," + b",".join(b"aaaa%08dbbbbbbbb%08dcccc" % (n, n) for n in range(LARGE // 33))],
    "lines": [b"shadow"] * 400 + [b"a"] * 400,
}


@pytest.mark.parametrize("baggage", LARGE_BAGGAGE.values(), ids=LARGE_BAGGAGE)
async def test_no_baggage_holds_up_the_worker_and_with_it_other_customers(baggage: list[bytes], tmp_path: Path) -> None:
    async with running_capture(tmp_path) as capture, FastServer(capture.primary_port, keeps=True) as to_primary:
        other = request(0, [])
        assert await send_in_batches(capture.customers, [other]) == 1
        sending = asyncio.create_task(send_in_batches(capture.customers, [request(1, baggage)] * 2, 1, 1))
        slowest = 0.0
        while not sending.done():
            sent = time.monotonic()
            async with asyncio.timeout(10):
                assert await send_in_batches(capture.customers, [other], 1) == 1
            slowest = max(slowest, time.monotonic() - sent)
        assert await sending == 2
        assert slowest < 5  # about 0.02; where time grows with the square of the bytes, minutes
        (got, _) = [head for head in to_primary.heads if b"x-n: 1" in head]
        assert baggage_of(got) == without_ours(baggage)
