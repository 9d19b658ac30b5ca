"""The real process: boot files in, ports up, SIGTERM drains it, no memory image, no secret in anything it wrote."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
from shadowrun_mirror.breaker import FAILURES
from shadowrun_mirror.capture.outcome_log import MAX_BATCH_BYTES
from shadowrun_mirror.config import Admission, Arm, MirrorConfig, encode
from shadowrun_mirror.evidence import Evidence

from tests.funnel import assert_adds_up
from tests.integration.mirror.engine import DONE, Engine, Got, Wire, chunk_json, event, raw, streams
from tests.integration.mirror.rig import TOKEN, closed_port, configuration

pytestmark = pytest.mark.mirror

SECRETS = {
    place: f"canary-{place}-5f2a"
    for place in (
        "prompt",
        "model",
        "answer",
        "header",
        "headername",
        "cookie",
        "key",
        "conversation",
        "baggage",
        "arm",
        "id",
        "log",
    )
}


class Process:
    """`python -m shadowrun_mirror` on its own ports."""

    def __init__(self, process: asyncio.subprocess.Process, data_port: int, control_port: int) -> None:
        self.process = process
        self.data_port = data_port
        self.data_url = f"http://127.0.0.1:{data_port}/v1/chat/completions"
        self.control_url = f"http://127.0.0.1:{control_port}"

    async def until_closed(self) -> None:
        """Waits until no connection for copies is taken any more."""
        with contextlib.suppress(ConnectionError):  # refused, or reset where the closing met it
            while True:
                _, writer = await asyncio.open_connection("127.0.0.1", self.data_port)
                writer.close()
                await asyncio.sleep(0.05)

    async def logs(self) -> str:
        """Everything it wrote; waits for its end."""
        out, err = await asyncio.wait_for(self.process.communicate(), 20)
        return (out + err).decode()


def environment(boot: Path, data_port: int, control_port: int) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[3] / "mirror"),
        "SHADOWRUN_BOOT": str(boot),
        "SHADOWRUN_HOST": "127.0.0.1",
        "SHADOWRUN_DATA_PORT": str(data_port),
        "SHADOWRUN_CONTROL_PORT": str(control_port),
        "SHADOWRUN_LOG_LEVEL": "DEBUG",
        "POD_NAME": "mirror-0",
        "POD_UID": "pod-uid",
    }


async def spawn(env: dict[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "shadowrun_mirror",
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def running(boot: Path, config: MirrorConfig) -> AsyncIterator[Process]:
    (boot / "config.json").write_bytes(encode(config))
    (boot / "token").write_text(TOKEN + "\n")
    ports = closed_port(), closed_port()
    process = Process(await spawn(environment(boot, *ports)), *ports)
    try:
        async with asyncio.timeout(20), httpx.AsyncClient(trust_env=False) as http:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await http.get(process.control_url + "/healthz")).status_code == 200:
                        break
                await asyncio.sleep(0.05)
        yield process
    finally:
        if process.process.returncode is None:
            process.process.kill()
            await process.process.communicate()


def marks(config: MirrorConfig, number: int) -> dict[str, str]:
    return {
        "x-shadowrun-run": config.run_uid,
        "x-shadowrun-window": str(config.window),
        "x-request-id": f"request-{number}",
    }


async def evidence_of(http: httpx.AsyncClient, process: Process) -> tuple[Evidence, str]:
    response = await http.get(process.control_url + "/evidence", headers={"authorization": f"Bearer {TOKEN}"})
    evidence = Evidence.decode(response.content)
    assert_adds_up(evidence)
    return evidence, response.text


async def test_sigterm_lets_pairs_finish_and_their_evidence_be_read(tmp_path: Path) -> None:
    slow = streams(delay_s=4.0)
    async with Engine(slow) as baseline, Engine(slow) as candidate:
        patient = Admission(max_in_flight=8, timeout_s=15.0)
        config = configuration([baseline.port, candidate.port], admission=patient)
        async with running(tmp_path, config) as process, httpx.AsyncClient(trust_env=False) as http:
            body = {"model": "m", "stream": True}
            assert (await http.post(process.data_url, json=body, headers=marks(config, 1))).status_code == 202
            process.process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.until_closed(), 15)
            with pytest.raises(httpx.TransportError):
                async with httpx.AsyncClient(trust_env=False) as other:
                    await other.post(process.data_url, json=body, headers=marks(config, 2))
            evidence, _ = await evidence_of(http, process)
            assert evidence.windows[1].classes["default"].in_flight.requests == 1
            assert not evidence.copying
            async with asyncio.timeout(15):
                while evidence.windows[1].classes["default"].in_flight.requests:
                    await asyncio.sleep(0.05)
                    evidence, _ = await evidence_of(http, process)
            with contextlib.suppress(httpx.TransportError):  # that reading may have been the one it waited for
                await evidence_of(http, process)
            logs = await process.logs()
            assert process.process.returncode == 0
    assert evidence.windows[1].classes["default"].arms["candidate"].completed.requests == 1
    assert [json.loads(line)["message"] for line in logs.splitlines()][-1] == "stopped"


@pytest.mark.parametrize(
    ("config", "token", "named"),
    [
        (b"{", "t", "DecodeError"),
        (encode(configuration([1])), "t", "arms"),
        (encode(configuration([1, 2])), "", "token"),
    ],
)
async def test_boot_files_that_cannot_be_used_end_it_at_once(
    tmp_path: Path, config: bytes, token: str, named: str
) -> None:
    (tmp_path / "config.json").write_bytes(config)
    (tmp_path / "token").write_text(token)
    process = await spawn(environment(tmp_path, closed_port(), closed_port()))
    _, err = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 2
    assert named in json.loads(err)["error" if named == "DecodeError" else "field"]


async def _echoes_secrets(_: Got, wire: Wire) -> None:
    body = event(chunk_json(SECRETS["answer"])) + event(b'{"choices":[],"' + SECRETS["answer"].encode() + b'":')
    await raw("text/event-stream", body, event(SECRETS["answer"].encode()), DONE)(_, wire)


async def _bad_header(_: Got, wire: Wire) -> None:
    await wire.send(b"HTTP/1.1 200 OK\r\n" + SECRETS["answer"].encode() + b"\r\n\r\n")


async def _http2_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1000)
    secret = SECRETS["answer"].encode()
    writer.write(b"\0\0\0\4\0\0\0\0\0" + len(secret).to_bytes(3, "big") + b"\1\4\0\0\0\1" + secret)
    await writer.drain()
    writer.close()


async def _told_of_the_primary(http: httpx.AsyncClient, process: Process) -> list[int]:
    """Lines of capture's log that make sense, that do not, and that are none, each with a secret in it."""
    record = {"id": SECRETS["id"], "status": 200, "flags": SECRETS["log"], "first_byte_us": 5, "run": "run-uid"}
    wrong = record | {"status": SECRETS["log"]}
    lines = b"\n".join(json.dumps(each).encode() for each in (record, wrong, record | {"run": SECRETS["log"]}))
    url, token = process.control_url + "/outcomes", {"authorization": f"Bearer {TOKEN}"}
    bodies = lines, SECRETS["log"].encode(), SECRETS["log"].encode() * MAX_BATCH_BYTES
    return [(await http.post(url, content=each, headers=token)).status_code for each in bodies]


async def test_it_may_open_as_many_files_as_the_system_allows() -> None:
    code = (
        "import resource; from shadowrun_mirror.__main__ import all_files_allowed; kind = resource.RLIMIT_NOFILE;"
        "resource.setrlimit(kind, (64, 128)); all_files_allowed(); print(*resource.getrlimit(kind))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, env=environment(Path(), 1, 1), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out.split() == [b"128", b"128"]


async def test_nothing_can_make_an_image_of_its_memory() -> None:
    code = (
        "import ctypes, resource; from shadowrun_mirror.__main__ import no_memory_images; no_memory_images();"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), *resource.getrlimit(resource.RLIMIT_CORE))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, env=environment(Path(), 1, 1), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out.split() == [b"0", b"0", b"0"]


async def test_no_secret_of_a_request_or_an_answer_is_in_anything_the_mirror_writes(tmp_path: Path) -> None:
    """Secrets in every place content can be; searched for in evidence, metrics, answers and logs at DEBUG."""
    (tmp_path / "arm-token").write_text(SECRETS["arm"])
    async with (
        Engine(streams(SECRETS["answer"])) as good,
        Engine(_echoes_secrets) as bad,
        Engine(_bad_header) as worse,
    ):
        worst = await asyncio.start_server(_http2_nonsense, "127.0.0.1", 0)
        config = configuration([good.port, bad.port, worse.port])
        more = (
            Arm(name="http2", host="127.0.0.1", port=worst.sockets[0].getsockname()[1], http2=True),
            Arm(name="away", host="127.0.0.1", port=closed_port()),
        )
        config = msgspec.structs.replace(config, arms=config.arms + more)
        arms = tuple(msgspec.structs.replace(arm, credential_file=str(tmp_path / "arm-token")) for arm in config.arms)
        sampling = msgspec.structs.replace(
            config.capture.sampling, key_headers=("x-conversation-id",), unit="Conversation", on_missing_key="Random"
        )
        capture = msgspec.structs.replace(config.capture, sampling=sampling)
        config = msgspec.structs.replace(config, arms=arms, capture=capture)
        written: list[str] = []
        async with running(tmp_path, config) as process, httpx.AsyncClient(trust_env=False) as http:
            headers = {
                "authorization": f"Bearer {SECRETS['key']}",
                "cookie": SECRETS["cookie"],
                "x-note": SECRETS["header"],
                SECRETS["headername"]: "1",
                "x-conversation-id": SECRETS["conversation"],
                "baggage": f"note={SECRETS['baggage']}",
            }
            prompt = {"messages": [{"role": "user", "content": SECRETS["prompt"]}]}
            bodies: list[bytes] = [
                json.dumps({"model": f"{SECRETS['model']} and a sentence", "stream": True} | prompt).encode(),
                json.dumps({"model": {"name": SECRETS["model"]}, "stream": False} | prompt).encode(),
                b'{"messages": "' + SECRETS["prompt"].encode() + b"\xff",
                SECRETS["prompt"].encode() * 5000,
            ]
            for number, body in enumerate(bodies):
                answer = await http.post(process.data_url, content=body, headers=headers | marks(config, number))
                written.append(str(answer.headers) + answer.text)
            other_run = {"x-shadowrun-run": SECRETS["header"]}
            answer = await http.post(
                process.data_url, content=bodies[0], headers=headers | marks(config, 9) | other_run
            )
            written.append(str(answer.headers) + answer.text)
            assert await _told_of_the_primary(http, process) == [204, 204, 413]
            for number in range(FAILURES):  # until the arm that is away is left alone
                named = headers | marks(config, 0) | {"x-request-id": f"{SECRETS['id']}{number or ''}"}
                await http.post(process.data_url, content=bodies[0], headers=named)
                await asyncio.sleep(0.01)
            evidence, text = await evidence_of(http, process)
            async with asyncio.timeout(10):
                while sum(c.in_flight.requests for c in evidence.windows[1].classes.values()):
                    await asyncio.sleep(0.05)
                    evidence, text = await evidence_of(http, process)
            written += [text, (await http.get(process.control_url + "/metrics")).text]
            process.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            await evidence_of(http, process)
            logs = await process.logs()
            worst.close()
    assert len(good.got) == 2 + FAILURES
    counted = evidence.windows[1].classes["default"]
    assert counted.primary.answered.requests == 1
    assert {arm: set(counted.arms[arm].failed) for arm in ("candidate", "control", "http2", "away")} == {
        "candidate": {"Malformed"},
        "control": {"Malformed", "BreakerOpen"},
        "http2": {"Malformed", "BreakerOpen"},
        "away": {"Connect", "BreakerOpen"},
    }
    assert "breaker turned" in logs
    assert SECRETS["prompt"] in good.got[0].body.decode()  # the search would find it if it were there
    assert good.got[0].values("authorization") == [f"Bearer {SECRETS['arm']}"]
    assert set(evidence.windows[1].classes["default"].dropped) == {"Unparsable"}
    assert "pair ended" in logs
    assert all(json.loads(line) for line in logs.splitlines())
    for place, secret in SECRETS.items():
        for text in (*written, logs):
            assert secret not in text, place
