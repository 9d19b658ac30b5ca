"""A simulated engine with an OpenAI-compatible server: real protocol, modelled time, faults on request.

For what a real engine can't be asked to do: be a known percentage slower, hang on long prompts, cut streams. A token
is a word. It must not look at who asks: baseline and candidate differ by their options only.

    python -m examples.engine.simulator --port 8000

Every option can be given in the environment too, as its name in capitals with underscores (DROP_LONGEST_OVER=400);
the command line wins. Faults hit a share of requests chosen by a hash of the prompt and --seed, so the same prompt
meets the same fault again.
"""

import argparse
import asyncio
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from examples.engine.scheduler import Job, PrefixCache, Scheduler, Speed

_SYLLABLES = ("ba", "do", "fi", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wu", "xe", "zo")


def arguments(argv: list[str], environment: Mapping[str, str]) -> argparse.Namespace:
    """The options, from the environment where it has them and from the command line before that."""
    p = argparse.ArgumentParser(prog="python -m examples.engine.simulator", description=(__doc__ or "").splitlines()[0])
    p.add_argument("--port", type=int, default=8000)
    p.add_argument("--model-name", default="chat")
    p.add_argument("--prefill-ms", type=float, default=0.5, help="milliseconds per prompt token")
    p.add_argument("--decode-ms", type=float, default=5.0, help="milliseconds per step that decodes")
    p.add_argument("--batch-tokens", type=int, default=512, help="prompt tokens per step")
    p.add_argument("--slots", type=int, default=8, help="requests computed at once")
    p.add_argument("--speed", type=float, default=1.0, help="divides every time: 2 = twice as fast")
    p.add_argument("--prefill-factor", type=float, default=1.0, help="1.25 = 25%% slower per prompt token")
    p.add_argument("--prefix-cache", choices=["on", "off"], default="off")
    p.add_argument("--cache-blocks", type=int, default=4096, help="size of the prefix cache in blocks of 32 tokens")
    p.add_argument("--answer-tokens", type=int, default=16, help="length of an answer where the request names none")
    p.add_argument("--answer-begins", default="", help="first token of every answer, for looking where answers end up")
    p.add_argument("--drop-longest-over", type=int, default=0, help="never answer prompts longer than this; 0 = off")
    p.add_argument("--error-rate", type=float, default=0.0, help="share answered with 500")
    p.add_argument("--busy-rate", type=float, default=0.0, help="share answered with 429")
    p.add_argument("--cut-rate", type=float, default=0.0, help="share of streams cut in the middle")
    p.add_argument("--stream-error-rate", type=float, default=0.0, help="share with an error event inside a 200")
    p.add_argument("--stall-rate", type=float, default=0.0, help="share that goes silent in the middle for good")
    p.add_argument("--empty-rate", type=float, default=0.0, help="share that ends properly without content")
    p.add_argument("--usage", choices=["on", "off"], default="on", help="off = never report token counts")
    p.add_argument("--tokens-per-chunk", type=int, default=1, help="tokens bundled in one event")
    p.add_argument("--ready-after", type=float, default=0.0, help="seconds until /health answers 200; negative = never")
    p.add_argument("--seed", type=int, default=1)
    known = {action.dest for action in p._actions if action.option_strings}
    from_environment = [
        f"--{name.replace('_', '-')}={environment[name.upper()]}"
        for name in sorted(known)
        if name.upper() in environment
    ]
    return p.parse_args([*from_environment, *argv])


def _share(prompt: str, seed: int, fault: str) -> float:
    """A number in [0, 1) that depends on the prompt, the seed and the kind of fault only."""
    digest = hashlib.blake2b(f"{seed}:{fault}:{prompt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def _prompt(body: dict[str, Any]) -> str:
    if "messages" in body:
        return "\n".join(f"{m['role']}: {m['content']}" for m in body["messages"])
    return str(body["prompt"])


def _word(prompt: str, index: int, seed: int) -> str:
    """The same prompt gets the same words, whatever arm it runs on."""
    number = int(_share(f"{index}:{prompt}", seed, "word") * 4096)
    return " " + "".join(_SYLLABLES[(number >> shift) & 15] for shift in (0, 4, 8))


class Simulator:
    """One engine: its scheduler runs in `serve`, its handlers answer HTTP."""

    def __init__(self, options: argparse.Namespace) -> None:
        """`options` as from `arguments`."""
        self.options = options
        scale = 1e-3 / options.speed
        self.scheduler = Scheduler(
            Speed(
                prefill_s=options.prefill_ms * options.prefill_factor * scale,
                decode_s=options.decode_ms * scale,
                decode_token_s=options.decode_ms * scale / 20,
                batch_tokens=options.batch_tokens,
                slots=options.slots,
            )
        )
        self.cache = PrefixCache(options.cache_blocks) if options.prefix_cache == "on" else None
        self._arrived = asyncio.Event()
        self._stepped: dict[Job, asyncio.Event] = {}
        self._begun = time.monotonic()

    def application(self) -> web.Application:
        """The server, with the scheduler running as long as it does."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/completions", self._complete)
        app.cleanup_ctx.append(self._stepping)
        return app

    async def _stepping(self, app: web.Application) -> Any:
        task = asyncio.create_task(self._run())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        ends = time.monotonic()
        while True:
            if self.scheduler.idle:
                self._arrived.clear()
                await self._arrived.wait()
                ends = time.monotonic()
            seconds, producing = self.scheduler.step()
            ends += seconds  # against the plan, not the last wake-up, so that a late wake-up does not add up
            await asyncio.sleep(max(0.0, ends - time.monotonic()))
            for job in producing:
                if (event := self._stepped.get(job)) is not None:
                    event.set()

    async def _health(self, request: web.Request) -> web.Response:
        after = self.options.ready_after
        ready = after >= 0 and time.monotonic() - self._begun >= after
        return web.json_response({"status": "ok" if ready else "loading"}, status=200 if ready else 503)

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self.options.model_name, "object": "model"}]})

    def _hit(self, prompt: str, fault: str) -> bool:
        rate: float = getattr(self.options, f"{fault}_rate")
        return _share(prompt, self.options.seed, fault) < rate

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json()
            prompt = _prompt(body)
        except (ValueError, KeyError, TypeError) as e:
            return web.json_response({"error": {"message": f"not understood: {type(e).__name__}"}}, status=400)
        tokens = prompt.split()
        if self._hit(prompt, "error"):
            return web.json_response({"error": {"message": "simulated failure"}}, status=500)
        if self._hit(prompt, "busy"):
            return web.json_response({"error": {"message": "simulated overload"}}, status=429)
        if 0 < self.options.drop_longest_over < len(tokens):
            await asyncio.Event().wait()  # until the client goes: its disconnect cancels this handler
        cached = self.cache.cached_tokens(tokens) if self.cache else 0
        wanted = int(body.get("max_tokens") or body.get("max_completion_tokens") or self.options.answer_tokens)
        job = Job(prompt_left=max(1, len(tokens) - cached), output_left=max(1, wanted))
        usage = {
            "prompt_tokens": len(tokens),
            "completion_tokens": max(1, wanted),
            "total_tokens": len(tokens) + max(1, wanted),
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        self._stepped[job] = asyncio.Event()
        self.scheduler.submit(job)
        self._arrived.set()
        try:
            if body.get("stream"):
                return await self._stream(request, body, prompt, job, usage)
            return await self._whole(body, prompt, job, usage)
        finally:
            self.scheduler.cancel(job)
            del self._stepped[job]

    def _words(self, prompt: str, places: range) -> str:
        """The tokens of an answer at these places."""
        first = self.options.answer_begins
        return "".join(first if first and place == 0 else _word(prompt, place, 0) for place in places)

    async def _given(self, job: Job) -> int:
        """Wait for the next step that gives the job tokens; how many they are in all."""
        event = self._stepped[job]
        await event.wait()
        event.clear()
        return job.given

    async def _whole(self, body: dict[str, Any], prompt: str, job: Job, usage: dict[str, Any]) -> web.Response:
        while job.output_left:
            await self._given(job)
        text = "" if self._hit(prompt, "empty") else self._words(prompt, range(job.given))
        message = {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
        answer: dict[str, Any] = {**self._frame(body), "choices": [{"index": 0, "finish_reason": "length", **message}]}
        if self.options.usage == "on":
            answer["usage"] = usage
        return web.json_response(answer)

    def _frame(self, body: dict[str, Any]) -> dict[str, Any]:
        kind = "chat.completion" if "messages" in body else "text_completion"
        if body.get("stream") and "messages" in body:
            kind += ".chunk"
        return {"id": "sim", "object": kind, "created": int(time.time()), "model": self.options.model_name}

    async def _stream(
        self, request: web.Request, body: dict[str, Any], prompt: str, job: Job, usage: dict[str, Any]
    ) -> web.StreamResponse:
        chat = "messages" in body
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})

        async def event(choices: list[dict[str, Any]], **more: Any) -> None:
            text = json.dumps({**self._frame(body), "choices": choices, **more}, separators=(",", ":"))
            await response.write(f"data: {text}\n\n".encode())

        def piece(text: str) -> dict[str, Any]:
            return {"index": 0, "finish_reason": None, **({"delta": {"content": text}} if chat else {"text": text})}

        empty, half = self._hit(prompt, "empty"), job.output_left // 2
        sent, begun = 0, False
        while job.output_left or sent < job.given:
            given = await self._given(job)
            if not begun:
                await response.prepare(request)
                if chat:
                    await event([{"index": 0, "finish_reason": None, "delta": {"role": "assistant", "content": ""}}])
                begun = True
            size = self.options.tokens_per_chunk
            while given - sent >= size or (sent < given and not job.output_left):
                end = min(sent + size, given)
                if not empty:
                    await event([piece(self._words(prompt, range(sent, end)))])
                sent = end
            if sent > half:
                if self._hit(prompt, "cut"):
                    if request.transport is not None:
                        request.transport.abort()
                    return response
                if self._hit(prompt, "stream_error"):
                    await response.write(b'data: {"error":{"message":"simulated failure","code":500}}\n\n')
                    return response
                if self._hit(prompt, "stall"):
                    await asyncio.Event().wait()
        await event([{"index": 0, "finish_reason": "length", **({"delta": {}} if chat else {"text": ""})}])
        if self.options.usage == "on" and (body.get("stream_options") or {}).get("include_usage"):
            await event([], usage=usage)
        await response.write(b"data: [DONE]\n\n")
        return response


async def serve(options: argparse.Namespace) -> None:
    """Serve until cancelled or told to stop."""
    # Kept for longer than a test lasts: a proxy without retries fails a request that meets the end of its connection.
    runner = web.AppRunner(
        Simulator(options).application(), handler_cancellation=True, keepalive_timeout=3600.0, shutdown_timeout=25.0
    )
    await runner.setup()
    site = web.TCPSite(runner, "0.0.0.0", options.port)  # noqa: S104  (a server in a pod)
    await site.start()
    print(f"serving on {site.name}", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def main() -> int:
    """Run the simulator; SIGTERM ends it after open answers."""
    options = arguments(sys.argv[1:], os.environ)

    async def until_told() -> None:
        task = asyncio.current_task()
        assert task is not None
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, task.cancel)
        await serve(options)

    try:
        asyncio.run(until_told())
    except asyncio.CancelledError:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
