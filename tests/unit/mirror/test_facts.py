import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.config import TrafficClass
from shadowrun_mirror.facts import Facts, arm_body, facts_of, fields_of, traffic_class, unread_facts

pytestmark = pytest.mark.mirror

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
bodies = st.dictionaries(st.text() | st.sampled_from(["model", "stream", "tools", "stream_options"]), json_values)


def facts(body: Any) -> Facts:
    raw = json.dumps(body).encode()
    fields = fields_of(raw)
    assert fields is not None
    return facts_of(fields, len(raw))


def sent(body: Any, model: str = "", stream: bool = True) -> Any:
    raw = json.dumps(body).encode()
    fields = fields_of(raw)
    assert fields is not None
    return json.loads(arm_body(raw, fields, model, stream))


@given(bodies, st.sampled_from(["", "other"]), st.booleans())
def test_any_body_keeps_everything_but_model_and_usage(body: dict[str, Any], model: str, stream: bool) -> None:
    got = sent(body, model, stream)
    expected = dict(body)
    if model:
        expected["model"] = model
    options = body.get("stream_options")
    if stream and (options is None or isinstance(options, dict)):
        expected["stream_options"] = (options or {}) | {"include_usage": True}
    assert got == expected


def test_a_body_with_nothing_to_change_is_sent_as_the_very_bytes() -> None:
    raw = b'{ "stream_options" : {"include_usage":true}, "model":"m", "a": 1.50 }'
    assert arm_body(raw, fields_of(raw) or {}, "", stream=True) is raw
    assert arm_body(raw, fields_of(raw) or {}, "", stream=False) is raw


def test_numbers_and_escapes_are_kept_as_written() -> None:
    raw = rb'{"model":"m","temperature":1.50,"big":12345678901234567890123,"text":"\u00e9\/","stream":true}'
    assert arm_body(raw, fields_of(raw) or {}, "n", stream=True) == (
        rb'{"model":"n","temperature":1.50,"big":12345678901234567890123,"text":"\u00e9\/","stream":true,'
        rb'"stream_options":{"include_usage":true}}'
    )


def test_other_stream_options_are_kept() -> None:
    assert sent({"stream_options": {"include_usage": False, "x": 1}})["stream_options"] == {
        "include_usage": True,
        "x": 1,
    }
    assert sent({"stream_options": "wrong"})["stream_options"] == "wrong"  # the engine will say what it thinks of it


@pytest.mark.parametrize(
    ("body", "model", "stream", "tools"),
    [
        ({}, "", False, False),
        ({"model": "m", "stream": True}, "m", True, False),
        ({"model": 3, "stream": "true"}, "", False, False),
        ({"stream": None, "tools": None}, "", False, False),
        ({"tools": []}, "", False, False),
        ({"tools": [{"type": "function"}]}, "", False, True),
    ],
)
def test_facts_are_read_from_the_top_level(body: Any, model: str, stream: bool, tools: bool) -> None:
    got = facts(body)
    assert (got.model, got.stream, got.tools) == (model, stream, tools)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"1", b"{", b'{"a":}', b"{}x", b"\xff", b"[" * 200_000, b'{"a":' * 200_000]
)
def test_anything_but_a_json_object_has_no_fields(raw: bytes) -> None:
    assert fields_of(raw) is None


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise(raw: bytes) -> None:
    fields = fields_of(raw)
    assert fields is None or facts_of(fields, len(raw)).size == len(raw)


LONG = TrafficClass(name="long", min_prompt_tokens=1000)
SHORT_STREAM = TrafficClass(name="short-stream", max_prompt_tokens=10, stream=True)
TOOLS = TrafficClass(name="tools", tools=True)


@pytest.mark.parametrize(
    ("size", "stream", "tools", "expected"),
    [
        (4000, False, False, "long"),
        (3999, False, False, "default"),
        (4000, True, True, "long"),  # the first that matches
        (43, True, True, "short-stream"),  # 43 bytes are 10 tokens
        (44, True, True, "tools"),
        (43, False, False, "default"),
    ],
)
def test_the_first_matching_class_wins(size: int, stream: bool, tools: bool, expected: str) -> None:
    known = Facts(model="m", stream=stream, tools=tools, size=size)
    assert traffic_class((LONG, SHORT_STREAM, TOOLS), known) == expected


def test_a_body_that_was_not_read_is_classed_by_its_size_alone() -> None:
    assert traffic_class((TOOLS, SHORT_STREAM, LONG), unread_facts(8000)) == "long"
    assert traffic_class((TrafficClass(name="buffered", stream=False),), unread_facts(10)) == "default"
