"""Every request of every customer has one fate: looked at one by one, by request id, whatever goes wrong.

What happened to each is seen at both ends, by Envoy's own list of what it meant to copy and by what the arms got; what
the funnel says of it comes from the counters alone. Both must agree for each stretch of trouble.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from shadowrun_mirror.config import MODULO, Admission, CaptureRules, MirrorConfig, Sampling
from shadowrun_mirror.reasons import DropReason
from shadowrun_mirror.select import is_selected
from shadowrun_operator.judge.funnel import funnel
from shadowrun_operator.judge.merge import identity, merged
from shadowrun_operator.manifests.bootstrap import max_copies

from tests.integration.capture.faults import MIRRORS
from tests.integration.capture.harness import PATH, Capture, Client, Peer, directive, ok, running_capture, until
from tests.integration.capture.live_scene import total
from tests.integration.mirror.engine import Engine, Got, Wire, answers
from tests.integration.mirror.process import MirrorProcess
from tests.integration.mirror.rig import configuration
from tests.ports import free_ports

pytestmark = pytest.mark.path

SAMPLING = Sampling(unit="Request", threshold=MODULO // 4, seed=2**63 + 11)  # three in four
LARGEST = 2_000
RULES = CaptureRules(paths=(PATH,), max_body_bytes=LARGEST, sampling=SAMPLING)
IN_FLIGHT = 4

Ids = set[str]
Arms = tuple[Engine, Engine]


def ids(stretch: str, count: int) -> list[str]:
    return [f"{stretch}-{number}" for number in range(count)]


def sampled(asked: Iterable[str]) -> Ids:
    """Those the rule in Python selects."""
    return {one for one in asked if is_selected(SAMPLING, ((b"x-request-id", one.encode()),))}


class Scene:
    """Customers' requests by id, and what became of them."""

    def __init__(
        self, capture: Capture, mirror: MirrorProcess, arms: tuple[Engine, Engine], config: MirrorConfig
    ) -> None:
        self.capture = capture
        self.mirror = mirror
        self.arms = arms
        self.config = config
        self.asked: Ids = set()

    async def ask(self, wanted: list[str], *, size: int = 300, together: int = 16) -> Ids:
        """All of them, each once, `together` at a time; every one is answered. Returns those the rule selects."""

        async def some(part: list[str]) -> None:
            client = Client(self.capture.customers)
            for one in part:
                message = {"role": "user", "content": one.ljust(size, ".")}
                body = json.dumps({"model": "m", "messages": [message]}).encode()
                got = await client.request([("x-request-id", one), ("content-type", "application/json")], body)
                assert got.status == 200
            client.close()

        await asyncio.gather(*(some(wanted[at::together]) for at in range(together)))
        self.asked |= set(wanted)
        return sampled(wanted)

    async def quiet(self) -> None:
        """No copy is on its way any more."""
        await until(self.capture.is_quiet, 15.0)

    async def overflow(self) -> int:
        return (await self.capture.evidence()).overflow

    async def reach(self, wanted: Ids) -> None:
        """Wait until the arms have got all of them."""

        async def arrived() -> bool:
            return {_id(got) for got in self.arms[0].got} & {_id(got) for got in self.arms[1].got} >= wanted

        await until(arrived, 20.0)

    async def pair(self, wanted: list[str]) -> Ids:
        """Ask no more at a time than the mirror takes on; returns those that became pairs."""
        pairs: Ids = set()
        for start in range(0, len(wanted), IN_FLIGHT):
            pairs |= await self.ask(wanted[start : start + IN_FLIGHT])
            await self.reach(pairs)
            await self.mirror.settled()
        return pairs

    def reached(self) -> Ids:
        """Those that an arm got; both did, each once."""
        first, second = ([_id(got) for got in arm.got] for arm in self.arms)
        assert Counter(first) == Counter(second)
        assert max(Counter(first).values(), default=1) == 1
        return set(first)

    def meant(self) -> list[str]:
        """What Envoy meant to copy, by its own list."""
        return [json.loads(line)["id"] for line in self.capture.outcome_log.read_text().splitlines()]


def _id(got: Got) -> str:
    content = got.json["messages"][0]["content"]
    assert isinstance(content, str)
    return content.rstrip(".")


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        capture = await stack.enter_async_context(running_capture(folder, max_body_bytes=LARGEST))
        primary = Peer(capture.primary_port, ok)
        primary.behaviour = primary.keeping(ok)
        await primary.start()
        stack.push_async_callback(primary.stop)
        arms = (
            await stack.enter_async_context(Engine(answers())),
            await stack.enter_async_context(Engine(answers())),
        )
        config = msgspec.structs.replace(
            configuration([arm.port for arm in arms]),
            run_uid="run-1",
            admission=Admission(max_in_flight=IN_FLIGHT, timeout_s=20.0),
            capture=RULES,
        )
        mirror = MirrorProcess(folder, capture.mirror_port, *free_ports(1))
        stack.push_async_callback(mirror.kill)
        await capture.follow(msgspec.structs.replace(directive(max_body_bytes=LARGEST), rules=RULES))
        yield Scene(capture, mirror, arms, config)


async def never(_: Got, __: Wire) -> None:
    await asyncio.Event().wait()


async def test_each_request_has_one_fate_and_the_funnel_says_which(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        # All is well, one at a time.
        await at.mirror.start(at.config)
        pairs = await at.pair(ids("well", 40))
        assert await at.overflow() == 0

        # Too large: known by its head, never copied.
        large = await at.ask(ids("large", 20), size=LARGEST)

        # The same id twice is one request.
        first = min(pairs)
        assert await at.ask([first]) == {first}

        # The arms are slow: what the mirror cannot take on is shed, at the door.
        for arm in at.arms:
            arm.script = answers(delay_s=1.0)
        burst = await at.ask(ids("burst", 24), together=24)
        await at.quiet()
        await at.mirror.settled()
        taken = burst & at.reached()
        shed = burst - taken
        assert len(taken) >= IN_FLIGHT
        assert shed

        # It dies with copies in its hands that have reached the arms.
        for arm in at.arms:
            arm.script = never
        stranded: Ids = set()
        for one in ids("stranded", 40):
            if len(stranded) < IN_FLIGHT:
                stranded |= await at.ask([one])
        await at.reach(stranded)
        dead = await at.mirror.evidence()
        assert total(dead).in_flight.requests == len(stranded) == IN_FLIGHT
        await at.mirror.kill()
        await at.quiet()

        # Nobody listens; then nobody can be reached; then nobody answers, and no more copies are held than may be.
        before = await at.overflow()
        lost: dict[str, Ids] = {}
        for fault, count in (("down", 40), ("blackholed", 40), ("never-answers", 400)):
            async with MIRRORS[fault](at.capture.mirror_port):
                lost[fault] = await at.ask(ids(fault, count), together=min(count, 80))
                await asyncio.sleep(0.5)
            await at.quiet()
            counted = await at.overflow() - before
            held = max_copies(LARGEST) if fault == "never-answers" else 0
            assert counted == len(lost[fault]) - held, fault
            before += counted

        # Another mirror comes, and all is well again.
        for arm in at.arms:
            arm.script = answers()
        await at.mirror.start(at.config)
        again = await at.pair(ids("again", 40))
        await at.quiet()
        last = await at.mirror.settled()

        # Each id once.
        fates = {
            "pair": pairs | taken | again,
            DropReason.TOO_LARGE: large,
            DropReason.SHED: shed,
            DropReason.MIRROR_LOST: stranded,
            DropReason.LOST_IN_TRANSIT: set().union(*lost.values()),
        }
        assert Counter(one for fate in fates.values() for one in fate) == Counter(sampled(at.asked))
        assert at.reached() == fates["pair"] | stranded

        async def all_written() -> bool:
            return len(at.meant()) >= sum(map(len, fates.values())) - len(large) + 1

        await until(all_written, 5.0)
        assert Counter(at.meant()) == Counter([*(sampled(at.asked) - large), first])

        # And what the counters say.
        found = funnel(merged([dead, last], [await at.capture.evidence()], dead=[identity(dead.source)], final=True))
        assert found.admitted.requests == len(fates.pop("pair"))
        expected = {str(reason): len(those) for reason, those in fates.items()} | {str(DropReason.DUPLICATE): 1}
        assert {reason: count.requests for reason, count in found.dropped.items()} == expected
        assert found.not_selected.requests == len(at.asked - sampled(at.asked))
        assert found.seen.requests == len(at.asked) + 1
        assert {name: arm.completed.requests for name, arm in found.arms.items()} == dict.fromkeys(
            ("baseline", "candidate"), found.admitted.requests
        )
