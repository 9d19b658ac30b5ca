"""Engines in simulated time, behind the mirror's own seam for clients; its dispatcher and readers are the real ones.

An engine is the scheduler and the prefix cache of the simulator in examples/; every step lasts as long as planned times
a factor of that engine alone, lognormal and slowly changing, as neighbours on a node make it. No socket, no clock.
"""

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from shadowrun_mirror.client import Ended, Exchange, HeadObjection, Request, Running
from shadowrun_mirror.stream import Reader

from examples.engine.scheduler import Job, PrefixCache, Scheduler, Speed
from tests.integration.mirror.engine import DONE, FINISH, ROLE, chunk_json, event, usage_event

SPEED = Speed(prefill_s=0.0005, decode_s=0.006, decode_token_s=0.0005, batch_tokens=512, slots=2)
_WRITE_S = 1e-4
_HEAD = ((b"content-type", b"text/event-stream"),)
_WORD = event(chunk_json(" word"))


@dataclass(frozen=True)
class Unrest:
    """How much an engine's speed varies (standard deviation of its logarithm), and how long that lasts in seconds."""

    spread: float
    lasts_s: float


CALM, RESTLESS = Unrest(0.15, 2.0), Unrest(0.25, 4.0)


@dataclass(frozen=True)
class _Open:
    """An answer on its way: who reads it, since when, and how long it will be."""

    feed: Callable[[bytes, float], bool]
    ended: Ended
    written_at: float
    prompt: int
    cached: int
    output: int


class Engine:
    """One engine. `due` is when its current step ends; infinity while it is idle."""

    def __init__(self, cache: str, unrest: Unrest, seed: int) -> None:
        self.due = math.inf
        self._unrest = unrest
        self._cache = PrefixCache(4096) if cache == "on" else None
        self._scheduler = Scheduler(SPEED)
        self._producing: list[Job] = []
        self._open: dict[Job, _Open] = {}
        self._random = random.Random(seed)
        self._load, self._load_at = self._random.gauss(0, 1), 0.0

    def submit(self, body: bytes, now: float, feed: Callable[[bytes, float], bool], ended: Ended) -> None:
        """Take a request; its answer is fed as it comes, and `ended` is called at its end."""
        asked = json.loads(body)
        tokens = " ".join(message["content"] for message in asked["messages"]).split()
        cached = self._cache.cached_tokens(tokens) if self._cache else 0
        job = Job(prompt_left=len(tokens) - cached, output_left=asked["max_tokens"])
        self._open[job] = _Open(feed, ended, now, len(tokens), cached, asked["max_tokens"])
        self._scheduler.submit(job)
        if math.isinf(self.due):
            self._begin(now)

    def step(self) -> None:
        """End the current step, at `due`: everybody who has a new token is given it."""
        now = self.due
        for job in self._producing:
            answer = self._open[job]
            answer.feed(ROLE + _WORD if job.given == 1 else _WORD, now)
            if not job.output_left:
                del self._open[job]
                answer.feed(FINISH + usage_event(answer.prompt, answer.output, answer.cached) + DONE, now)
                answer.ended(Exchange(failure=None, written_at=answer.written_at, whole=True))
        self._begin(now)

    def _begin(self, now: float) -> None:
        if self._scheduler.idle:
            self.due = math.inf
            return
        seconds, self._producing = self._scheduler.step()
        kept = math.exp((self._load_at - now) / self._unrest.lasts_s)
        self._load = self._load * kept + math.sqrt(1 - kept * kept) * self._random.gauss(0, 1)
        self._load_at = now
        self.due = now + seconds * math.exp(self._unrest.spread * self._load)


class Arms:
    """The mirror's client: requests go to the engine that their host names. `now` gives the simulated time."""

    def __init__(self, engines: dict[str, Engine], now: Callable[[], float]) -> None:
        """`engines` by the first label of their host."""
        self._engines = engines
        self._now = now
        self._written_at = 0.0

    def start(self, request: Request, reader: Reader, objection: HeadObjection, ended: Ended) -> Running:
        """Submit at once. Heads are fine always, so the objection is heard before the first token."""
        assert objection(200, _HEAD) is None
        self._written_at = max(self._now(), self._written_at + _WRITE_S)
        self._engines[request.host.partition(".")[0]].submit(request.body, self._written_at, reader.feed, ended)
        return _Started()


class _Started:
    def give_up(self) -> None:
        """Never wanted: no answer here takes as long as a request may."""
        raise AssertionError("an exchange was given up")
