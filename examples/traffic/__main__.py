"""The traffic generator: sends to one URL until told to stop, and says what came of every request.

It never retries and never hides a failure: what it counts as failed is what a customer would have seen fail.

    python -m examples.traffic --url http://chat:8000 --rate 1

A live count goes to standard output. SIGTERM, SIGINT or --duration ends it: open requests may finish within
--grace seconds, then a summary is printed as one line of JSON and written to --summary. With --failures every failure
is a line of JSON there with its time. Exit status: 0 = no request failed, 1 = some did, 2 = nothing was answered.
"""

import argparse
import asyncio
import contextlib
import json
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import aiohttp

from examples.traffic.arrivals import MEAN_TURNS, Shape, arrival_times
from examples.traffic.client import Answer, ask
from examples.traffic.conversations import Site

REQUESTS_PER_CONNECTION = 20
"""On average. Connections that are never closed would never meet what stands before the engine by now."""
REPORT_EVERY_S = 5.0


@dataclass
class Tally:
    """What has come of the requests so far; times are seconds, `failures` counts by kind."""

    sent: int = 0
    ok: int = 0
    failed: int = 0
    in_flight: int = 0
    behind_s: float = 0.0
    failures: dict[str, int] = field(default_factory=dict)
    first_failure: str = ""
    last_failure: str = ""
    ttft: list[float] = field(default_factory=list)

    def count(self, answer: Answer, now: datetime) -> None:
        """Count one finished request."""
        self.in_flight -= 1
        if answer.failure is None:
            self.ok += 1
            if answer.ttft_s is not None:
                self.ttft = [*self.ttft[-999:], answer.ttft_s]
            return
        self.failed += 1
        self.failures[answer.failure] = self.failures.get(answer.failure, 0) + 1
        self.last_failure = now.isoformat(timespec="milliseconds")
        self.first_failure = self.first_failure or self.last_failure

    def quantile(self, p: float) -> float | None:
        """Quantile of the last 1,000 times to the first token, in seconds."""
        ranked = sorted(self.ttft)
        return ranked[min(len(ranked) - 1, int(p * len(ranked)))] if ranked else None

    def line(self) -> str:
        """One line for a person."""
        p50, p95 = self.quantile(0.5), self.quantile(0.95)
        times = f"  first token p50 {p50:.2f} s, p95 {p95:.2f} s" if p50 is not None and p95 is not None else ""
        return f"sent {self.sent}  ok {self.ok}  failed {self.failed}  open {self.in_flight}{times}"

    def summary(self, seconds: float) -> dict[str, object]:
        """The whole tally for a program."""
        told = {k: v for k, v in asdict(self).items() if k != "ttft"}
        return {
            **told,
            "seconds": round(seconds, 3),
            "ttft_p50_s": self.quantile(0.5),
            "ttft_p95_s": self.quantile(0.95),
        }


def arguments(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m examples.traffic", description=(__doc__ or "").splitlines()[0])
    p.add_argument("--url", required=True, help="where to send, for instance http://chat:8000")
    p.add_argument("--path", default="/v1/chat/completions")
    p.add_argument("--model", default="chat")
    p.add_argument("--rate", type=float, default=1.0, help="requests a second, on average")
    p.add_argument("--burstiness", type=float, default=1.0, help="1 = as the fitted trace, 0 = Poisson")
    p.add_argument("--turns", type=float, default=MEAN_TURNS, help="turns a conversation has on average")
    p.add_argument("--conversations", type=int, default=8, help="conversations alive at once")
    p.add_argument("--prompt-scale", type=float, default=1.0, help="prompt lengths = the trace's x this")
    p.add_argument("--prompt-min", type=int, default=1, help="shortest document, in tokens")
    p.add_argument("--prompt-max", type=int, default=1_000_000, help="longest document, in tokens")
    p.add_argument("--answer-tokens", type=int, default=16, help="longest answer asked for")
    p.add_argument("--answer-min", type=int, help="shortest answer asked for (default: all as long as the longest)")
    p.add_argument("--no-stream", dest="stream", action="store_false")
    p.add_argument(
        "--connection", choices=["keep", "close"], default="keep", help="keep connections for a while, or close each"
    )
    p.add_argument("--timeout", type=float, default=120.0, help="seconds a request may take in all")
    p.add_argument("--duration", type=float, default=0.0, help="seconds to send; 0 = until told to stop")
    p.add_argument("--grace", type=float, default=30.0, help="seconds open requests get at the end")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--failures", type=Path, help="append every failure to this file, one line of JSON each")
    p.add_argument("--summary", type=Path, help="write the summary to this file")
    options = p.parse_args(argv)
    if options.answer_min is not None and not 0 < options.answer_min <= options.answer_tokens:
        p.error(f"--answer-min {options.answer_min} is not between 1 and --answer-tokens {options.answer_tokens}")
    return options


def _log(stream: TextIO | None, answer: Answer, conversation: str, sent: datetime, now: datetime) -> None:
    if stream is not None and answer.failure is not None:
        stamps = {"sent": sent.isoformat(timespec="milliseconds"), "time": now.isoformat(timespec="milliseconds")}
        told = {**stamps, "conversation": conversation, "failure": answer.failure, "detail": answer.detail}
        stream.write(json.dumps(told) + "\n")
        stream.flush()


async def _report(tally: Tally) -> None:
    while True:
        await asyncio.sleep(REPORT_EVERY_S)
        print(tally.line(), flush=True)


async def _send_until(stop: asyncio.Event, options: argparse.Namespace, tally: Tally, log: TextIO | None) -> None:
    source = random.Random(options.seed)
    shape = Shape(
        rate=options.rate,
        mean_turns=options.turns,
        scale=options.prompt_scale,
        shortest=options.prompt_min,
        longest=options.prompt_max,
        burstiness=options.burstiness,
    )
    site = Site(shape, random.Random(source.random()), options.conversations)
    answers = random.Random(source.random())
    arrivals = arrival_times(shape, random.Random(source.random()))
    lengths = random.Random(source.random())
    shortest = options.answer_tokens if options.answer_min is None else options.answer_min
    connector = aiohttp.TCPConnector(limit=0, force_close=options.connection == "close")
    timeout = aiohttp.ClientTimeout(total=options.timeout)
    renewals = random.Random(~options.seed)
    begun = time.monotonic()

    async def one() -> None:
        conversation = site.speaker(time.monotonic() - begun)
        tally.sent += 1
        tally.in_flight += 1
        sent = datetime.now(UTC)
        body = conversation.request(options.model, lengths.randint(shortest, options.answer_tokens), options.stream)
        last = renewals.random() < 1 / REQUESTS_PER_CONNECTION
        answer = await ask(session, options.url + options.path, body, conversation.id, last=last)
        tally.count(answer, now := datetime.now(UTC))
        _log(log, answer, conversation.id, sent, now)
        conversation.answered(answer.text, answers)
        conversation.busy = False

    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session, asyncio.TaskGroup() as group:
        open_requests: set[asyncio.Task[None]] = set()
        for at in arrivals:
            if options.duration and at > options.duration:
                break
            tally.behind_s = max(tally.behind_s, time.monotonic() - begun - at)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), max(0.0, begun + at - time.monotonic()))
            if stop.is_set():
                break
            task = group.create_task(one())
            open_requests.add(task)
            task.add_done_callback(open_requests.discard)
        if open_requests:
            await asyncio.wait(set(open_requests), timeout=options.grace)
        for task in open_requests:
            task.cancel()


async def run(options: argparse.Namespace) -> int:
    """Send until stopped; returns the exit status."""
    tally, stop = Tally(), asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    begun = time.monotonic()
    with contextlib.ExitStack() as files:
        log = files.enter_context(options.failures.open("a")) if options.failures else None
        reporter = asyncio.create_task(_report(tally))
        try:
            await _send_until(stop, options, tally, log)
        finally:
            reporter.cancel()
    told = json.dumps(tally.summary(time.monotonic() - begun))
    print(told, flush=True)
    if options.summary:
        options.summary.write_text(told + "\n")
    if not tally.ok:
        return 2
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(run(arguments(sys.argv[1:]))))
