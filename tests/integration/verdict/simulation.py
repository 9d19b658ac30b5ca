"""A whole run in simulated time: the operator's own plans, the mirror's own pipeline, the demo's customers and spec.

What is simulated is the cluster (`tests.unit.reconcile.world`), the engines (`engines`) and time. Everything random has
a seed, so a run can be repeated to the last digit. This module must not assert.
"""

import asyncio
import json
import random

from shadowrun_mirror.config import MirrorConfig, encode
from shadowrun_mirror.copied import Copy
from shadowrun_mirror.count import Counts
from shadowrun_mirror.dispatch import Dispatcher
from shadowrun_mirror.evidence import Evidence
from shadowrun_mirror.live import LiveConfig
from shadowrun_mirror.metrics import Metrics
from shadowrun_mirror.pipeline import Clocks, Pipeline

from examples.traffic.__main__ import arguments
from examples.traffic.arrivals import Shape, arrival_times
from examples.traffic.conversations import Conversation, Site
from tests.bench.aa.experiments import Experiment, Outcome, outcome_of, shadow_run, site, template
from tests.integration.verdict.engines import Arms, Engine, Unrest
from tests.unit.reconcile.world import START, World

_POOL = {"matchLabelKeys": ["gpu"], "nodeSelector": {"pool": "a"}}
"""What the nodes of the cluster in memory are labelled with."""
PATH = b"/v1/chat/completions"
LOOK_S = 5.0
"""How often the operator looks; it may end the run each time."""


class Customers:
    """The demo's customers: who asks what, and when. A conversation goes on once the primary has answered it."""

    def __init__(self, seed: int) -> None:
        (manifest,) = (m for m in site(seed) if m["metadata"]["name"] == "customers")
        asked = arguments(manifest["spec"]["template"]["spec"]["containers"][0]["args"])
        shape = Shape(asked.rate, asked.turns, asked.prompt_scale, asked.prompt_min, asked.prompt_max, asked.burstiness)
        source = random.Random(asked.seed)
        self._answer_tokens: int = asked.answer_tokens
        self._site = Site(shape, random.Random(source.random()), asked.conversations)
        self._words = random.Random(source.random())
        self._times = arrival_times(shape, random.Random(source.random()))
        self.next_at = START + next(self._times)

    def ask(self) -> tuple[Conversation, bytes]:
        """The request that comes at `next_at`."""
        conversation = self._site.speaker(self.next_at)
        self.next_at = START + next(self._times)
        return conversation, json.dumps(conversation.request("chat", self._answer_tokens, stream=True)).encode()

    def answered(self, conversation: Conversation) -> None:
        """The primary has."""
        conversation.answered("word " * self._answer_tokens, self._words)
        conversation.busy = False


class Traffic:
    """Customers, primary, mirror and arms, moved from one event to the next."""

    def __init__(self, experiment: Experiment, unrest: Unrest) -> None:
        caches = [experiment.baseline_cache, experiment.baseline_cache, experiment.candidate_cache]
        seeds = random.Random(experiment.seed)
        self._primary, *arms = (Engine(cache, unrest, seeds.getrandbits(32)) for cache in caches)
        self._arms = dict(zip(("x-baseline", "x-candidate"), arms, strict=True))
        self._customers = Customers(experiment.seed)
        self._now = START
        self._rng = random.Random(seeds.getrandbits(32))
        self._pipeline: Pipeline | None = None

    async def advance(self, until: float, config: MirrorConfig | None) -> Evidence | None:
        """Everything that happens up to `until`, under this configuration; what the mirror has counted by then."""
        if config is not None:
            self._configure(config)
        while (at := min(self._customers.next_at, *(engine.due for engine in self._engines))) <= until:
            self._now = at
            if at == self._customers.next_at:
                self._ask()
            else:
                min(self._engines, key=lambda engine: engine.due).step()
            await asyncio.sleep(0)  # a pair that has begun or ended does so now
        self._now = until
        return None if self._pipeline is None else Evidence.decode(encode(self._pipeline.evidence()))

    async def end(self) -> None:
        """Leave no pair behind."""
        if self._pipeline is not None:
            await self._pipeline.drain(0)

    @property
    def _engines(self) -> tuple[Engine, ...]:
        return (self._primary, *self._arms.values())

    def _ask(self) -> None:
        conversation, body = self._customers.ask()
        self._primary.submit(body, self._now, lambda *_: True, lambda _: self._customers.answered(conversation))
        if self._pipeline is not None and self._pipeline.copying:
            headers = ((b"content-type", b"application/json"), (b"x-conversation-id", conversation.id.encode()))
            window = self._pipeline.live.config.window
            copy = Copy(target=PATH, headers=headers, body=body, size=len(body), window=window, complete_at=self._now)
            self._pipeline.take(copy)

    def _configure(self, config: MirrorConfig) -> None:
        if self._pipeline is not None:
            refused = self._pipeline.live.offer(config, self._now, self._now)
            if refused is not None:
                raise ValueError(f"{refused.field} {refused.message}")
            return
        clocks = Clocks(wall=lambda: self._now, mono=lambda: self._now)
        client = Arms(self._arms, clocks.mono)
        self._pipeline = Pipeline(
            LiveConfig(config, self._now, self._now),
            Counts(config.run_uid, "mirror-0", "uid-mirror-0", "e"),
            Metrics(config),
            Dispatcher(client, client, lambda _: None, self._rng, clocks.mono),
            clocks,
            chance=self._rng.randrange,
        )


class Cluster(World):
    """The cluster in memory, with traffic that goes on while its time passes."""

    traffic: Traffic
    runner: asyncio.Runner

    def pass_time(self, seconds: float) -> None:
        """Pods start, customers ask, arms answer, the mirror counts."""
        self._start_pods()
        config = self.mirror
        self.now += seconds
        counted = self.runner.run(self.traffic.advance(self.now, config))
        self.evidence = {counted.source.pod_uid: counted} if config is not None and counted is not None else {}


def simulated(experiment: Experiment, unrest: Unrest, *, equal_s: int, effect_s: int) -> Outcome:
    """What comes of one run on engines of this unrest."""
    empty = World.with_spec()
    spec = shadow_run(experiment, equal_s=equal_s, effect_s=effect_s)["spec"]
    arms = template(experiment.baseline_cache)
    users = {**empty.users, ("Deployment", arms["metadata"]["name"]): arms}
    cluster = Cluster(body={**empty.body, "spec": {**spec, "hardware": _POOL}}, users=users)
    cluster.traffic = Traffic(experiment, unrest)
    decided_s = 0.0
    with asyncio.Runner() as runner:
        cluster.runner = runner
        while cluster.phase != "Complete":
            cluster.turn(seconds=LOOK_S)
            if not decided_s and cluster.phase in ("Finishing", "Complete"):
                decided_s = cluster.now - START
        runner.run(cluster.traffic.end())
    return outcome_of(experiment, cluster.body["status"], decided_s=decided_s, complete_s=cluster.now - START)
