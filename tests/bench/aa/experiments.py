"""The experiments with a known truth: equal arms, and the prefix cache switched on or off. Data, and the rule that
tells a right decision from a wrong one. No cluster here.

All of them ask the same questions of the same traffic, the demo's; only the candidate's patch and how long it may take
differ. So the truth alone decides what must come out.

The primary is not what is measured, and does not compute: a third real engine would begin with every copy and, on two
cores, keep both arms and the mirror's clock waiting. The arms' template is a Deployment of its own, of no replicas.
"""

import copy
import math
from dataclasses import dataclass
from typing import Any, Literal

from examples.demo.scenarios import SCENARIOS, Manifest, is_customers

Truth = Literal["equal", "faster", "slower"]
Judgement = Literal["right", "wrong", "undecided", "void"]
Cache = Literal["on", "off"]

DEMO = SCENARIOS["prefix-cache"]
_SIMULATED = SCENARIOS["dropper"]
ENGINE_CONTAINER = "engine"
TEMPLATE = "engine"
ARM_CPU = "20m"
"""What an arm requests: a fifth of what the mirror does, so that its clock comes first where cores are few."""
TRAFFIC = ("--rate=1.2", "--prompt-scale=0.06", "--prompt-min=160", "--prompt-max=600")
"""Prompts twice as long as the demo's: TTFT is some tenths of a second then, and a tenth of that, by which a stamp may
be late, is more than a process waits for one of two cores now and then."""
_BETTER = "starts-faster"
_CRITERIA: list[dict[str, Any]] = [
    {"name": _BETTER, "metric": "TTFT", "quantile": "p50", "require": "Better", "minPairs": 60},
    {"name": "not-slower", "metric": "TTFT", "quantile": "p50", "require": "NotWorse", "margin": "20%", "minPairs": 60},
    {"name": "within-slo", "metric": "WithinSLO", "require": "NotWorse", "margin": "5%", "minPairs": 60},
    {"name": "failures", "metric": "Failures", "require": "NotWorse", "margin": "5%", "minPairs": 60},
]
_OPEN = ("Undecided", "ThresholdDrifted")
"""Reasons by which a run of equal arms stays open after a fair look; any other means that it was not judged."""


@dataclass(frozen=True)
class Experiment:
    """One run: what it compares, the prefix cache of primary and baseline, and the customers' seed."""

    truth: Truth
    number: int  # from 1, among those of its truth
    baseline_cache: Cache

    @property
    def name(self) -> str:
        """Name of its ShadowRun."""
        return f"{self.truth}-{self.number}"

    @property
    def seed(self) -> int:
        """Of the customers, another one for every run."""
        return {"equal": 1000, "faster": 2000, "slower": 3000}[self.truth] + self.number

    @property
    def candidate_cache(self) -> Cache:
        """The same for equal arms, else the other setting."""
        other: Cache = "on" if self.baseline_cache == "off" else "off"
        return self.baseline_cache if self.truth == "equal" else other

    @property
    def patch(self) -> Manifest:
        """The candidate's; empty for equal arms."""
        if self.truth == "equal":
            return {}
        env = [{"name": "PREFIX_CACHE", "value": self.candidate_cache}]
        return {"spec": {"containers": [{"name": ENGINE_CONTAINER, "env": env}]}}


@dataclass(frozen=True)
class Outcome:
    """What came of one run. Times are seconds since it was applied; `criteria` are outcomes by name."""

    name: str
    truth: Truth
    baseline_cache: Cache
    candidate_cache: Cache
    seed: int
    verdict: str
    reason: str
    end_reason: str
    message: str
    pairs: int
    criteria: dict[str, str]
    decided_s: float  # until copying ended, the verdict following within the timeout of a request
    complete_s: float  # until everything of the run was gone

    @property
    def judgement(self) -> Judgement:
        """Whether the run decided as the truth is; "void" is a run that something kept from being judged.

        Of equal arms nothing may be said but that neither is shown to be better: the criterion that asks for Better
        must stay open, and no other may be refuted.
        """
        if self.truth == "equal":
            if (
                self.verdict != "Inconclusive"
                or self.criteria.get(_BETTER) == "Pass"
                or "Fail" in self.criteria.values()
            ):
                return "wrong"
            return "right" if self.reason in _OPEN else "void"
        wanted, opposite = ("Pass", "Fail") if self.truth == "faster" else ("Fail", "Pass")
        if self.verdict in (wanted, opposite):
            return "right" if self.verdict == wanted else "wrong"
        return "undecided" if self.reason in (*_OPEN, "TooFewPairs") else "void"


def outcome_of(experiment: Experiment, status: Manifest, *, decided_s: float, complete_s: float) -> Outcome:
    """From the status of a run that is complete."""
    return Outcome(
        name=experiment.name,
        truth=experiment.truth,
        baseline_cache=experiment.baseline_cache,
        candidate_cache=experiment.candidate_cache,
        seed=experiment.seed,
        verdict=status.get("verdict", ""),
        reason=status.get("reason", ""),
        end_reason=status.get("endReason", ""),
        message=status.get("message", ""),
        pairs=status.get("pairs", 0),
        criteria={c["name"]: c["outcome"] for c in status.get("criteria", [])},
        decided_s=decided_s,
        complete_s=complete_s,
    )


def experiments(equal: int, effect: int) -> tuple[Experiment, ...]:
    """All runs of a series.

    Equal arms have no cache: with it the toy engine answers within the time by which a busy mirror may be late.
    """
    same = [Experiment("equal", n, "off") for n in range(1, equal + 1)]
    faster = [Experiment("faster", n, "off") for n in range(1, effect + 1)]
    return (*same, *faster, *(Experiment("slower", n, "on") for n in range(1, effect + 1)))


def shadow_run(experiment: Experiment, *, equal_s: int, effect_s: int) -> Manifest:
    """The demo's ShadowRun with these questions, to be decided within `effect_s` seconds of counting.

    Equal arms are watched for `equal_s`: what nothing tells apart has no other end.
    """
    run = DEMO.run()
    run["metadata"]["name"] = experiment.name
    spec = run["spec"]
    spec["arms"]["template"] = {"deploymentRef": {"name": TEMPLATE}}
    spec["arms"]["candidate"]["patch"] = experiment.patch
    spec["arms"]["warmup"] = {"duration": "15s", "requests": 50}
    spec["classes"] = []
    spec["coverage"] = {"minRequests": "75%", "minTokens": "65%"}  # it meets conversations that began before it
    spec["criteria"] = copy.deepcopy(_CRITERIA)
    spec["duration"] = f"{equal_s if experiment.truth == 'equal' else effect_s}s"
    spec["endConditions"] = {"minDuration": "30s", "decided": True}
    return run


def allowed_wrong(runs: int) -> int:
    """How many of so many runs of equal arms may decide wrongly: a tenth."""
    return math.ceil(runs / 10)


def site(seed: int) -> list[Manifest]:
    """A simulated primary, and the demo's customers with this seed and longer prompts."""
    primary = [m for m in _SIMULATED.site() if not is_customers(m)]
    (customers,) = filter(is_customers, DEMO.site())
    (traffic,) = customers["spec"]["template"]["spec"]["containers"]
    traffic["args"] += [*TRAFFIC, f"--seed={seed}"]  # the last of two equal options counts
    return [*primary, customers]


def template(baseline_cache: Cache) -> Manifest:
    """What both arms start as: the demo's engine with this setting of the cache, in a Deployment that runs none."""
    (deployment,) = (m for m in DEMO.site() if m["kind"] == "Deployment" and not is_customers(m))
    labels = {"app": TEMPLATE}
    deployment["metadata"]["name"] = TEMPLATE
    deployment["spec"] |= {"replicas": 0, "selector": {"matchLabels": labels}}
    pod = deployment["spec"]["template"]
    pod["metadata"]["labels"] = labels
    (engine,) = pod["spec"]["containers"]
    engine["env"] = [{**e, "value": baseline_cache} if e["name"] == "PREFIX_CACHE" else e for e in engine["env"]]
    engine["resources"]["requests"]["cpu"] = ARM_CPU
    return deployment
