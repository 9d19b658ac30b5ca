"""The report: verdict, every number it rests on, and the evidence itself, so that it can be judged again. Types only.

The JSON form is stable under `version`; a reader ignores fields it does not know. Nothing in it is content. It is kept
in two parts: what people read as plain JSON, and the evidence compressed. The first has few numbers for each criterion,
class and arm, whose numbers the API bounds, and texts cut at `TEXT_BOUND`. The second is bounded by `EVIDENCE_BOUND`:
beyond it, blocks of time are joined pairwise until it fits. All sums stay exact then, so only bounds that rested on
finer blocks can differ when the report is judged again. The sum of halves is left out, and added up again when read.
"""

import base64
import zlib

import msgspec
from shadowrun_mirror.evidence import Window

from shadowrun_operator.judge.circumstances import Circumstances
from shadowrun_operator.judge.criteria import CriterionResult, Outcome
from shadowrun_operator.judge.display import ArmReport, ClassReport
from shadowrun_operator.judge.facts import Facts
from shadowrun_operator.judge.funnel import Funnel
from shadowrun_operator.judge.guards import Finding
from shadowrun_operator.judge.matches import ArmMatches
from shadowrun_operator.judge.merge import COUNTED, Merged
from shadowrun_operator.judge.missing import WorstCase
from shadowrun_operator.judge.rules import Rules

VERSION = 1
TEXT_BOUND = 16 * 1024
EVIDENCE_BOUND = 640 * 1024
"""Characters of base64. With the readable part and its object below the 1 MiB that a ConfigMap holds."""
_COARSEST = 24

METHOD = (
    "Bounds that hold at every look (confidence sequence, normal mixture). Mean of the pair indicator over blocks of"
    " time, as long as its autocorrelation asks for; in a short run, the longest there are, with a larger variance and"
    " fewer degrees of freedom; variance of the ratio by linearisation; the bound by the likelihood of pairs won and"
    " lost where wider. Weight Tokens: pairs weigh by the size of their request, up to {heaviest:g} times the mean of"
    " the warm-up. Pass: lower bound at alpha {pass_alpha:g} above the limit, for every criterion. Fail: upper bound"
    " below the limit at alpha {fail_alpha:g}, shared among criteria by Holm's method. DroppedHardRequests: failures by"
    " blocks of time, self-normalised sums, at every look, alpha {hard_alpha:g} shared among classes. Where arms change"
    " places halfway: both Pass and Fail must hold in each half by itself. Failures count as"
    " infinitely slow. Answers that match: lower bound of their share as for Pass; no part of the verdict."
    " Ranges of quantiles: order statistics, 95 %, answers taken as independent."
)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run. `reason` is a machine word, `message` a sentence with numbers."""

    version: int = VERSION
    verdict: Outcome
    reason: str
    message: str
    findings: tuple[Finding, ...]
    criteria: tuple[CriterionResult, ...]
    funnel: Funnel
    arms: tuple[ArmReport, ...]
    classes: tuple[ClassReport, ...] = ()
    worst_cases: tuple[WorstCase, ...] = ()
    matches: tuple[ArmMatches, ...] = ()
    method: str
    circumstances: Circumstances = Circumstances()
    rules: Rules
    facts: Facts
    evidence: Merged


def packed_report(report: Report) -> tuple[str, str]:
    """The readable part as JSON, and the evidence compressed, in base64."""
    facts = msgspec.structs.replace(report.facts, patch=report.facts.patch[:TEXT_BOUND])
    parts = msgspec.json.decode(
        msgspec.json.encode(msgspec.structs.replace(report, facts=facts)), type=dict[str, msgspec.Raw]
    )
    del parts["evidence"]
    text = _compressed(report.evidence)
    level = 0
    while len(text) > EVIDENCE_BOUND and level < _COARSEST:
        level += 1
        text = _compressed(_coarser(report.evidence, level))
    return msgspec.json.encode(parts).decode(), text


def unpacked_report(readable: str, evidence: str) -> Report:
    """The report again. Raises `ValueError` where a part cannot be read."""
    try:
        parts = msgspec.json.decode(readable, type=dict[str, msgspec.Raw])
        parts["evidence"] = msgspec.Raw(zlib.decompress(base64.b64decode(evidence)))
        report = decode_report(msgspec.json.encode(parts))
    except (msgspec.MsgspecError, zlib.error) as error:
        raise ValueError(str(error)) from error
    if not report.evidence.halves:
        return report
    first, second = report.evidence.halves
    whole = msgspec.structs.replace(report.evidence, counted=first.merged(second))
    return msgspec.structs.replace(report, evidence=whole)


def decode_report(raw: bytes | str) -> Report:
    """Parse a report; raises `msgspec.ValidationError` naming the field that is wrong."""
    return msgspec.json.decode(raw, type=Report)


def _compressed(evidence: Merged) -> str:
    if evidence.halves:
        evidence = msgspec.structs.replace(evidence, counted=Window(id=COUNTED))
    return base64.b64encode(zlib.compress(msgspec.json.encode(evidence))).decode()


def _coarser(evidence: Merged, level: int) -> Merged:
    counted, halves = _joined(evidence.counted, level), tuple(_joined(half, level) for half in evidence.halves)
    return msgspec.structs.replace(evidence, counted=counted, halves=halves)


def _joined(window: Window, level: int) -> Window:
    pairs = {
        arm: {name: series.at_level(level) for name, series in by_criterion.items()}
        for arm, by_criterion in window.pairs.items()
    }
    classes = {
        name: msgspec.structs.replace(c, failing={arm: series.at_level(level) for arm, series in c.failing.items()})
        for name, c in window.classes.items()
    }
    differing = {arm: series.at_level(level) for arm, series in window.differing.items()}
    return msgspec.structs.replace(window, pairs=pairs, classes=classes, differing=differing)
