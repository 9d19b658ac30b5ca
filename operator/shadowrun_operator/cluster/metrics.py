"""The operator's own metrics for Prometheus. Labels come from fixed lists only."""

from collections import Counter as Tally
from collections.abc import Iterable
from typing import get_args

from prometheus_client import Counter, Gauge, Histogram

from shadowrun_operator.api.status import Phase

PASS_SECONDS = Histogram("shadowrun_operator_pass_seconds", "Length of one pass over a run.")
FAILED_PASSES = Counter("shadowrun_operator_failed_passes", "Passes that failed and were repeated.", ["kind"])
RUNS = Gauge("shadowrun_operator_runs", "ShadowRuns by phase, as of the last sweep.", ["phase"])

for _phase in get_args(Phase):
    RUNS.labels(phase=_phase).set(0)


def count_phases(phases: Iterable[str]) -> None:
    """Set the number of runs in each phase."""
    tally = Tally(phases)
    for phase in get_args(Phase):
        RUNS.labels(phase=phase).set(tally[phase])
