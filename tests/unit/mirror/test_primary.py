"""The lines of capture's log as anybody may send them: ours, foreign, torn, senseless."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.join import Outcome, request_mark
from shadowrun_mirror.primary import Told, told

pytestmark = pytest.mark.mirror

RUN = "run-uid"


def record(**changes: Any) -> dict[str, Any]:
    usual = {"id": "id-1", "status": 200, "flags": "-", "first_byte_us": 1500, "run": RUN}
    return usual | changes


def read(*records: Any) -> Told:
    return told(b"\n".join(json.dumps(each).encode() for each in records), RUN)


def test_a_line_is_an_outcome_under_the_hash_of_its_id() -> None:
    found = read(record(), record(id=" id-2 ", status=503, flags="UC", first_byte_us=None))
    assert found.ended == [
        (request_mark(b"id-1"), Outcome(kind="answered", first_byte_s=0.0015)),
        (request_mark(b"id-2"), Outcome(kind="failed", first_byte_s=None)),
    ]
    assert (found.senseless, found.of_another_run) == (0, 0)


def test_lines_of_another_run_and_without_an_id_are_no_outcomes() -> None:
    assert read(record(run="another"), record(id=None), record(id="")) == Told(ended=[], senseless=0, of_another_run=1)


@pytest.mark.parametrize(
    "wrong",
    [
        record(status="200 and a sentence"),
        record(flags=None),
        record(id=7),
        {},
        [],
        None,
        "text",
        record(first_byte_us="x"),
    ],
)
def test_one_line_that_makes_no_sense_costs_that_line_only(wrong: Any) -> None:
    found = read(record(), wrong, record(id="id-2"))
    assert [mark for mark, _ in found.ended] == [request_mark(b"id-1"), request_mark(b"id-2")]
    assert (found.senseless, found.of_another_run) == (1, 0)


def test_a_torn_line_takes_along_the_one_that_was_written_behind_it() -> None:
    whole = json.dumps(record()).encode()
    found = told(whole[:40] + whole + b"\n" + whole + b"\n\n", RUN)
    assert (len(found.ended), found.senseless) == (1, 1)


@given(st.binary(max_size=300))
def test_any_bytes_are_read(data: bytes) -> None:
    found = told(data, RUN)
    assert len(found.ended) + found.senseless + found.of_another_run <= data.count(b"\n") + 1


@pytest.mark.parametrize("line", [b"[" * 60_000, b'{"id":' * 10_000, b"\xff" * 100, b'{"id": "\xff"}'])
def test_nested_and_undecodable_lines_are_senseless(line: bytes) -> None:
    assert told(line, RUN).senseless == 1


def test_fields_that_are_not_known_are_passed_over() -> None:
    assert len(read(record(more={"deep": [1, 2]})).ended) == 1


def test_a_first_byte_before_the_request_began_counts_as_none_waited() -> None:
    assert read(record(first_byte_us=-5)).ended[0][1].first_byte_s == 0.0
