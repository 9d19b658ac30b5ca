"""What a companion makes of strange answers from Envoy and from a mirror: never a wrong number, never a quoted word."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest
from shadowrun_mirror.capture.companion import Companion, CompanionSettings, serve
from shadowrun_mirror.capture.outcome_file import OutcomeFile
from shadowrun_mirror.capture.stats import StatsError
from shadowrun_mirror.capture.telling import Telling

from tests.integration.capture.harness import TOKEN, Control, Message, Peer, answer, directive, until
from tests.ports import free_ports

pytestmark = pytest.mark.path

CANARY = "canary-31c9"
STATS = {
    "http.customers.downstream_rq_active": 0,
    "http.customers.downstream_cx_active": 0,
    "http.customers.rds.shadowrun.version_text": "1.1.copying",
    "cluster.copies.upstream_rq_active_overflow": 0,
    "cluster.copies.upstream_rq_pending_overflow": 0,
    "cluster.copies.upstream_rq_pending_failure_eject": 0,
    "cluster.copies.upstream_cx_none_healthy": 0,
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


def settings(folder: Path, url: str) -> CompanionSettings:
    return CompanionSettings(
        mirror_url=url,
        mirrors_url=url,
        admin_url=url,
        routes_folder=folder,
        outcome_log=folder / "outcomes.jsonl",
        token=TOKEN,
        pod="p",
        pod_uid="u",
    )


@asynccontextmanager
async def companion(folder: Path) -> AsyncIterator[tuple[Companion, Scripted]]:
    scripted = Scripted()
    (port,) = free_ports(1)
    peer = await Peer(port, scripted.behave).start()
    try:
        async with aiohttp.ClientSession() as http:
            yield Companion(settings(folder, f"http://127.0.0.1:{port}"), directive(), http), scripted
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
        (("200 OK", b'{"x": ' + b"[" * 100_000), "RecursionError"),
    ],
)
async def test_a_mirror_without_a_directive_is_logged_by_its_status_and_never_quoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], told: tuple[str, bytes], said: str
) -> None:
    async with companion(tmp_path) as (asked, scripted):
        scripted.directive = told
        printed = ""

        async def was_said() -> bool:
            nonlocal printed
            printed += capsys.readouterr().out
            return f"no directive: {said}\n" in printed

        turning = asyncio.create_task(asked.run(lambda: None))
        await until(was_said, 10.0)
        turning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turning
    printed += capsys.readouterr().out
    assert CANARY not in printed


@pytest.mark.parametrize("ends", [False, True])
async def test_copying_goes_on_whatever_breaks_in_telling_outcomes(
    ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    takes: list[None] = []

    def breaks(_: OutcomeFile) -> list[bytes]:
        takes.append(None)
        raise KeyError(CANARY)

    async def ended(_: Telling) -> None:
        breaks(OutcomeFile(tmp_path))

    monkeypatch.setattr(OutcomeFile, "take", breaks)
    if ends:  # even what no turn can catch
        monkeypatch.setattr(Telling, "run", ended)
    asked_port, port = free_ports(2)
    control = await Control(asked_port, directive()).start()
    where = settings(tmp_path, f"http://127.0.0.1:{asked_port}")
    serving = asyncio.create_task(serve(where, directive(), host="127.0.0.1", port=port, alive=lambda: None))

    async def asked_often() -> bool:
        return control.asked >= 3

    await until(asked_often, 6.0)
    assert len(takes) == 1 if ends else len(takes) >= 2
    assert not serving.done()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    await control.stop()
    printed = capsys.readouterr().out
    assert printed.count("telling the mirrors broke: KeyError\n") == (0 if ends else 1)
    assert CANARY not in printed
