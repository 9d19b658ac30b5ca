"""What a companion makes of strange answers from Envoy and from a mirror: never a wrong number, never a quoted word."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest
from shadowrun_mirror.capture.companion import Companion, CompanionSettings
from shadowrun_mirror.capture.stats import StatsError

from tests.integration.capture.harness import Message, Peer, answer, directive, free_ports

pytestmark = pytest.mark.path

CANARY = "canary-31c9"
STATS = {
    "http.customers.downstream_rq_active": 0,
    "http.customers.downstream_cx_active": 0,
    "http.customers.rds.shadowrun.version_text": "1.1.copying",
    "cluster.copies.upstream_rq_active_overflow": 0,
    "cluster.copies.upstream_rq_pending_overflow": 0,
    "cluster.mirror.upstream_rq_pending_failure_eject": 0,
    "cluster.mirror.upstream_rq_retry": 0,
    "cluster.mirror.upstream_cx_none_healthy": 0,
}


class Scripted:
    """Answers of an Envoy's admin port and of a mirror, at one address."""

    def __init__(self) -> None:
        self.epochs = iter(["one"] * 100)
        self.directive: tuple[str, bytes] = ("503 Service Unavailable", CANARY.encode())

    async def behave(self, head: Message, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if "/server_info" in head.start:
            await answer(writer, "200 OK", [], msgspec.json.encode({"node": {"id": next(self.epochs)}}))
        elif "/stats" in head.start:
            listed = [{"name": name, "value": value} for name, value in STATS.items()]
            await answer(writer, "200 OK", [], msgspec.json.encode({"stats": listed}))
        else:
            await answer(writer, self.directive[0], [], self.directive[1])
        return True


@asynccontextmanager
async def companion(folder: Path) -> AsyncIterator[tuple[Companion, Scripted]]:
    scripted = Scripted()
    (port,) = free_ports(1)
    peer = await Peer(port, scripted.behave).start()
    url = f"http://127.0.0.1:{port}"
    settings = CompanionSettings(
        mirror_url=url,
        mirrors_url=url,
        admin_url=url,
        routes_folder=folder,
        outcome_log=folder / "outcomes.jsonl",
        token="t",
        pod="p",
        pod_uid="u",
    )
    try:
        async with aiohttp.ClientSession() as http:
            yield Companion(settings, directive(), http), scripted
    finally:
        await peer.stop()


@pytest.mark.parametrize("epochs", [["one", "two"], ["two", "one"]])
async def test_numbers_of_an_envoy_that_restarted_meanwhile_belong_to_nobody(tmp_path: Path, epochs: list[str]) -> None:
    async with companion(tmp_path) as (asked, scripted):
        assert (await asked.evidence()).source.epoch == "one"
        scripted.epochs = iter(epochs)
        with pytest.raises(StatsError, match="restarted"):
            await asked.evidence()


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (("503 Service Unavailable", CANARY.encode()), "HTTP 503"),
        (("401 " + CANARY, b""), "HTTP 401"),
        (("200 OK", CANARY.encode()), "DecodeError"),
        (("200 OK", b'{"version": "' + CANARY.encode() + b'"}'), "ValidationError"),
        (("200 OK", b" " * (3 << 20)), "the directive is too long"),
    ],
)
async def test_a_mirror_without_a_directive_is_logged_by_its_status_and_never_quoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], told: tuple[str, bytes], said: str
) -> None:
    async with companion(tmp_path) as (asked, scripted):
        scripted.directive = told
        turning = asyncio.create_task(asked.run(lambda: None))
        await asyncio.sleep(0.5)
        turning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turning
    printed = capsys.readouterr().out
    assert f"no directive: {said}\n" in printed
    assert CANARY not in printed
