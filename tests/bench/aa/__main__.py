"""`python -m tests.bench.aa [--runs N] [--effect-runs N] [--again] [--quick]`: the verdict against known truths.

On a cluster, with the demo's engine: runs of equal arms, which must not be told apart, and runs in which the prefix
cache is switched on or off, which must be seen in the right direction. Writes its tables into docs/benchmarks-aa.md.

An hour, most of it waiting. What is done is kept in .bench/aa.jsonl, and the same command goes on where it stopped; a
complete series is put aside and a new one begins. With --quick one run of each kind, to see that it works; nothing is
kept or written. Exit status 1 says that a goal was missed.
"""

import argparse
import signal
import sys
import time
from collections.abc import Sequence

from examples.demo import screen
from examples.demo.scenarios import Manifest, is_customers
from examples.demo.stage import Stage, refused
from tests.bench.aa.experiments import DEMO, Experiment, Outcome, experiments, outcome_of, shadow_run, site, template
from tests.bench.aa.kept import Kept, fingerprint
from tests.bench.aa.report import decisions, each_run, is_met, minutes
from tests.bench.machine import description
from tests.bench.tables import replaced
from tests.cluster.paths import REPOSITORY
from tests.cluster.providers import cluster

DOCUMENT = REPOSITORY / "docs" / "benchmarks-aa.md"
KEPT = Kept(REPOSITORY / ".bench" / "aa.jsonl")
NAMESPACE = "bench-aa"
EQUAL_S, EFFECT_S = 120, 480
QUICK_EQUAL_S = 90
PATIENCE_S = 1500
SAY_EVERY_S = 15.0


class Series:
    """The runs of one call, one after the other, on one namespace whose primary stays."""

    def __init__(self, stage: Stage, runs: Sequence[Experiment], equal_s: int) -> None:
        self._stage = stage
        self._runs = runs
        self._equal_s = equal_s
        self._took: list[float] = []

    def manifest(self, experiment: Experiment) -> Manifest:
        """The ShadowRun of an experiment."""
        return shadow_run(experiment, equal_s=self._equal_s, effect_s=EFFECT_S)

    def asked(self, experiment: Experiment) -> str:
        """Stands for everything that is applied for it."""
        everything = (template(experiment.baseline_cache), *site(experiment.seed))
        return fingerprint(self.manifest(experiment), *everything)

    def prepare(self) -> None:
        """The cluster, the operator, and the primary."""
        self._stage.prepare(DEMO.images, [m for m in site(0) if not is_customers(m)])

    def carry_out(self, experiment: Experiment) -> Outcome:
        """One run from its creation to its removal."""
        place = self._runs.index(experiment) + 1
        left = f", some {minutes(self._left(place))} to go" if self._took else ""
        self._stage.say(f"run {place} of {len(self._runs)}: {experiment.name}{left}")
        begun = time.monotonic()
        self._stage.apply(template(experiment.baseline_cache))
        self._stage.start(self.manifest(experiment), filter(is_customers, site(experiment.seed)))
        outcome = self._followed(experiment, begun)
        self._stage.kubectl("delete", "shadowrun", experiment.name, "--timeout=120s", timeout=130)
        self._took.append(time.monotonic() - begun)
        self._stage.say(f"{outcome.judgement} after {minutes(outcome.decided_s)}: {outcome.verdict}, {outcome.message}")
        return outcome

    def _left(self, place: int) -> float:
        return (len(self._runs) - place + 1) * sum(self._took) / len(self._took)

    def _followed(self, experiment: Experiment, begun: float) -> Outcome:
        status: screen.Status = {}
        decided_s, said_at, phase = 0.0, 0.0, ""
        for status in self._stage.follow(experiment.name):
            now = time.monotonic()
            if not decided_s and status.get("phase") in ("Finishing", "Complete"):
                decided_s = now - begun
            if status.get("phase") != phase or now - said_at > SAY_EVERY_S:
                phase, said_at = status.get("phase", ""), now
                self._stage.say(f"  {screen.one_line(status)[:150]}")
            if now - begun > PATIENCE_S:
                raise SystemExit(f"{experiment.name} does not end: {status.get('message', 'it has no status')}")
        if refused(status):
            raise SystemExit(f"{experiment.name} was not accepted: {screen.waiting_for(status)}")
        return outcome_of(experiment, status, decided_s=decided_s, complete_s=time.monotonic() - begun)


def carried_out(series: Series, runs: Sequence[Experiment], kept: Kept | None) -> list[Outcome]:
    """The outcomes of all runs, those of earlier calls included."""
    asked = {experiment.name: series.asked(experiment) for experiment in runs}
    done = {} if kept is None else kept.outcomes(asked)
    missing = [experiment for experiment in runs if experiment.name not in done]
    if kept is not None and not missing:
        kept.put_aside()
        done, missing = {}, list(runs)
    print(f"{len(missing)} of {len(runs)} runs to do", flush=True)
    series.prepare()
    for experiment in missing:
        outcome = done[experiment.name] = series.carry_out(experiment)
        if kept is not None:
            kept.add(asked[experiment.name], outcome)
    return [done[experiment.name] for experiment in runs]


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m tests.bench.aa", description=(__doc__ or "").splitlines()[0])
    p.add_argument("--runs", type=int, default=8, help="runs of equal arms")
    p.add_argument("--effect-runs", type=int, default=3, help="runs of the known effect, each way")
    p.add_argument("--again", action="store_true", help="put aside what is kept of a series and begin anew")
    p.add_argument("--quick", action="store_true", help="one run of each; nothing is kept or written")
    return p.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Run the series; 1 when a goal was missed, so that a script can tell."""
    options = arguments(argv)
    runs = experiments(1, 1) if options.quick else experiments(options.runs, options.effect_runs)
    if options.again:
        KEPT.put_aside()
    stage = Stage(cluster(), NAMESPACE)
    try:
        series = Series(stage, runs, QUICK_EQUAL_S if options.quick else EQUAL_S)
        outcomes = carried_out(series, runs, None if options.quick else KEPT)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on with the run it was at", flush=True)
        return 130
    finally:
        with stage.step(f"clearing up: namespace {NAMESPACE}"):
            stage.clear()
    conditions = f"Machine: {description()}."
    print(f"\n{decisions(outcomes)}\n\n{each_run(outcomes)}\n\n{conditions}", flush=True)
    if not options.quick:
        replaced(DOCUMENT, "aa-decisions", f"{decisions(outcomes)}\n\n{conditions}")
        replaced(DOCUMENT, "aa-runs", each_run(outcomes))
    met = all(is_met(truth, [o for o in outcomes if o.truth == truth]) for truth in {o.truth for o in outcomes})
    return int(not met)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # told to stop, it clears up as after Ctrl-C
    sys.exit(main(sys.argv[1:]))
