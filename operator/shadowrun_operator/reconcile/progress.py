"""How far a run is, read from the books: what is merged, what adds up, what the warm-up still lacks. Judges nothing."""

from dataclasses import dataclass

from shadowrun_operator.judge.funnel import Funnel, funnel
from shadowrun_operator.judge.merge import Merged, merged
from shadowrun_operator.judge.rules import Rules, rules_of
from shadowrun_operator.judge.thresholds import Shortfall, shortfalls
from shadowrun_operator.manifests import names
from shadowrun_operator.reconcile.observation import Observation


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Times are UTC seconds; pairs are requests that every arm has finished, answered or not."""

    rules: Rules
    evidence: Merged
    funnel: Funnel
    lacking: tuple[Shortfall, ...]
    in_flight: int  # in mirrors that still live

    @property
    def pairs(self) -> int:
        """Counted pairs."""
        return self.evidence.pairs

    @property
    def tokens(self) -> int:
        """Prompt tokens of the counted pairs, estimated from bytes."""
        return self.funnel.pairs.tokens

    @property
    def first_counted(self) -> float | None:
        """When the first counted pair was complete."""
        return self.evidence.counted.first_pair

    @property
    def warm_up_since(self) -> float | None:
        """When the first pair of the warm-up was complete."""
        return self.evidence.warm_up.first_pair

    @property
    def warm_up_state(self) -> str:
        """What the warm-up lacks, for people."""
        if not self.lacking:
            return "The warm-up has the pairs it needs."
        first = self.lacking[0]
        where = f" in class {first.traffic_class}" if first.traffic_class else ""
        return f"The warm-up has {first.have} of {first.need} {first.what} that {first.criterion} needs{where}."


def progress(seen: Observation, *, final: bool = False) -> Progress:
    """Sums over every replica that ever counted for the run; `final` says that nothing more will come."""
    rules = rules_of(seen.run.spec)
    dead = seen.dead_mirrors()
    evidence = merged(
        seen.books.mirrors.values(),
        seen.books.captures.values(),
        dead=dead,
        missing=unread(seen) if final else (),
        warmed=seen.record.warmed if seen.record else None,
        final=final,
    )
    living = [e for key, e in seen.books.mirrors.items() if key not in dead]
    return Progress(
        rules=rules,
        evidence=evidence,
        funnel=funnel(evidence),
        lacking=shortfalls(rules, evidence.calibration),
        in_flight=sum(c.in_flight.requests for e in living for w in e.windows.values() for c in w.classes.values()),
    )


def unread(seen: Observation) -> tuple[str, ...]:
    """Pods that may have counted, still run, and were not read in this very look."""
    if seen.record is None or not seen.record.copying_since:
        return ()
    counting = (pod for pod in seen.pods if pod.component in (names.MIRROR, names.CAPTURE) and pod.address)
    return tuple(pod.name for pod in counting if pod.uid not in seen.read)
