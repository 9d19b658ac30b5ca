"""The timing of a simulated engine: continuous batching in steps, with a prefix cache. No clock: callers sleep.

A step computes up to `batch_tokens` prompt tokens, first come first served, and one output token for every request
whose prompt is done; it lasts as long as both together. So a long prompt delays everyone's tokens, queues form when
too much arrives, and both vanish with the load, as in a real engine. Lengths are in tokens, times in seconds.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

BLOCK = 32


@dataclass(frozen=True)
class Speed:
    """How fast it computes: seconds per prompt token, seconds per step that decodes, seconds per decoded token."""

    prefill_s: float = 0.0005
    decode_s: float = 0.005
    decode_token_s: float = 0.0005
    batch_tokens: int = 512
    slots: int = 8


class PrefixCache:
    """Which prompt beginnings are computed already, in blocks of `BLOCK` tokens; the least recently used go first."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._known: OrderedDict[int, None] = OrderedDict()

    def cached_tokens(self, tokens: Sequence[str]) -> int:
        """How many leading tokens are known; afterwards the whole prompt is. Never all of it: one must be computed."""
        chain, hits, matching = 0, 0, True
        for end in range(BLOCK, len(tokens) + 1, BLOCK):
            chain = hash((chain, *tokens[end - BLOCK : end]))
            matching = matching and chain in self._known
            hits += matching
            self._known[chain] = None
            self._known.move_to_end(chain)
        while len(self._known) > self._blocks:
            self._known.popitem(last=False)
        return min(hits * BLOCK, max(0, len(tokens) - 1))


@dataclass(eq=False)
class Job:
    """A request in the engine: prompt tokens still to compute, output tokens still to give, given since last asked."""

    prompt_left: int
    output_left: int
    given: int = 0


@dataclass
class Scheduler:
    """The queue and the running batch."""

    speed: Speed
    waiting: deque[Job] = field(default_factory=deque)
    running: list[Job] = field(default_factory=list)

    def submit(self, job: Job) -> None:
        """Queue a job."""
        self.waiting.append(job)

    def cancel(self, job: Job) -> None:
        """Forget a job wherever it is."""
        if job in self.waiting:
            self.waiting.remove(job)
        if job in self.running:
            self.running.remove(job)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to compute."""
        return not self.waiting and not self.running

    def step(self) -> tuple[float, list[Job]]:
        """Plan one step: its duration in seconds, and the jobs that have one more token when it is over."""
        while self.waiting and len(self.running) < self.speed.slots:
            self.running.append(self.waiting.popleft())
        decoding = [job for job in self.running if job.prompt_left == 0]
        budget, finished = self.speed.batch_tokens, []
        for job in self.running:
            if job.prompt_left and budget:
                taken = min(job.prompt_left, budget)
                job.prompt_left -= taken
                budget -= taken
                if not job.prompt_left:
                    finished.append(job)
        seconds = (self.speed.batch_tokens - budget) * self.speed.prefill_s
        if decoding:
            seconds += self.speed.decode_s + len(decoding) * self.speed.decode_token_s
        producing = decoding + finished
        for job in producing:
            job.output_left -= 1
            job.given += 1
        self.running = [job for job in self.running if job.output_left > 0]
        return seconds, producing
