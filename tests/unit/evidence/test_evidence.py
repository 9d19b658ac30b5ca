"""Evidence of several replicas adds up in any order, and survives its JSON form."""

import msgspec
import pytest
from hypothesis import given, settings
from shadowrun_mirror.config import encode
from shadowrun_mirror.evidence import Amount, ArmEvidence, ClassEvidence, Evidence, Window

from tests.unit.evidence.evidences import class_evidences, evidences, windows

pytestmark = pytest.mark.verdict


@settings(max_examples=30)
@given(class_evidences(), class_evidences(), class_evidences())
def test_merging_classes_is_associative_and_commutative(a: ClassEvidence, b: ClassEvidence, c: ClassEvidence) -> None:
    assert a.merged(b) == b.merged(a)
    assert a.merged(b).merged(c) == a.merged(b.merged(c))


@settings(max_examples=20)
@given(windows(), windows(), windows())
def test_merging_windows_is_associative_and_commutative(a: Window, b: Window, c: Window) -> None:
    assert a.merged(b) == b.merged(a)
    assert a.merged(b).merged(c) == a.merged(b.merged(c))


@settings(max_examples=30)
@given(class_evidences(), class_evidences())
def test_what_adds_up_in_each_replica_adds_up_in_both(a: ClassEvidence, b: ClassEvidence) -> None:
    both = a.merged(b)
    accounted = sum((*both.excluded.values(), *both.dropped.values()), both.admitted)
    assert accounted == both.received
    for arm in both.arms.values():
        assert sum(arm.failed.values(), arm.completed + both.in_flight) == both.admitted


@settings(max_examples=20)
@given(evidences("mirror-0"))
def test_evidence_survives_json(evidence: Evidence) -> None:
    assert Evidence.decode(encode(evidence)) == evidence


def test_an_arm_that_one_replica_never_saw_is_kept() -> None:
    seen = ClassEvidence(arms={"control": ArmEvidence(completed=Amount(requests=1, bytes=9))})
    assert ClassEvidence().merged(seen).arms["control"].completed == Amount(requests=1, bytes=9)


def test_malformed_evidence_is_refused_with_the_field_named() -> None:
    with pytest.raises(msgspec.ValidationError, match="source"):
        Evidence.decode(b'{"run_uid": "x"}')
