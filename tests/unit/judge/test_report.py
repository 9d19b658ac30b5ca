"""The report is kept in two parts below a fixed size, and can be judged again from them."""

import msgspec
import pytest
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_operator.judge import report as module
from shadowrun_operator.judge.report import EVIDENCE_BOUND, TEXT_BOUND, packed_report, unpacked_report
from shadowrun_operator.judge.verdict import judge, judged_again

from tests.unit.judge.synthetic import DEFAULT_RULES, facts, faster, judged, recorded, slower

pytestmark = pytest.mark.verdict


@pytest.mark.parametrize("candidate", [faster, slower])
def test_a_report_read_back_is_the_same_and_can_be_judged_again(candidate: object) -> None:
    report = judged(recorded(candidate=candidate, names=("long", "default")))  # type: ignore[arg-type]
    readable, evidence = packed_report(report)
    assert "evidence" not in msgspec.json.decode(readable)
    restored = unpacked_report(readable, evidence)
    assert restored == report
    assert judged_again(restored) == report


def test_evidence_beyond_the_bound_is_kept_in_coarser_blocks_with_the_same_sums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = recorded(pairs=900)
    recorder.windows[1].differing["candidate"] = BlockSeries(sums=dict.fromkeys(range(300), (3, -1)))
    report = judged(recorder)
    _, whole = packed_report(report)
    monkeypatch.setattr(module, "EVIDENCE_BOUND", len(whole) - 1)
    readable, evidence = packed_report(report)
    assert len(evidence) < len(whole)
    restored = unpacked_report(readable, evidence)
    for arm, series in report.evidence.counted.pairs.items():
        for name, blocks in series.items():
            kept = restored.evidence.counted.pairs[arm][name]
            assert kept.level > blocks.level
            assert (kept.pairs, _sum(kept)) == (blocks.pairs, _sum(blocks))
    assert restored.evidence.counted.differing["candidate"].level > 0
    again = judged_again(restored)
    assert (again.verdict, again.funnel) == (report.verdict, report.funnel)


def _sum(series: BlockSeries) -> int:
    return sum(s for _, s in series.sums.values())


def test_no_report_needs_more_than_a_config_map_holds() -> None:
    recorder = recorded(names=[f"class-{i}" for i in range(9)], pairs=900)
    known = msgspec.structs.replace(facts(recorder), patch="spec.containers[engine].args\n" * 100_000)
    readable, evidence = packed_report(judge(DEFAULT_RULES, recorder.merged(), known))
    assert len(evidence) <= EVIDENCE_BOUND
    assert TEXT_BOUND < len(readable) < (1 << 20) - EVIDENCE_BOUND


@pytest.mark.parametrize(("readable", "evidence"), [("{", None), (None, "AAAA"), (None, "A"), ("[]", None)])
def test_a_part_that_cannot_be_read_is_a_value_error(readable: str | None, evidence: str | None) -> None:
    good = packed_report(judged(recorded()))
    with pytest.raises(ValueError, match=r"."):
        unpacked_report(readable or good[0], evidence or good[1])
