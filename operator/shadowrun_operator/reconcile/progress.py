"""How far a run is, read from the books: what is merged, what adds up, what is lacking, how the criteria stand."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from shadowrun_operator.judge.criteria import CriterionResult, Outcome
from shadowrun_operator.judge.facts import Facts
from shadowrun_operator.judge.funnel import Funnel, funnel
from shadowrun_operator.judge.guards import case_of
from shadowrun_operator.judge.live_path import Watch, harm, watched
from shadowrun_operator.judge.matches import ArmMatches, matches, rate_is_proven
from shadowrun_operator.judge.merge import Merged, merged
from shadowrun_operator.judge.rules import Rules, rules_of
from shadowrun_operator.judge.thresholds import Shortfall, shortfalls
from shadowrun_operator.judge.verdict import prospect
from shadowrun_operator.manifests import names
from shadowrun_operator.reconcile.clocks import began
from shadowrun_operator.reconcile.known import facts_of
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.pending import POLL_S
from shadowrun_operator.reconcile.rate import Pace, asked, paced, selected_count
from shadowrun_operator.reconcile.record import RunRecord
from shadowrun_operator.reconcile.standing import MATCH_RATE, VERDICT, Standing, holding_s, standings

GRACE_S = 15.0
"""Beyond the request timeout: how long the last evidence is waited for."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Times are UTC seconds; pairs are requests that every arm has finished, answered or not."""

    rules: Rules
    evidence: Merged
    funnel: Funnel
    lacking: tuple[Shortfall, ...]
    in_flight: int  # in mirrors that still live
    watch: Watch | None  # what has been seen of customers, this look included
    harm: str | None  # by how much copying costs them more than it may
    pace: Pace  # how far the rates are lowered, this look included
    facts: Facts | None  # what else is known; None before the run was accepted
    now: float
    warm_up_since: float | None  # when the first pair of the warm-up was complete
    first_counted: float | None  # when the first counted pair was complete
    rewarming_since: float | None  # when the first pair was complete after the arms had changed places
    stood: Mapping[str, Standing]  # since when criteria and verdict were decided, this look not included
    holding_s: float  # how long they must have been before a run may end by it

    @property
    def results(self) -> tuple[CriterionResult, ...]:
        """Every criterion as it stands; empty before anything counts, and where the judge failed."""
        return self._judged[0]

    @property
    def gating(self) -> tuple[CriterionResult, ...]:
        """Those that take part in the verdict."""
        return tuple(r for r in self.results if not r.informational)

    @property
    def prospect(self) -> Outcome:
        """The verdict there would be if the run ended in a normal way now."""
        return self._judged[1][0]

    @property
    def against(self) -> str:
        """What stands against a verdict now, for people; "" where there would be one."""
        verdict, message = self._judged[1]
        return message if verdict == "Inconclusive" else ""

    @cached_property
    def standings(self) -> dict[str, Standing]:
        """Since when criteria that gate, verdict and match rate have been decided as they are, this look included."""
        stand: dict[str, Outcome] = {r.name: r.outcome for r in self.gating}
        stand[VERDICT] = self.prospect
        stand[MATCH_RATE] = "Pass" if rate_is_proven(self.rules, self.matches) else "Inconclusive"
        return standings(self.stood, stand, self.now)

    def stands(self, name: str, outcome: Outcome) -> bool:
        """Whether a criterion (or `VERDICT`) has been decided like this for so long that a run may end by it."""
        found = self.standings.get(name)
        return found is not None and found.outcome == outcome and self.now - found.since >= self.holding_s

    @property
    def judge_error(self) -> str:
        """What went wrong in the judge, "" where nothing did."""
        return self._judged[2]

    @property
    def matches(self) -> tuple[ArmMatches, ...]:
        """How often the arms' answers match; empty where they are not compared, and where the judge failed."""
        return self._judged[3]

    @cached_property
    def _judged(self) -> tuple[tuple[CriterionResult, ...], tuple[Outcome, str], str, tuple[ArmMatches, ...]]:
        """Judged once a look. An error of the judge is said in the status and never keeps a run from ending."""
        facts = self.facts
        if facts is None or not facts.indicators:
            return (), ("Inconclusive", ""), "", ()
        try:
            case = case_of(self.rules, self.evidence, facts, self.funnel)
            return case.results, prospect(case), "", matches(self.rules, self.evidence)
        except Exception as error:
            return (), ("Inconclusive", ""), f"The criteria cannot be judged: {type(error).__name__} in the judge.", ()

    @property
    def pairs(self) -> int:
        """Counted pairs."""
        return self.evidence.pairs

    @property
    def tokens(self) -> int:
        """Prompt tokens of the counted pairs, estimated from bytes."""
        return self.funnel.pairs.tokens

    @property
    def second_counted(self) -> float | None:
        """When the first pair was complete that counted after the arms had changed places."""
        return self.evidence.halves[1].first_pair if self.evidence.halves else None

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
    on, off, limits, record = evidence.on, evidence.off, rules.live_path, seen.record
    watch = record.watch if record is not None else None
    if limits is not None and record is not None and not record.ended_at:
        watch = watched(watch, on, off, seen.now, limits)
    living = [e for key, e in seen.books.mirrors.items() if key not in dead]
    pace = _pace(seen)
    now = None if record is None else msgspec.structs.replace(record, watch=watch, pace=pace)
    warmed, counted, again = _beginnings(seen, evidence)
    return Progress(
        rules=rules,
        evidence=evidence,
        funnel=funnel(evidence, rules.baseline, superset=rules.superset, external=rules.external),
        lacking=shortfalls(rules, evidence.calibration),
        in_flight=sum(c.in_flight.requests for e in living for w in e.windows.values() for c in w.classes.values()),
        watch=watch,
        harm=harm(watch, on, off, seen.now, limits) if limits is not None else None,
        pace=pace,
        facts=None if now is None else facts_of(seen, now, counted),
        now=seen.now,
        warm_up_since=warmed,
        first_counted=counted,
        rewarming_since=again,
        stood={} if record is None else record.standings,
        holding_s=_holding_s(seen, rules, evidence),
    )


def renewed(record: RunRecord, done: Progress) -> RunRecord:
    """The record with what this look has added to it; an equal one where that is nothing."""
    return msgspec.structs.replace(
        record,
        watch=done.watch,
        pace=done.pace,
        standings=done.standings,
        warming_since=done.warm_up_since or 0.0,
        counting_since=done.first_counted or 0.0,
        rewarming_since=done.rewarming_since or 0.0,
    )


def _beginnings(seen: Observation, evidence: Merged) -> tuple[float | None, float | None, float | None]:
    """When the first pairs of the warm-up, of what counts and of the second warm-up were complete."""
    first_warm, first, record = evidence.warm_up.first_pair, evidence.counted.first_pair, seen.record
    if record is None:
        return first_warm, first, evidence.warm_again
    return (
        began(record.warming_since, first_warm, record.copying_since, seen.now),
        began(record.counting_since, first, record.told_to_count, seen.now),
        began(record.rewarming_since, evidence.warm_again, record.placed_at, seen.now),
    )


def _holding_s(seen: Observation, rules: Rules, evidence: Merged) -> float:
    of_criteria = (s for of_arm in evidence.counted.pairs.values() for s in of_arm.values())
    series = (*of_criteria, *evidence.counted.differing.values())
    return holding_s(series, rules.block_s, seen.run.spec.admission.timeout.seconds)


def _pace(seen: Observation) -> Pace:
    """How far rates are lowered: decided while there are copies to go by."""
    pace = seen.record.pace if seen.record is not None else Pace()
    if seen.record is None or not seen.record.copying_since or seen.record.ended_at:
        return pace
    sampling = seen.run.spec.sampling
    target = sampling.target_pairs_per_second
    return paced(
        asked(pace, sampling.rate.millionths, seen.now),
        selected_count(seen.books.mirrors),
        seen.now,
        None if target is None else target.thousandths / 1000,
    )


def settled(seen: Observation, done: Progress, since: float, *, told: bool) -> bool:
    """Whether what was copied until then has all been counted: mirrors and capture have stopped, and were read since.

    `told`: every mirror has been told to stop. What doesn't end in its time isn't waited for.
    """
    if seen.now >= since + seen.run.spec.admission.timeout.seconds + GRACE_S:
        return True
    newest = seen.books.newest_captures()
    stopped = all(not newest[pod.uid].copying for pod in seen.pods_of(names.CAPTURE) if pod.uid in newest)
    read = seen.now > since + POLL_S and not unread(seen)
    return told and stopped and read and done.in_flight == 0


def unread(seen: Observation) -> tuple[str, ...]:
    """Pods that may have counted, still run, and were not read in this very look."""
    if seen.record is None or not seen.record.copying_since:
        return ()
    counting = (pod for pod in seen.pods if pod.component in (names.MIRROR, names.CAPTURE) and pod.address)
    return tuple(pod.name for pod in counting if pod.uid not in seen.read)
